"""Which jobs are still open, at every limit. More of the agents' own forms are in `test_ledger.py`."""

from typing import Any

import pytest

from proxy.core.jobs import Job, find_open
from proxy.core.messages import Kind, Message, Role, Text
from proxy.core.steps import read_steps
from tests.core.sessions import does, run, user


def still_open(*steps: list[Message]) -> list[str]:
    messages = run(*steps)
    return [job.id for job in find_open(read_steps(messages), messages)]


def session(job_id: str) -> list[Message]:
    return does("exec_command", {"cmd": "make"}, f"Process running with session ID {job_id}")


def kills(**arguments: Any) -> list[Message]:
    return does("KillShell", arguments, "killed")


LONG = "b" + "1" * 79


def test_a_job_has_a_kind_an_id_and_the_call_that_started_it() -> None:
    messages = run(does("read", {"path": "a"}), session("42"))
    assert find_open(read_steps(messages), messages) == (Job(kind="session", id="42", by=2),)


def test_only_the_edges_of_a_result_are_read() -> None:
    told = "\nProcess running with session ID 42\n"
    assert still_open(does("bash", {"command": "x"}, told + "x" * 5_000)) == ["42"]
    assert still_open(does("bash", {"command": "x"}, "x" * 5_000 + told)) == ["42"]
    assert still_open(does("bash", {"command": "x"}, "x" * 2_000 + told + "x" * 3_000)) == []


def test_what_ends_one_leaves_those_after_it() -> None:
    assert still_open(session("41"), kills(id="41"), session("42")) == ["42"]


@pytest.mark.parametrize(
    ("job_id", "arguments", "is_open"),
    [
        pytest.param("b1", {"id": "b1"}, False, id="a text"),
        pytest.param("b1", {"ids": ["a", "b1"]}, False, id="in a list"),
        pytest.param("b1", {"id": None, "other": {}}, True, id="null and an object"),
        pytest.param(LONG, {"id": LONG}, False, id="the longest id"),
        pytest.param("42", {"id": 42}, False, id="a number"),
        pytest.param("999999999999", {"id": 999_999_999_999}, False, id="the largest number"),
        pytest.param("1000000000000", {"id": 10**12}, True, id="a number too large"),
        pytest.param("1.5", {"id": 1.5}, True, id="a fraction is no id"),
    ],
)
def test_a_call_that_ends_names_the_job(job_id: str, arguments: dict[str, Any], is_open: bool) -> None:
    assert still_open(session(job_id), kills(**arguments)) == ([job_id] if is_open else [])


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        pytest.param({"run_in_background": True}, ["1234"], id="in the background"),
        pytest.param({"detach": True}, ["1234"], id="detached"),
        pytest.param({"run_in_background": False}, [], id="not in the background"),
        pytest.param({}, [], id="nothing said of it"),
    ],
)
def test_a_command_in_the_background_names_its_process(arguments: dict[str, Any], found: list[str]) -> None:
    assert still_open(does("Bash", {"command": "x", **arguments}, "pid: 1234")) == found


@pytest.mark.parametrize(
    ("told", "found"),
    [
        *(
            pytest.param(f"{kind}_id: a1", [], id=f"a {kind} may be data")
            for kind in ("task", "session", "agent", "shell", "bash", "terminal")
        ),
        pytest.param("job_id: a1", ["a1"], id="a job"),
        pytest.param("process id: a1", ["a1"], id="a process"),
        pytest.param("task_id: a1, job_id: a2", ["a2"], id="data beside a job"),
        pytest.param("job_id: 1X", ["1X"], id="an id to its last letter"),
        pytest.param("job_id: a1.", ["a1"], id="without the end of the sentence"),
        pytest.param("job id of the caller", [], id="prose"),
    ],
)
def test_what_a_tool_of_unknown_kind_started(told: str, found: list[str]) -> None:
    assert still_open(does("ponder", {}, told)) == found


@pytest.mark.parametrize(
    ("command", "is_open"),
    [
        pytest.param("kill 1234", False, id="kill"),
        pytest.param("kill -TERM -1234", False, id="a group of processes"),
        pytest.param("kill -X1234", True, id="a signal is no process"),
        pytest.param("kill 123", True, id="another"),
        pytest.param("kill -1234 9", True, id="a signal of that number"),
        pytest.param("kill -9 -X1234", True, id="no process"),
        pytest.param("kill -9 123 -1234; kill 5", False, id="several"),
        pytest.param("pkill 1234", True, id="by name"),
        pytest.param(" kill 1234".rjust(20_000, "x"), False, id="within twenty thousand characters"),
        pytest.param(" kill 1234".rjust(20_001, "x"), True, id="not within them"),
    ],
)
def test_a_command_that_kills(command: str, is_open: bool) -> None:
    started = does("run_shell_command", {"command": "make &"}, "Background PIDs: 1234")
    assert still_open(started, does("bash", {"command": command}, "")) == (["1234"] if is_open else [])


NOTICE = "<task-id>b1</task-id>\n<status>completed</status>"


@pytest.mark.parametrize(
    ("message", "is_open"),
    [
        pytest.param(user(NOTICE), False, id="a notice"),
        pytest.param(user(NOTICE.replace("b1", "b2")), True, id="of another"),
        pytest.param(Message(role=Role.USER, texts=(Text(Kind.REASONING, NOTICE),)), True, id="reasoning"),
        pytest.param(Message(role=Role.ASSISTANT, texts=(Text(Kind.SAID, NOTICE),)), True, id="a model's"),
    ],
)
def test_a_notice_ends_a_job(message: Message, is_open: bool) -> None:
    assert still_open(session("b1"), [message]) == (["b1"] if is_open else [])


def test_a_notice_from_before_does_not() -> None:
    assert still_open([user(NOTICE)], session("b1")) == ["b1"]


@pytest.mark.parametrize(
    ("step", "is_open"),
    [
        pytest.param(does("KillShell", {"id": "b1"}, "Error: no such shell"), True, id="a kill that failed"),
        pytest.param(does("BashOutput", {"id": "b1"}, "running"), True, id="a look at it"),
        pytest.param(does("BashOutput", {"id": "b1"}, "exited with code 0"), False, id="a look at its end"),
        pytest.param(does("BashOutput", {"id": "b2"}, "exited with code 0"), True, id="at another's end"),
    ],
)
def test_a_later_result_says_how_it_stands(step: list[Message], is_open: bool) -> None:
    assert still_open(session("b1"), step) == (["b1"] if is_open else [])


def test_a_result_may_open_several_and_end_at_once() -> None:
    assert still_open(does("bash", {"command": "a & b &"}, "Background PIDs: 12, 13")) == ["12", "13"]
    assert still_open(does("bash", {"command": "a"}, "running with session ID 42\nexited with code 0")) == []


def test_a_call_that_sounds_like_an_end_may_start_something() -> None:
    assert still_open(does("close_books", {}, "job_id: j1")) == ["j1"]
