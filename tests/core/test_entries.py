"""What calls are gathered under, and what is said of them, to the letter."""

import json
from typing import Any

import pytest

from proxy.core.entries import Entry, clean, gather, program_of
from proxy.core.messages import Message
from proxy.core.outcomes import Status
from proxy.core.steps import read_steps
from proxy.core.tools import Act
from tests.core.sessions import does, run


def gathered(*steps: list[Message]) -> list[Entry]:
    return list(gather(read_steps(run(*steps))))


def only(name: str, arguments: Any, result: str = "ok") -> Entry:
    (entry,) = gathered(does(name, arguments, result))
    return entry


def test_calls_that_differ_only_where_a_label_is_cut_are_two() -> None:
    first, second = ("x" * 1_300 + middle + "y" * 1_300 for middle in "ab")
    entries = gathered(*(does("bash", {"command": command}) for command in (first, second, first)))
    assert [entry.calls for entry in entries] == [1, 2]
    assert entries[0].label == entries[1].label


def test_a_file_is_one_entry_however_long_its_name() -> None:
    path = "x" * 2_000
    entries = gathered(*(does("read", {"path": path, "offset": first, "limit": 5}) for first in (1, 6)))
    assert [(entry.calls, entry.spans) for entry in entries] == [(2, ((1, 10),))]


@pytest.mark.parametrize(
    ("path", "group"),
    [
        pytest.param("/w/a.py", "/w", id="a file"),
        pytest.param("a.py", ".", id="a name alone"),
        pytest.param("src/X", "src", id="a short name"),
        pytest.param("src/dir/", "src", id="a folder"),
    ],
)
def test_files_are_counted_by_folder(path: str, group: str) -> None:
    assert only("read", {"path": path}).group == group
    assert only("write", {"path": path}).group == group


@pytest.mark.parametrize(
    ("name", "arguments", "label", "group"),
    [
        pytest.param(
            "grep",
            {"pattern": "x", "paths": ["a", "b", "c", "d"]},
            'grep "x" in a, b, c',
            "grep",
            id="places",
        ),
        pytest.param("grep", {"pattern": "x", "glob": "*.py"}, 'grep "x" *.py', "grep", id="a glob"),
        pytest.param(
            "grep", {"pattern": "x", "include": "*.py", "glob": "*"}, 'grep "x" *.py', "grep", id="files"
        ),
        pytest.param("bash", {"command": "ls -l"}, "ls -l", "ls", id="a command without a folder"),
        pytest.param("grep", {"pattern": "x", "include": ["*.py"]}, 'grep "x"', "grep", id="no text"),
        pytest.param("glob", {"glob": "*.py"}, 'glob "*.py"', "glob", id="a glob that is the query"),
        pytest.param("fetch", {"urls": list("abcdef")}, "a b c d e", "fetch", id="addresses"),
        pytest.param("bash", {"command": "ls -l", "cwd": "/w"}, "ls -l (in /w)", "ls", id="a command"),
        pytest.param("todowrite", {"todos": []}, "todowrite", "todowrite", id="a to-do list"),
        pytest.param("ponder", {"a": "x", "b": 2}, "ponder(a=x, b=2)", "ponder", id="another call"),
        pytest.param("ponder", {"n" * 31: "x"}, f"ponder({'n' * 30}=x)", "ponder", id="a long name"),
        pytest.param("ponder", {"a": "x" * 60}, f"ponder(a={'x' * 60})", "ponder", id="sixty letters"),
        pytest.param("ponder", {"a": "x" * 61}, f"ponder(a={'x' * 58} …)", "ponder", id="sixty-one"),
        pytest.param("ponder", "some words", "ponder(some words)", "ponder", id="no JSON"),
        pytest.param(
            "ponder",
            {"a": {"b": {"c": {"d": 1}}}},
            "ponder(a={b: {c: {…}}})",
            "ponder",
            id="objects in objects",
        ),
        pytest.param("ponder", {"a": [[[1]]]}, "ponder(a=[[[…]]])", "ponder", id="lists in lists"),
        pytest.param("ponder", {"a": [[1, "x"]]}, "ponder(a=[[1, x]])", "ponder", id="a list in a list"),
        pytest.param(
            "ponder", {"a": list(range(7))}, "ponder(a=[0, 1, 2, 3, 4, 5])", "ponder", id="a long list"
        ),
        pytest.param(
            "ponder",
            {"a": dict.fromkeys("abcdefg", 1)},
            "ponder(a={a: 1, b: 1, c: 1, d: 1, e: 1, f: 1})",
            "ponder",
            id="a large object",
        ),
        pytest.param(
            "ponder", {"a": None, "b": True, "c": 1.5}, "ponder(a=null, b=true, c=1.5)", "ponder", id="plain"
        ),
    ],
)
def test_what_a_call_is_called(name: str, arguments: Any, label: str, group: str) -> None:
    entry = only(name, arguments)
    assert (entry.label, entry.group) == (label, group)


def test_what_was_done_to_a_file_and_how_it_went() -> None:
    (entry,) = gathered(
        does("write", {"path": "a"}),
        *[does("edit", {"path": "a"})] * 2,
        does("edit", {"path": "a"}, "Could not find the text"),
    )
    assert (entry.act, entry.calls, entry.failed, entry.newest) == (Act.WRITE, 4, 1, 4)
    assert entry.verbs == (("written", 1), ("edited", 2))
    assert entry.outcome.status is Status.FAILED


def test_a_label_is_one_line() -> None:
    assert clean("a\n\n  b \n") == "a \\n b"


def test_a_label_is_cut_to_its_ends() -> None:
    assert clean("a" * 1_200 + "c" * 400) == "a" * 1_200 + "c" * 400
    assert clean("a" * 1_200 + "b" + "c" * 400) == "a" * 1_200 + " … " + "c" * 400


@pytest.mark.parametrize(
    ("command", "program"),
    [
        pytest.param("", "?", id="nothing"),
        pytest.param("cd /w && A=1 make all", "make all", id="after a change of folder and an assignment"),
        pytest.param("A=1", "A=1", id="an assignment alone"),
        pytest.param("A=1 " * 9 + "ls -l", "ls", id="many assignments"),
        pytest.param("/usr/bin/make", "make", id="a path"),
        pytest.param('"./run" it', "run", id="in quotes"),
        pytest.param("Xrun it", "Xrun", id="any letter"),
        pytest.param("( ls )", "(", id="no name"),
        pytest.param("git status", "git status", id="a subcommand"),
        pytest.param("git status -s", "git status", id="and what follows it"),
        pytest.param("git -C a", "git", id="an option is no subcommand"),
        pytest.param("git", "git", id="none"),
        pytest.param("x" * 31, "x" * 30, id="a long name"),
        pytest.param(f"A={'b' * 1_996} ls", "l", id="what stands within two thousand characters"),
    ],
)
def test_the_program_of_a_command(command: str, program: str) -> None:
    assert program_of(command) == program


@pytest.mark.parametrize(("chars", "folder"), [(2_000, "/w"), (2_001, "")])
def test_the_folder_that_a_command_changes_to(chars: int, folder: str) -> None:
    assert only("bash", {"command": f"cd{'/w;'.rjust(chars - 2)}ls"}).folder == folder


def goes_on(line: int) -> str:
    return f"x\n[9 more lines. Use offset={line} to continue]"


@pytest.mark.parametrize(
    ("reads", "spans"),
    [
        pytest.param([({}, "x")], ((1, 0),), id="all"),
        pytest.param([({"offset": 40}, goes_on(40))], ((40, 0),), id="it goes on where it began"),
        pytest.param([({"offset": 40}, goes_on(41))], ((40, 40),), id="one line"),
        pytest.param([({"limit": 40}, goes_on(40))], ((1, 39),), id="one line less than was asked for"),
        pytest.param([({"limit": 40}, goes_on(41))], ((1, 40),), id="all that was asked for"),
        pytest.param([({}, "x"), ({"offset": 50, "limit": 11}, "x")], ((1, 0),), id="all, and a part"),
        pytest.param(
            [({"limit": 10}, "x"), ({"offset": 12, "limit": 4}, "x")],
            ((1, 10), (12, 15)),
            id="a line between",
        ),
        pytest.param(
            [({"limit": 10}, "x"), ({"offset": 11, "limit": 4}, "x")], ((1, 14),), id="side by side"
        ),
        pytest.param([({"limit": 5}, "x"), ({"offset": 3}, "x")], ((1, 0),), id="to the end"),
        pytest.param([({"limit": 1}, "x"), ({"offset": 2, "limit": 2}, "x")], ((1, 3),), id="the first line"),
        pytest.param(
            [({"limit": 10}, "x"), ({"offset": 3, "limit": 2}, "x")], ((1, 10),), id="one within another"
        ),
        pytest.param([({"limit": 5}, "x"), ({}, "File not found")], ((1, 5),), id="one that failed"),
    ],
)
def test_the_lines_that_were_read(reads: list[tuple[dict[str, int], str]], spans: tuple[Any, ...]) -> None:
    (entry,) = gathered(*(does("read", {"path": "a", **lines}, result) for lines, result in reads))
    assert entry.spans == spans


def test_only_reads_have_lines() -> None:
    assert only("write", {"path": "a"}).spans == ()
    assert only("bash", {"command": "ls"}).spans == ()


def test_a_call_as_it_came_is_told_as_json() -> None:
    assert only("ponder", json.dumps({"a": "x"})).label == "ponder(a=x)"
