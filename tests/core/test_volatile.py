"""What clients re-render without meaning it."""

import pytest

from proxy.core.volatile import without_volatile


@pytest.mark.parametrize(
    ("text", "left"),
    [
        pytest.param("fix it", "fix it", id="nothing volatile"),
        pytest.param("  kept \n", "  kept \n", id="space where nothing was taken"),
        pytest.param("fix it\n<system-reminder>a\nb</system-reminder>", "fix it", id="a reminder"),
        pytest.param(
            "<system-reminder>a</system-reminder><system-reminder>b</system-reminder>", "", id="two"
        ),
        pytest.param(
            "fix <system-reminder>a</system-reminder>it <system-reminder>b</system-reminder>now",
            "fix it now",
            id="what stands between two stays",
        ),
        pytest.param("a<system-reminder>b", "a<system-reminder>b", id="never closed"),
        pytest.param("a</system-reminder>b", "a</system-reminder>b", id="never opened"),
        pytest.param(
            "<system-reminder>a<system-reminder>b</system-reminder>c", "c", id="opened twice, closed once"
        ),
        pytest.param(
            "x-anthropic-billing-header: cc=1; v=2\nrest", "rest", id="Claude Code's billing header"
        ),
        pytest.param("Today's date is Monday.\nfix it", "fix it", id="Qwen Code's date"),
        pytest.param(
            "x-anthropic-billing-header: cc=1\nToday's date is Monday.\nfix it", "fix it", id="both lines"
        ),
        pytest.param("Current date: 2026-11-30", "", id="a date alone"),
        pytest.param("say: Today's date is Monday", "say: Today's date is Monday", id="a date in a sentence"),
    ],
)
def test_what_is_left_of_a_text(text: str, left: str) -> None:
    assert without_volatile(text) == left
    assert without_volatile(left) == left


def test_reminders_that_are_never_closed_cost_linear_time() -> None:
    # Quadratic, this is minutes.
    text = "<system-reminder>" * 200_000
    assert without_volatile(text) == text
    closed = text + "</system-reminder>" + text
    assert without_volatile(closed) == text
