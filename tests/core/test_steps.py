"""What is known of every call of a range."""

from proxy.core.messages import Call, Kind, Message, Role, Text
from proxy.core.outcomes import read_outcome
from proxy.core.steps import read_steps
from proxy.core.tools import read_call
from tests.core.sessions import asks, does, user


def test_a_step_knows_what_its_call_does_and_how_it_ended() -> None:
    [step] = read_steps(does("bash", '{"command":"make"}', "error: no rule\nexit code: 2"))
    assert step.deed == read_call(Call("c0", "bash", '{"command":"make"}'))
    assert step.outcome == read_outcome(step.deed.act, "error: no rule\nexit code: 2")
    assert step.outcome != read_outcome(step.deed.act, None)


def test_a_step_has_its_arguments_as_they_came_its_result_and_where_both_stand() -> None:
    batch = asks(("read_file", '{ "path": "a.py" }'), ("bash", '{"command":"ls"}'))
    both = Message(
        role=Role.TOOL,
        texts=(Text(Kind.RESULT, "A", of=0), Text(Kind.RESULT, "B", of=1)),
        answers=("c0", "c1"),
    )
    steps = read_steps([user("task"), batch, both, *does("read_file", '{"path":"b.py"}', None)])
    assert [(s.number, s.message_index, s.raw, s.result, s.answer) for s in steps] == [
        (1, 1, '{ "path": "a.py" }', "A", (2, 0)),
        (2, 1, '{"command":"ls"}', "B", (2, 1)),
        (3, 3, '{"path":"b.py"}', "", None),
    ]
