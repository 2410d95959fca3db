"""What is read of a result, word for word and at exactly which limit."""

import json
from typing import Any

import pytest

from proxy.core.outcomes import Outcome, Status, read_outcome
from proxy.core.tools import Act


@pytest.mark.parametrize(
    ("act", "result", "outcome"),
    [
        pytest.param(
            Act.COMMAND,
            "make\nerror: none\nExit code: 0",
            Outcome(status=Status.OK, exit_code=0, size="3 lines"),
            id="a success has no error",
        ),
        pytest.param(
            Act.COMMAND, "12 passed", Outcome(status=Status.ENDED, size="9 chars"), id="a command that ended"
        ),
        pytest.param(
            Act.COMMAND,
            "x\n[188 more lines. Use offset=2190 to continue]",
            Outcome(status=Status.ENDED, size="2 lines"),
            id="only a read goes on",
        ),
        pytest.param(
            Act.READ,
            "x\n[188 more lines. Use offset=2190 to continue]",
            Outcome(status=Status.ENDED, size="2 lines", next_line=2190),
            id="a read that goes on",
        ),
        pytest.param(
            Act.JOB,
            "Exit code 3\n" + "a\n" * 2000,
            Outcome(status=Status.FAILED, exit_code=3, error="a", size="2001 lines"),
            id="a job's status before much output",
        ),
        pytest.param(
            Act.COMMAND,
            "a\n" * 2000 + "Exit code 3",
            Outcome(status=Status.FAILED, exit_code=3, error="a", size="2001 lines"),
            id="a status behind much output",
        ),
        pytest.param(
            Act.COMMAND,
            "Error: no\n" + "a\n" * 2000,
            Outcome(status=Status.FAILED, error="Error: no", size="2001 lines"),
            id="a command that begins with an error, however much it printed",
        ),
        pytest.param(
            Act.READ,
            "Error: ".ljust(600, "x"),
            Outcome(status=Status.FAILED, error="Error: " + "x" * 151 + " …", size="600 chars"),
            id="a refusal of 600 characters",
        ),
        pytest.param(
            Act.READ,
            "Error: ".ljust(601, "x"),
            Outcome(status=Status.ENDED, size="601 chars"),
            id="a file of 601 that begins with error",
        ),
        pytest.param(Act.READ, None, Outcome(status=Status.MISSING), id="no result"),
    ],
)
def test_all_that_is_read_of_a_result(act: Act, result: str | None, outcome: Outcome) -> None:
    assert read_outcome(act, result) == outcome


@pytest.mark.parametrize(
    ("status", "good"),
    [(Status.OK, True), (Status.ENDED, True), (Status.FAILED, False), (Status.MISSING, False)],
)
def test_what_counts_as_good(status: Status, good: bool) -> None:
    assert Outcome(status=status).is_good is good


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        pytest.param({"exit_code": 3}, 3, id="exit_code"),
        pytest.param({"exitCode": 3}, 3, id="exitCode"),
        pytest.param({"returncode": 3}, 3, id="returncode"),
        pytest.param({"exit": 3}, 3, id="exit"),
        pytest.param({"metadata": {"exit": 3}}, 3, id="among the metadata"),
        pytest.param({"metadata": {"exit": 3}, "exit": 4}, 4, id="its own before the metadata's"),
        pytest.param({"exit": 4, "exit_code": "?", "exitCode": 3}, 3, id="the first that is a number"),
        pytest.param({"exit_code": True}, None, id="a flag is no code"),
        pytest.param({"exit_code": -9}, -9, id="a signal"),
        pytest.param({"exit_code": 9_999_999_999}, 9_999_999_999, id="ten digits"),
        pytest.param({"exit_code": 10_000_000_000}, None, id="eleven digits"),
        pytest.param({"exit_code": -10_000_000_000}, None, id="eleven digits below zero"),
    ],
)
def test_the_exit_code_of_a_json_result(fields: dict[str, Any], code: int | None) -> None:
    # Not a command, whose text would be searched for one too.
    assert read_outcome(Act.OTHER, json.dumps(fields)).exit_code == code


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        pytest.param({"is_error": True}, Status.FAILED, id="an error"),
        pytest.param({"is_error": False}, Status.ENDED, id="no error"),
        pytest.param({"success": True}, Status.ENDED, id="a success that may have been none"),
        pytest.param({"success": None, "is_error": None, "error": ""}, Status.ENDED, id="nothing said"),
    ],
)
def test_the_flags_of_a_json_result(fields: dict[str, Any], status: Status) -> None:
    assert read_outcome(Act.OTHER, json.dumps(fields)).status is status


@pytest.mark.parametrize(
    ("fields", "error", "size"),
    [
        pytest.param({"output": "a\nboom"}, "boom", "2 lines", id="output"),
        pytest.param({"stdout": "a\nboom"}, "boom", "2 lines", id="stdout"),
        pytest.param({"content": "a\nboom"}, "boom", "2 lines", id="content"),
        pytest.param({"result": "a\nboom"}, "boom", "2 lines", id="result"),
        pytest.param({"stderr": "a\nboom"}, "boom", "2 lines", id="stderr"),
        pytest.param(
            {"stderr": "5", "result": "4", "content": "3", "stdout": "2", "output": "1"},
            "5",
            "5 lines",
            id="all of them in one order, whatever theirs",
        ),
        pytest.param(
            {"error": "seat not found", "output": "row not found"},
            "seat not found",
            "2 lines",
            id="an error first",
        ),
        pytest.param(
            {"error": "seat taken", "output": "row not found"},
            "seat taken",
            "2 lines",
            id="however it is put",
        ),
        pytest.param({"error": " ", "output": "a"}, "a", "1 chars", id="an error that says nothing"),
        pytest.param({"content": ["boom"], "result": "a"}, "a", "1 chars", id="what is no text is left out"),
        pytest.param(
            {"error": {"code": 3}},
            '{"is_error": true, "error": {"code": 3}}',
            "40 chars",
            id="no text at all",
        ),
    ],
)
def test_the_text_of_a_json_result(fields: dict[str, Any], error: str, size: str) -> None:
    outcome = read_outcome(Act.OTHER, json.dumps({"is_error": True, **fields}))
    assert (outcome.status, outcome.error, outcome.size) == (Status.FAILED, error, size)


@pytest.mark.parametrize(
    ("result", "code"),
    [
        pytest.param(' \n {"exit_code": 3}', 3, id="space before it"),
        pytest.param('{"exit_code": 3'.ljust(999_999) + "}", 3, id="a million characters"),
        pytest.param('{"exit_code": 3'.ljust(1_000_000) + "}", None, id="one more"),
        pytest.param('{"exit_code": 3', None, id="no end"),
        pytest.param("{" * 3, None, id="no JSON"),
        pytest.param('{"a":' * 100_000, None, id="hostile nesting"),
        pytest.param('[{"exit_code": 3}]', None, id="a list"),
    ],
)
def test_json_is_read_up_to_a_million_characters(result: str, code: int | None) -> None:
    outcome = read_outcome(Act.OTHER, result)
    assert (outcome.exit_code, outcome.status) == (code, Status.FAILED if code else Status.ENDED)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        pytest.param(
            "a.c:3: error: no ';'\na.c:4: error: no '}'", "a.c:3: error: no ';'", id="the first of two"
        ),
        pytest.param("tests failed\nValueError: no", "ValueError: no", id="an exception before a word"),
        pytest.param(
            "Traceback (most recent call last):\n  File 'a.py'\n    Error(1).no()\nAttributeError: no",
            "AttributeError: no",
            id="the last of a traceback",
        ),
        pytest.param(
            "  Traceback (most recent call last):\n    Error(1).no()\nAttributeError: no",
            "AttributeError: no",
            id="of one that is indented",
        ),
        pytest.param(
            "starting\nTraceback (most recent call last):\n    Error(1).no()\nAttributeError: no",
            "AttributeError: no",
            id="of one behind other output",
        ),
        pytest.param(
            "a " * 196 + " failed\nlast", "a " * 79 + " …", id="a word that ends within 400 characters"
        ),
        pytest.param("a " * 197 + " failed\nlast", "last", id="a word that ends past them"),
        pytest.param(
            "<tool_use_error>no such file</tool_use_error>", "no such file", id="Claude Code's mark"
        ),
        pytest.param("<error>no such file</error>", "no such file", id="the mark of an error"),
        pytest.param("<output>no such file</output>", "no such file", id="of output"),
        pytest.param("<stderr> no such file </stderr>", "no such file", id="of the second output, and space"),
        pytest.param("error: ".ljust(160, "x"), "error: ".ljust(160, "x"), id="160 characters"),
        pytest.param("error: ".ljust(161, "x"), "error: ".ljust(158, "x") + " …", id="161 cut to 160"),
    ],
)
def test_the_line_that_tells_a_failure(body: str, error: str) -> None:
    assert read_outcome(Act.COMMAND, f"{body}\nExit code: 1").error == error


@pytest.mark.parametrize(
    ("result", "size"),
    [
        pytest.param("a\nb", "2 lines", id="two lines"),
        pytest.param("\na\n", "1 chars", id="one line with space around it"),
        pytest.param("</Empty/>", "no output", id="a mark that says so"),
        pytest.param("Tool ran without output or errors.", "no output", id="a sentence that says so"),
        pytest.param("XEMPTYX", "7 chars", id="another word"),
    ],
)
def test_the_size_of_little(result: str, size: str) -> None:
    assert read_outcome(Act.OTHER, result).size == size


@pytest.mark.parametrize(
    ("result", "line"),
    [
        pytest.param("x\n[188 more lines, offset=41]", 41, id="more"),
        pytest.param("x\n[offset=41 to continue]", 41, id="continue"),
        pytest.param("x\n[truncated at offset=41]", 41, id="truncated"),
        pytest.param("x\n[at offset=41]", 0, id="none of these words"),
        pytest.param("x\n[188 more lines, start_line=41]", 41, id="start_line"),
        pytest.param("188 more lines:\noffset=41", 41, id="over two lines"),
        pytest.param("more: offset=41\na\nb", 41, id="the last line but two"),
        pytest.param("more: offset=41\na\nb\nc", 0, id="the last line but three"),
    ],
)
def test_where_a_read_goes_on(result: str, line: int) -> None:
    assert read_outcome(Act.READ, result).next_line == line


def test_what_only_begins_like_json_tells_its_error_like_any_text() -> None:
    outcome = read_outcome(Act.COMMAND, "{ cat a; cat b; }\nb\nExit code: 3")
    assert (outcome.status, outcome.exit_code, outcome.error) == (Status.FAILED, 3, "b")
