"""The benchmark of waiting plays what it says; how long anything takes is not asked here."""

import pytest

from benchmarks.timed_upstream import Pace, first_tokens
from benchmarks.waiting import Played, play, table

# So fast that nothing is waited for.
AT_ONCE = Pace(prompt=1e6, written=1e6, scale=1e-3)


async def test_tools_that_take_long_enough_have_the_notes_used_and_the_prompt_processed() -> None:
    played = await play("ahead", None, turns=18, pace=AT_ONCE)
    assert (played.compactions, played.used, played.wasted, played.prewarms) == (1, 1, 0, 1)


async def test_inline_nothing_is_made_ahead() -> None:
    played = await play("inline", None, turns=18, pace=AT_ONCE)
    assert (played.compactions, played.used, played.wasted, played.prewarms) == (1, 0, 0, 0)


@pytest.mark.parametrize(
    ("tokens", "kept"),
    [
        pytest.param(0, ("",), id="none"),
        pytest.param(3, ("abcdefgh", "ijkl"), id="in the middle of a segment"),
        pytest.param(4, ("abcdefgh", "ijklmnop"), id="all"),
    ],
)
def test_what_was_processed_of_a_prompt_is_its_first_tokens(tokens: int, kept: tuple[str, ...]) -> None:
    assert first_tokens(("abcdefgh", "ijklmnop"), tokens) == kept


def test_the_table_sets_ahead_against_inline() -> None:
    inline = Played(compactions=2, added_seconds=20.0, used=0, wasted=0, prewarms=0)
    ahead = Played(compactions=2, added_seconds=1.0, used=2, wasted=1, prewarms=2)
    rows = table({10.0: {"inline": inline, "ahead": ahead}}).splitlines()
    assert rows[-1] == "| 10 s | 2, 2 | 10.0 s | 0.5 s | 0.05 | 2, 1 | 2 |"
