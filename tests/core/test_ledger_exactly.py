"""How the ledger gives way to a room that shrinks, and what it says at each step. A token is a character."""

import re
from itertools import pairwise

import pytest

from proxy.core.ledger import render_ledger, result_lines
from proxy.core.messages import Message
from tests.core.sessions import does, run

ROOT = "/home/somebody/project/"
LONG = "d" * 120
HEAD = "[n]: number of the newest such call; x3: three times."


def texts(*steps: list[Message]) -> list[str]:
    """What the ledger says from plenty of room to none, each text once."""
    messages = run(*steps)
    said = [render_ledger(messages, 100_000, len)]
    while said[-1]:
        # A text that fits stays until its room is less than it takes.
        said.append(render_ledger(messages, len(said[-1]) - 1, len))
    return said


READS = [
    *(does("read", {"path": f"{ROOT}{name}.py"}) for name in "abcdefgh"),
    does("read", {"path": f"{ROOT}{LONG}/x.py"}, "Error: " + "e" * 120),
]
COMMANDS = [
    *(does("bash", {"command": f"cd {ROOT} && make {name}"}) for name in "abcdefgh"),
    does("bash", {"command": f"cd {ROOT} && make {LONG}"}, "Error: " + "e" * 120 + "\nExit code 2"),
]
ROOT_LINE = f"Paths of files are below {ROOT}"
HOME_LINE = f"@ in commands: cd {ROOT} &&"


@pytest.mark.parametrize(
    ("steps", "first_lines", "whole"),
    [
        pytest.param(READS, [ROOT_LINE], [f"- {LONG}/x.py → failed: "], id="a root"),
        pytest.param(COMMANDS, [HOME_LINE], [f"- @ make {LONG} → exit 2: "], id="a home"),
        pytest.param(
            [*READS, *COMMANDS],
            [ROOT_LINE, HOME_LINE],
            [f"- {LONG}/x.py → failed: ", f"- @ make {LONG} → exit 2: "],
            id="both",
        ),
    ],
)
def test_paths_are_shortened_before_labels_are(
    steps: list[list[Message]], first_lines: list[str], whole: list[str]
) -> None:
    wide, rooted, narrow, *_ = texts(*steps)
    assert wide.count(ROOT) >= len(steps)
    for text in (rooted, narrow):
        assert text.splitlines()[1 : 1 + len(first_lines)] == first_lines
    for line in whole:
        assert f"\n{line}Error: {'e' * 120} [" in rooted
        assert line not in narrow
    assert narrow.count(f"Error: {'e' * 73} … [") == len(whole)
    assert "merged" not in narrow


def test_without_either_the_labels_are_shortened_at_once() -> None:
    wide, narrow, *_ = texts(does("bash", {"command": f"make {LONG}"}), does("bash", {"command": "ls"}))
    assert f"- make {LONG} → 2 chars [1]" in wide
    assert f"- make {'d' * 69} … {'d' * 36} → 2 chars [1]" in narrow
    assert narrow.startswith(f"2 calls: 2 commands. {HEAD}\nCommands:\n")


def test_the_room_is_filled_to_the_token() -> None:
    for length in range(150, 166):
        messages = does("bash", {"command": "x" * length})
        text = render_ledger(messages, 100_000, len)
        assert render_ledger(messages, len(text), len) == text
        assert render_ledger(messages, len(text) - 1, len) != text
        if len(text) % 16 == 0:
            # What is far longer than its room is not even counted.
            assert render_ledger(messages, len(text) // 16, lambda _: 0) == text


def test_what_looks_gives_way_first_and_what_runs_outlives_the_rest() -> None:
    shown = [
        set(re.findall(r"\[(\d+)\]$", text, re.MULTILINE))
        for text in texts(
            *(does("bash", {"command": f"make {n} {'x' * 60}"}) for n in range(6)),
            does("webfetch", {"url": "https://a.example/" + "y" * 60}),
            *(does("ponder", {"n": n, "a": "w" * 50}) for n in range(3)),
            does("bash", {"command": "ls -l " + "z" * 70}),
        )
    ]
    went = [int(number) for before, after in pairwise(shown) for number in before - after]
    assert went == [1, 2, 3, 8, 4, 5, 9, 11, 6, 7, 10]


def test_the_last_that_is_said_is_how_many_calls_there_were() -> None:
    *_, merged, tiny, totals, nothing = texts(*READS)
    assert merged.splitlines()[:4] == [
        f"9 calls: 9 reads. {HEAD}",
        ROOT_LINE,
        "Files read:",
        f"- earlier, merged: 9 reads (. x8, {'d' * 40} … {'d' * 20} x1; 1 failed)",
    ]
    assert tiny.splitlines() == [
        f"9 calls: 9 reads. {HEAD}",
        "Files read:",
        "- earlier, merged: 9 reads (/home/somebody/project x8, /home/somebody/p … dddddddd x1; 1 failed)",
    ]
    assert totals == "9 calls: 9 reads."
    assert nothing == ""


@pytest.mark.parametrize(
    ("steps", "totals"),
    [
        pytest.param([does("read", {"path": "a"})], "1 call: 1 read.", id="one"),
        pytest.param([does("read", {"path": "a"})] * 2, "2 calls: 2 reads.", id="two"),
        pytest.param(
            [does("bash", {"command": "ls"}), *[does("read", {"path": "a"})] * 2],
            "3 calls: 2 reads, 1 command.",
            id="the most first",
        ),
    ],
)
def test_the_calls_are_counted_by_kind(steps: list[list[Message]], totals: str) -> None:
    *_, last, _ = texts(*steps)
    assert last == totals
    assert render_ledger(run(*steps), 2, lambda _: 1) == (totals if len(totals) <= 32 else "")


@pytest.mark.parametrize(("number", "older"), [(20, []), (21, ["- 1 older ones"]), (25, ["- 5 older ones"])])
def test_twenty_ids_are_listed(number: int, older: list[str]) -> None:
    steps = [
        does("exec_command", {"cmd": f"make {n}"}, f"running with session ID {n}")
        for n in range(1, number + 1)
    ]
    lines = render_ledger(run(*steps), 100_000, len).splitlines()
    at = lines.index("Ids still open, or resumable:")
    assert lines[at + 1 :] == [*older, *(f"- session {n} [{n}]" for n in range(number - 19, number + 1))]


@pytest.mark.parametrize(
    ("command", "status", "is_told"),
    [
        pytest.param("make", 1, True, id="a failure"),
        pytest.param("grep x y", 1, False, id="no match is an answer"),
        pytest.param("grep x y", 2, True, id="grep failed"),
        pytest.param("make | tee x | grep y", 1, False, id="the last of a pipe answers"),
        pytest.param("grep y x | tee z | make", 1, True, id="the last of a pipe fails"),
    ],
)
def test_the_newest_failure_is_told_again_at_the_end(command: str, status: int, is_told: bool) -> None:
    text = render_ledger(does("bash", {"command": command}, f"no\nExit code {status}"), 100_000, len)
    assert ("Newest failure that no later success answered:" in text) is is_told


def test_each_result_has_its_lines_for_itself() -> None:
    messages = run(
        does("read", {"path": "a"}),
        does("todowrite", {"todos": []}),
        does("exec_command", {"cmd": "make"}, "Process running with session ID 42"),
        does("bash", {"command": "x" * 120}, "Error: " + "e" * 170 + "\nExit code 2"),
        does("ponder", {"a": "b"}, None),
    )
    assert result_lines(messages) == {
        (1, 0): "- a",
        (5, 0): "- make → 34 chars\n- session 42",
        (7, 0): f"- {'x' * 74} … {'x' * 36} → exit 2: Error: {'e' * 151} …",
    }
