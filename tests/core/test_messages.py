"""Where the brief ends, and where turns begin."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.core.messages import (
    Call,
    Conversation,
    Kind,
    Message,
    Role,
    Shown,
    Text,
    Turn,
    as_it_came,
    find_turns,
    has_reasoned,
)

S, U, A = Message(role=Role.SYSTEM), Message(role=Role.USER), Message(role=Role.ASSISTANT)


def asks(*ids: str) -> Message:
    return Message(role=Role.ASSISTANT, calls=tuple(Call(i, "read", "{}") for i in ids))


def tool(call_id: str) -> Message:
    return Message(role=Role.TOOL, answers=(call_id,))


@pytest.mark.parametrize(
    ("messages", "brief_end", "turns"),
    [
        pytest.param([], 0, [], id="nothing"),
        pytest.param([S, U], 2, [], id="no assistant message: all is brief"),
        pytest.param([A, U], 0, [(0, 2)], id="assistant first: an empty brief"),
        pytest.param([S, U, asks("a"), tool("a")], 2, [(2, 4)], id="a call and its result"),
        pytest.param(
            [U, asks("a", "b"), tool("b"), tool("a"), asks("c"), tool("c")],
            1,
            [(1, 4), (4, 6)],
            id="parallel",
        ),
        pytest.param([U, asks("a"), U, S, tool("a"), A, U], 1, [(1, 5), (5, 7)], id="users inside a turn"),
        pytest.param([U, asks("a"), A, tool("a"), A, U], 1, [(1, 4), (4, 6)], id="an answer between them"),
        pytest.param([U, A, A, U], 1, [(1, 2), (2, 4)], id="consecutive assistant messages"),
        pytest.param([U, A, U, A], 1, [(1, 4)], id="a prefill belongs to the turn before"),
        pytest.param([U, A], 1, [(1, 2)], id="a prefill alone is a turn"),
        pytest.param([U, A, U, asks("a")], 1, [(1, 3), (3, 4)], id="a call at the end is no prefill"),
        pytest.param([U, asks("a"), A, U, A, U], 1, [(1, 2), (2, 4), (4, 6)], id="a call without result"),
        pytest.param([U, asks("a"), A, A, tool("a"), A, U], 1, [(1, 5), (5, 7)], id="a late result joins"),
        pytest.param(
            [U, asks("i"), tool("i"), asks("i"), tool("i")], 1, [(1, 3), (3, 5)], id="an id used again"
        ),
        pytest.param(
            [U, asks("i"), asks("i"), tool("i"), A, U],
            1,
            [(1, 2), (2, 4), (4, 6)],
            id="the nearest call of an id",
        ),
        pytest.param([U, tool("x"), A, tool("y"), A, U], 2, [(2, 4), (4, 6)], id="orphan results"),
        pytest.param([U, asks(""), tool(""), asks(""), tool("")], 1, [(1, 3), (3, 5)], id="empty ids"),
    ],
)
def test_turns(messages: list[Message], brief_end: int, turns: list[tuple[int, int]]) -> None:
    assert find_turns(messages) == (brief_end, tuple(Turn(start=a, end=b) for a, b in turns))


def test_a_message_that_joins_begins_no_turn() -> None:
    joined = Message(role=Role.ASSISTANT, joins=True)
    assert find_turns([U, A, joined, U, A, U])[1] == (Turn(start=1, end=4), Turn(start=4, end=6))


_MESSAGES = st.lists(
    st.one_of(
        st.sampled_from([S, U, A]),
        st.lists(st.sampled_from("abc"), max_size=3).map(lambda ids: asks(*ids)),
        st.sampled_from("abcd").map(tool),
    ),
    max_size=24,
)


@settings(max_examples=300, deadline=None)
@given(_MESSAGES)
def test_turns_cover_everything_after_the_brief_and_part_no_pair(messages: list[Message]) -> None:
    brief_end, turns = find_turns(messages)
    assert all(m.role is not Role.ASSISTANT for m in messages[:brief_end])
    assert [t.end for t in turns[:-1]] == [t.start for t in turns[1:]]
    if turns:
        assert (turns[0].start, turns[-1].end) == (brief_end, len(messages))
    assert all(messages[t.start].role is Role.ASSISTANT for t in turns)
    # Pairs, as plainly as they can be found.
    open_calls: list[tuple[int, str]] = []
    turn_of = {i: n for n, t in enumerate(turns) for i in range(t.start, t.end)}
    for i, message in enumerate(messages):
        open_calls += [(i, call.id) for call in message.calls]
        for answered in message.answers:
            at = next((k for k in range(len(open_calls) - 1, -1, -1) if open_calls[k][1] == answered), None)
            if at is not None:
                assert turn_of[open_calls.pop(at)[0]] == turn_of[i]


def test_thousands_of_late_results_cost_linear_time() -> None:
    # Quadratic, these are two hundred million steps.
    ids = [str(n) for n in range(20_000)]
    messages = [U, asks(*ids)]
    for call_id in ids:
        messages += [A, tool(call_id)]
    assert find_turns(messages) == (1, (Turn(start=1, end=len(messages)),))


def test_ten_thousand_messages_have_ten_thousand_turns_at_once() -> None:
    messages = [m for n in range(10_000) for m in (asks("same"), tool("same"))]
    turns = find_turns(messages)[1]
    assert len(turns) == 10_000
    assert all(a.end == b.start for a, b in pairwise(turns))


def test_what_is_said_is_apart_from_results_arguments_and_reasoning() -> None:
    message = Message(
        role=Role.TOOL,
        texts=(
            Text(Kind.RESULT, "one", of=0),
            Text(Kind.SAID, "a"),
            Text(Kind.RESULT, "two", of=1),
            Text(Kind.REASONING, "r"),
            Text(Kind.SAID, "b"),
        ),
        answers=("x", "y"),
    )
    assert message.said() == "a\nb"
    assert (message.result(0), message.result(1), message.result(2)) == ("one", "two", "")


@pytest.mark.parametrize(
    ("shown", "is_word_for_word"),
    [
        pytest.param(Shown(message=Message(role=Role.USER, wire={})), True, id="as it came"),
        pytest.param(Shown(message=Message(role=Role.USER, wire={}), appended="x"), False, id="with a block"),
        pytest.param(Shown(message=Message(role=Role.USER, wire={}), cuts=((0, "x"),)), False, id="cut"),
        pytest.param(Shown(message=Message(role=Role.USER)), False, id="of our making"),
    ],
)
def test_a_message_goes_word_for_word(shown: Shown, is_word_for_word: bool) -> None:
    assert shown.is_word_for_word is is_word_for_word


def test_the_texts_of_one_result_are_its_lines() -> None:
    texts = (Text(Kind.RESULT, "a", of=0), Text(Kind.RESULT, "b", of=0), Text(Kind.RESULT, "c", of=1))
    message = Message(role=Role.TOOL, texts=texts, answers=("x", "y"))
    assert (message.result(0), message.result(1)) == ("a\nb", "c")


def test_a_message_as_it_came_is_made_once() -> None:
    message = Message(role=Role.USER, wire={"role": "user"})
    shown = as_it_came(message)
    assert shown.message is message
    assert shown.is_word_for_word
    assert as_it_came(message) is shown


@pytest.mark.parametrize(
    ("kind", "has"),
    [(Kind.REASONING, True), (Kind.SEALED, True), (Kind.SAID, False), (Kind.RESULT, False)],
)
def test_a_model_has_reasoned_where_reasoning_stands(kind: Kind, has: bool) -> None:
    messages = (Message(role=Role.ASSISTANT, texts=(Text(kind, "so"),)),)
    assert has_reasoned(Conversation(messages=messages, brief_end=0, turns=())) is has


def test_a_prefill_after_several_turns_belongs_to_the_last() -> None:
    assert find_turns([U, A, U, A, U, A])[1] == (Turn(start=1, end=3), Turn(start=3, end=6))


def test_a_message_that_ends_two_pairs_ends_both() -> None:
    both = Message(role=Role.TOOL, answers=("a", "b"))
    turns = find_turns([U, asks("a", "b"), A, both, U, A, U])[1]
    assert turns == (Turn(start=1, end=5), Turn(start=5, end=7))
