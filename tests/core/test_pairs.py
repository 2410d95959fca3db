"""Which result answers which call."""

from proxy.core.messages import Kind, Message, Role, Text
from proxy.core.pairs import pair
from tests.core.sessions import answers, asks


def results(messages: list[Message]) -> list[str | None]:
    return [made.result for made in pair(messages)]


def test_a_result_answers_the_call_of_its_id() -> None:
    batch = asks(("read", {"path": "a"}), ("read", {"path": "b"}))
    assert results([batch, answers("B", "c1"), answers("A", "c0")]) == ["A", "B"]


def test_an_id_that_is_used_again_answers_the_nearest_call_before_it() -> None:
    again = asks(("read", {}), ids=("same",))
    assert results([again, answers("1", "same"), again, answers("2", "same")]) == ["1", "2"]


def test_one_id_for_two_parallel_calls_pairs_them_in_order() -> None:
    batch = asks(("add", {"t": 1}), ("add", {"t": 2}), ids=("a", "a"))
    assert results([batch, answers("1", "a"), answers("2", "a")]) == ["1", "2"]


def test_a_call_without_result_has_none_and_a_result_without_call_is_left_out() -> None:
    assert results([answers("lost", "x"), asks(("read", {})), answers("other", "y")]) == [None]


def test_the_nearest_unanswered_call_is_preferred_to_an_older_one() -> None:
    first, second = asks(("read", {"n": 1}), ids=("i",)), asks(("read", {"n": 2}), ids=("i",))
    assert results([first, second, answers("late", "i")]) == [None, "late"]


def test_one_message_may_answer_several_calls() -> None:
    batch = asks(("a", {}), ("b", {}))
    both = Message(
        role=Role.TOOL,
        texts=(Text(Kind.RESULT, "A", of=0), Text(Kind.SAID, "go on"), Text(Kind.RESULT, "B", of=1)),
        answers=("c0", "c1"),
    )
    assert [(m.result, m.message_index) for m in pair([batch, both])] == [("A", 0), ("B", 0)]


def test_a_pair_says_which_call_it_is_and_where_its_answer_stands() -> None:
    batch = asks(("a", {}), ("b", {}))
    both = Message(
        role=Role.TOOL,
        texts=(Text(Kind.RESULT, "A", of=0), Text(Kind.RESULT, "B", of=1)),
        answers=("c0", "c1"),
    )
    open_ = asks(("c", {}), ids=("open",))
    assert [(m.call.name, m.message_index, m.answer) for m in pair([batch, both, open_])] == [
        ("a", 0, (1, 0)),
        ("b", 0, (1, 1)),
        ("c", 2, None),
    ]


def test_an_answer_without_a_call_does_not_hide_those_beside_it() -> None:
    both = Message(
        role=Role.TOOL,
        texts=(Text(Kind.RESULT, "lost", of=0), Text(Kind.RESULT, "found", of=1)),
        answers=("nobody", "c0"),
    )
    assert results([asks(("a", {})), both]) == ["found"]
