"""How a call ended, told by the results of real agents."""

import pytest

from proxy.core.outcomes import Status, read_outcome
from proxy.core.tools import Act


@pytest.mark.parametrize(
    ("result", "code", "error"),
    [
        pytest.param(
            "a.c:3: error: no ';'\n\n\nCommand exited with code 2", 2, "a.c:3: error: no ';'", id="pi"
        ),
        pytest.param("Exit code 1\nE   assert 1 == 2\nFAILED t.py", 1, "FAILED t.py", id="Claude Code"),
        pytest.param(
            "Exit code: 127\nWall time: 0.1 seconds\nOutput:\nx: command not found",
            127,
            "x: command not found",
            id="Codex shell",
        ),
        pytest.param(
            "Chunk ID: a1\nWall time: 1.0 seconds\nProcess exited with code 3\n"
            "Original token count: 1\nOutput:\nboom",
            3,
            "boom",
            id="Codex exec_command",
        ),
        pytest.param(
            "Command: x\nDirectory: (root)\nOutput: fatal: no\nError: (none)\nExit Code: 128\nSignal: (none)",
            128,
            "Output: fatal: no",
            id="Qwen Code",
        ),
        pytest.param(
            "<returncode>1</returncode>\n<output>\nls: cannot access 'x'\n</output>",
            1,
            "ls: cannot access 'x'",
            id="mini-swe-agent",
        ),
        pytest.param(
            '{"output":"no such file","metadata":{"exit_code":1,"duration_seconds":0.1}}',
            1,
            "no such file",
            id="Codex JSON",
        ),
        pytest.param('{"stdout":"","stderr":"bad","returncode":4}', 4, "bad", id="JSON with a return code"),
        pytest.param("x\n[The command completed with exit code 2.]", 2, "x", id="OpenHands"),
        pytest.param("go: bad\nexit status 1", 1, "go: bad", id="Go"),
        pytest.param(
            'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\n    x()\n'
            "ValueError: no\n\n\nCommand exited with code 1",
            1,
            "ValueError: no",
            id="a Python traceback",
        ),
        pytest.param("Command exited with code 1", 1, "", id="nothing but the status"),
        pytest.param(
            "Error: Command failed: make", None, "Error: Command failed: make", id="an error without a status"
        ),
        pytest.param(
            "Command timed out after 30 seconds", None, "Command timed out after 30 seconds", id="time limit"
        ),
        pytest.param("abc\n\n\nCommand aborted", None, "Command aborted", id="aborted"),
    ],
)
def test_a_failed_command_has_its_status_and_its_telling_line(
    result: str, code: int | None, error: str
) -> None:
    outcome = read_outcome(Act.COMMAND, result)
    assert (outcome.status, outcome.exit_code, outcome.error) == (Status.FAILED, code, error)


@pytest.mark.parametrize(
    ("act", "result", "status"),
    [
        pytest.param(
            Act.COMMAND, "<returncode>0</returncode>\n<output>\n</output>", Status.OK, id="status 0"
        ),
        pytest.param(Act.COMMAND, "Exit Code: (none)\n", Status.OK, id="no status given by Qwen Code"),
        pytest.param(Act.COMMAND, "12 passed", Status.ENDED, id="pi says nothing of success"),
        pytest.param(
            Act.COMMAND, "a\n" * 40 + "exit code 1\n" + "b\n" * 40, Status.ENDED, id="a status in mid-output"
        ),
        pytest.param(Act.READ, "error_code = 1\n" * 200, Status.ENDED, id="a file that begins with error"),
        pytest.param(Act.READ, "exit code 1\n", Status.ENDED, id="a file that holds a status"),
        pytest.param(Act.READ, "File not found: a.py", Status.FAILED, id="no such file"),
        pytest.param(Act.READ, "ENOENT: no such file or directory, open 'a.py'", Status.FAILED, id="Node"),
        pytest.param(Act.WRITE, "Could not find the exact text in a.py.", Status.FAILED, id="pi edit"),
        pytest.param(
            Act.WRITE,
            "<tool_use_error>String to replace not found</tool_use_error>",
            Status.FAILED,
            id="Claude",
        ),
        pytest.param(
            Act.WRITE, "The user doesn't want to proceed with this tool use.", Status.FAILED, id="refused"
        ),
        pytest.param(Act.OTHER, '{"error": "no seats"}', Status.FAILED, id="a JSON error"),
        pytest.param(Act.OTHER, '{"success": false}', Status.FAILED, id="a JSON flag"),
        pytest.param(Act.OTHER, '{"error": null, "seats": 3}', Status.ENDED, id="no error in JSON"),
        pytest.param(Act.OTHER, "Error: user not found", Status.FAILED, id="an error in words"),
        pytest.param(Act.OTHER, "", Status.ENDED, id="empty"),
        pytest.param(Act.OTHER, None, Status.MISSING, id="no result"),
    ],
)
def test_the_status_comes_from_where_agents_put_it(act: Act, result: str | None, status: Status) -> None:
    assert read_outcome(act, result).status is status


@pytest.mark.parametrize(
    ("result", "size"),
    [
        pytest.param("a\nb\nc\n", "3 lines", id="lines"),
        pytest.param("abc", "3 chars", id="one line"),
        pytest.param("", "no output", id="empty"),
        pytest.param("(no output)", "no output", id="said to be empty"),
    ],
)
def test_the_size_is_for_a_reader(result: str, size: str) -> None:
    assert read_outcome(Act.OTHER, result).size == size


@pytest.mark.parametrize(
    ("result", "line"),
    [
        pytest.param("x\n\n[188 more lines in file. Use offset=2190 to continue]", 2190, id="pi"),
        pytest.param(
            "x\n\n... (257 more lines not shown. Use offset=180 to continue reading)", 180, id="pi, older"
        ),
        pytest.param(
            "x\n(File has more lines. Use 'offset' parameter to read beyond line 2000)", 0, id="no number"
        ),
        pytest.param("offset=5\n" * 9, 0, id="a file that holds the word"),
    ],
)
def test_a_truncated_read_says_where_it_goes_on(result: str, line: int) -> None:
    assert read_outcome(Act.READ, result).next_line == line
