"""
Which user messages have room, to the token: here a token is a character.

A message of 18 characters takes 40 with its head, and 42 with the blank line after it.
"""

import pytest

from proxy.core.messages import Message
from proxy.core.users import render_users
from tests.core.sessions import user

NEWEST = "[user message 6 of 6, the newest of these]\ntask"


def said(*, third: str = "c" * 18) -> list[Message]:
    return [user(text) for text in ("a" * 18, "b" * 18, third, "d" * 18, "e" * 18, "task")]


def shown(index: int) -> str:
    return f"[user message {index} of 6]\n{'abcde'[index - 1] * 18}"


def gone(number: int) -> str:
    return f"[{number} user message{'s' if number != 1 else ''} left out here]"


LONG = "c" * 1_000


@pytest.mark.parametrize(
    ("messages", "room", "parts"),
    [
        pytest.param(said(), 210, [*map(shown, range(1, 6)), NEWEST], id="all just fit"),
        pytest.param(said(), 209, [shown(1), shown(2), gone(2), shown(5), NEWEST], id="one token less"),
        pytest.param(said(), 188, [shown(1), shown(2), gone(2), shown(5), NEWEST], id="three just fit"),
        pytest.param(said(), 187, [shown(1), shown(2), gone(3), NEWEST], id="two and no more"),
        pytest.param(
            said(third=LONG),
            222,
            [shown(1), shown(2), gone(2), shown(5), NEWEST],
            id="no room even for a cut one",
        ),
        pytest.param(said(), 0, [gone(5), NEWEST], id="no room for others"),
    ],
)
def test_the_oldest_two_then_the_newest_have_room(
    messages: list[Message], room: int, parts: list[str]
) -> None:
    assert render_users(messages, 100, room, len) == "\n\n".join(parts)


def test_a_long_one_is_cut_to_a_quarter_of_the_room() -> None:
    text = render_users(said(third=LONG), 100, 800, len)
    parts = text.split("\n\n")
    assert parts[:2] + parts[3:] == [shown(1), shown(2), shown(4), shown(5), NEWEST]
    assert parts[2].startswith("[user message 3 of 6]\nccc")
    assert len(parts[2]) == 198


@pytest.mark.parametrize(
    ("task_room", "room", "parts"),
    [
        pytest.param(0, 300, [*map(shown, range(1, 6))], id="no room for the newest"),
        pytest.param(0, 0, [], id="no room at all"),
        pytest.param(-5, -5, [], id="less than none"),
        pytest.param(
            len(NEWEST) + 33, 0, [gone(5), NEWEST], id="the newest and a line for the others just fit"
        ),
        pytest.param(len(NEWEST) + 32, 0, [NEWEST], id="the newest alone"),
        pytest.param(len(NEWEST), -5, [NEWEST], id="the newest just fits"),
    ],
)
def test_the_newest_has_a_room_of_its_own(task_room: int, room: int, parts: list[str]) -> None:
    assert render_users(said(), task_room, room, len) == "\n\n".join(parts)


@pytest.mark.parametrize(
    ("for_each_gap", "parts"),
    [
        pytest.param(21, [*map(shown, range(1, 6)), NEWEST], id="just their room"),
        pytest.param(22, [shown(1), shown(2), gone(1), shown(4), shown(5), NEWEST], id="first the third"),
        pytest.param(30, [shown(1), shown(2), gone(2), shown(5), NEWEST], id="then the next"),
        pytest.param(40, [shown(1), shown(2), gone(3), NEWEST], id="then the last of them"),
        pytest.param(69, [gone(1), shown(2), gone(3), NEWEST], id="then the first"),
        pytest.param(150, [gone(5), NEWEST], id="all of them"),
        pytest.param(300, [NEWEST], id="and the line that says so"),
    ],
)
def test_pieces_that_are_too_much_together_go_one_by_one(for_each_gap: int, parts: list[str]) -> None:
    def count(text: str) -> int:
        return len(text) + for_each_gap * text.count("\n\n")

    # All fit one by one, with 105 tokens to spare for the five gaps between them.
    assert render_users(said(), 152, 210, count) == "\n\n".join(parts)


def test_without_a_newest_the_rooms_are_those_of_the_others() -> None:
    def count(text: str) -> int:
        return len(text) + 3 * text.count("\n\n")

    messages = [user("a" * 40), user("b" * 18), user("task" * 10)]
    first, second = f"[user message 1 of 3]\n{'a' * 40}", f"[user message 2 of 3]\n{'b' * 18}"
    room = len(first) + len(second) + 4
    assert render_users(messages, 0, room, count) == f"{gone(1)}\n\n{second}"
    assert render_users(messages, 1, room, count) == f"{first}\n\n{second}"
