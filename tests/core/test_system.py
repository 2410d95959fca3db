"""Which late system messages the block carries, and how."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.core.messages import Message
from proxy.core.system import render_late_system
from tests.core.sessions import system, tokens, user
from tests.core.test_ledger import conversations


def test_late_system_messages_are_kept_word_for_word_in_order_and_once() -> None:
    messages = [system("be brief"), user("x"), system("no tools now"), system("be brief")]
    assert render_late_system(messages, 100, tokens) == (
        "[system message 1 of 2]\nno tools now\n\n[system message 2 of 2]\nbe brief"
    )


@pytest.mark.parametrize(
    "messages",
    [
        pytest.param([user("x")], id="none"),
        pytest.param([system(" \n")], id="a blank one"),
        pytest.param([], id="nothing"),
    ],
)
def test_without_one_there_is_nothing(messages: list[Message]) -> None:
    assert render_late_system(messages, 100, tokens) == ""


def test_where_room_is_short_the_newest_stay_and_a_marker_says_how_many_went() -> None:
    messages = [system(f"rule number {n} of the mode that the agent is in") for n in range(1, 41)]
    text = render_late_system(messages, 100, tokens)
    kept = text.count("rule number")
    assert 1 < kept < 40
    assert text.startswith(f"[{40 - kept} system messages left out here]\n\n")
    assert text.endswith("[system message 40 of 40]\nrule number 40 of the mode that the agent is in")


ONE, TWO, THREE = (f"[system message {n} of 3]\n" for n in (1, 2, 3))
LONG, SHORT = "a" * 1_000, "b" * 10


@pytest.mark.parametrize(
    ("first", "room", "text"),
    [
        pytest.param(
            "a" * 10, 106, f"{ONE}{'a' * 10}\n\n{TWO}{SHORT}\n\n{THREE}{'c' * 10}", id="all just fit"
        ),
        pytest.param(
            LONG,
            107,
            f"[1 system message left out here]\n\n{TWO}{SHORT}\n\n{THREE}{'c' * 10}",
            id="two just fit",
        ),
        pytest.param(
            LONG, 106, f"[2 system messages left out here]\n\n{THREE}{'c' * 10}", id="one token less"
        ),
        pytest.param(LONG, 0, "", id="no room"),
    ],
)
def test_the_newest_that_fit_are_kept_to_the_token(first: str, room: int, text: str) -> None:
    messages = [system(first), system(SHORT), system("c" * 10)]
    assert render_late_system(messages, room, len) == text


def test_the_last_that_has_room_is_cut_to_just_that() -> None:
    text = render_late_system([system(LONG), system(SHORT), system("c" * 10)], 300, len)
    assert text.endswith(f"aaa\n\n{TWO}{SHORT}\n\n{THREE}{'c' * 10}")
    assert text.startswith(f"{ONE}aaa")
    # The room is kept for the line that says how many went, though none did.
    assert len(text) == 263


@pytest.mark.parametrize(
    ("for_each_gap", "kept"),
    [pytest.param(1.5, 2, id="just its room"), pytest.param(2.0, 1, id="a token more")],
)
def test_pieces_that_are_too_much_together_are_fewer(for_each_gap: float, kept: int) -> None:
    def count(text: str) -> int:
        return len(text) + int(for_each_gap * text.count("\n\n"))

    text = render_late_system([system(LONG), system(SHORT), system("c" * 10)], 107, count)
    assert text.count("[system message ") == kept


def test_one_over_the_room_is_cut_in_its_middle() -> None:
    text = render_late_system([system("begin " + "x" * 10_000 + " end")], 100, tokens)
    assert tokens(text) <= 100
    assert text.startswith("[system message 1 of 1]\nbegin ")
    assert text.endswith(" end")


@settings(max_examples=150, deadline=None)
@given(messages=conversations(), room=st.integers(-3, 60))
def test_system_messages_raise_nothing_and_stay_in_their_room(messages: list[Message], room: int) -> None:
    text = render_late_system(messages, room, tokens)
    assert text == "" or tokens(text) <= room
