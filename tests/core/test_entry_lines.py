"""The lines of the ledger, to the letter."""

from typing import Any

import pytest

from proxy.core.entries import Entry
from proxy.core.entry_lines import (
    Style,
    common_home,
    common_root,
    counted,
    entry_line,
    entry_text,
    merged_line,
    outcome_text,
    shorten,
)
from proxy.core.outcomes import Outcome, Status
from proxy.core.tools import Act

ENDED = Outcome(status=Status.ENDED, size="2 lines")
FAILED = Outcome(status=Status.FAILED, error="no such file")
MISSING = Outcome(status=Status.MISSING)
STYLE = Style(label_chars=100, error_chars=100)


def entry(act: Act, label: str = "a", **changes: Any) -> Entry:
    given = {"group": label, "calls": 1, "failed": 0, "newest": 7, "outcome": ENDED}
    return Entry(act=act, label=label, **(given | changes))


@pytest.mark.parametrize(
    ("made", "style", "text"),
    [
        pytest.param(entry(Act.READ), {}, "a", id="a read"),
        pytest.param(entry(Act.READ, calls=2), {}, "a x2", id="two reads"),
        pytest.param(entry(Act.READ, spans=((1, 0),)), {}, "a", id="a read of all"),
        pytest.param(entry(Act.READ, spans=((1, 9), (20, 0))), {}, "a lines 1-9, 20-end", id="lines"),
        pytest.param(
            entry(Act.READ, spans=tuple((n, n) for n in range(1, 9))),
            {},
            "a lines " + ", ".join(f"{n}-{n}" for n in range(1, 9)),
            id="eight spans",
        ),
        pytest.param(
            entry(Act.READ, spans=tuple((n, n) for n in range(1, 10))),
            {},
            "a lines " + ", ".join(f"{n}-{n}" for n in range(1, 9)) + ", …",
            id="nine spans",
        ),
        pytest.param(entry(Act.WRITE, calls=3), {}, "a x3", id="writes without verbs"),
        pytest.param(
            entry(Act.WRITE, verbs=(("written", 1), ("edited", 2), ("moved", 3))),
            {},
            "a: written, edited x2, moved x3",
            id="verbs",
        ),
        pytest.param(entry(Act.COMMAND), {}, "a → 2 lines", id="a command"),
        pytest.param(
            entry(Act.COMMAND, "cd /w && make -C /w", folder="/w"),
            {"home": "/w"},
            "@ make -C /w → 2 lines",
            id="a command at home",
        ),
        pytest.param(
            entry(Act.COMMAND, "cd /w ; Xx & ", folder="/w"),
            {"home": "/w"},
            "@ Xx &  → 2 lines",
            id="as it is",
        ),
        pytest.param(
            entry(Act.COMMAND, "cd /v && make", folder="/v"),
            {"home": "/w"},
            "cd /v && make → 2 lines",
            id="a command elsewhere",
        ),
        pytest.param(entry(Act.READ, "/w/src/a"), {"root": "/w/"}, "src/a", id="below the root"),
        pytest.param(entry(Act.READ, "/w"), {"root": "/w/"}, ".", id="the root itself"),
        pytest.param(entry(Act.READ, "/v/a"), {"root": "/w/"}, "/v/a", id="not below the root"),
        pytest.param(entry(Act.READ, "a" * 20), {"label_chars": 9}, "aaaaaa … aaa", id="a long label"),
        pytest.param(entry(Act.READ, outcome=FAILED, failed=1), {}, "a → failed: no such file", id="failed"),
        pytest.param(
            entry(Act.READ, outcome=FAILED, failed=2, calls=3),
            {},
            "a x3 → newest failed: no such file (1 failed before)",
            id="the newest failed, and one before",
        ),
        pytest.param(
            entry(Act.READ, outcome=FAILED, failed=3, calls=3),
            {},
            "a x3 → failed: no such file (2 failed before)",
            id="all failed",
        ),
        pytest.param(
            entry(Act.READ, outcome=FAILED, failed=1, calls=2),
            {},
            "a x2 → newest failed: no such file",
            id="the newest alone failed",
        ),
        pytest.param(
            entry(Act.COMMAND, outcome=FAILED, failed=2, calls=3),
            {},
            "a x3 → failed: no such file (1 failed before)",
            id="a command failed again",
        ),
        pytest.param(entry(Act.READ, failed=1, calls=2), {}, "a x2 (1 failed)", id="one failed before"),
        pytest.param(
            entry(Act.TODO, outcome=MISSING), {}, "a (newest: no result)", id="the newest has no result"
        ),
        pytest.param(
            entry(Act.WRITE, outcome=MISSING, failed=1, calls=2),
            {},
            "a x2 (1 failed) (newest: no result)",
            id="one failed, and the newest has no result",
        ),
        pytest.param(entry(Act.COMMAND, outcome=MISSING), {}, "a → no result", id="a command without"),
        pytest.param(
            entry(Act.COMMAND, failed=2, calls=3),
            {},
            "a x3 → 2 lines (2 failed before)",
            id="a command at last",
        ),
    ],
)
def test_what_a_line_says(made: Entry, style: dict[str, Any], text: str) -> None:
    assert entry_text(made, Style(**({"label_chars": 100, "error_chars": 100} | style))) == text


def test_a_line_ends_with_its_newest_call() -> None:
    assert entry_line(entry(Act.READ), STYLE) == "- a [7]"


@pytest.mark.parametrize(
    ("outcome", "text"),
    [
        pytest.param(MISSING, "no result", id="missing"),
        pytest.param(FAILED, "failed: no such…", id="failed"),
        pytest.param(Outcome(status=Status.FAILED), "failed", id="failed without a word"),
        pytest.param(Outcome(status=Status.FAILED, exit_code=3, error="no"), "exit 3: no", id="a status"),
        pytest.param(
            Outcome(status=Status.FAILED, error="123456789"), "failed: 123456789", id="nine letters"
        ),
        pytest.param(Outcome(status=Status.FAILED, error="1234567 9x"), "failed: 1234567 9 …", id="ten"),
        pytest.param(
            Outcome(status=Status.FAILED, error="12345678 x"), "failed: 12345678 …", id="no end blank"
        ),
        pytest.param(Outcome(status=Status.OK, exit_code=0, size="2 lines"), "exit 0, 2 lines", id="good"),
        pytest.param(Outcome(status=Status.OK, size="2 lines"), "2 lines", id="good without a status"),
        pytest.param(ENDED, "2 lines", id="ended"),
    ],
)
def test_how_a_call_ended(outcome: Outcome, text: str) -> None:
    assert outcome_text(outcome, 9) == text.replace("no such…", "no such f …")


@pytest.mark.parametrize(
    ("text", "short"),
    [
        pytest.param("123456789", "123456789", id="just as long"),
        pytest.param("1234567890", "123456 … 890", id="one letter longer"),
        pytest.param("12345 xxxxxx 90", "12345 … 90", id="no blanks inside"),
        pytest.param("x" * 6 + "y" * 8 + "12 ", "xxxxxx … 12 ", id="blanks outside stay"),
    ],
)
def test_a_long_label_loses_its_middle(text: str, short: str) -> None:
    assert shorten(text, 9) == short


@pytest.mark.parametrize(("act", "times", "text"), [(Act.READ, 1, "1 read"), (Act.SEARCH, 2, "2 searches")])
def test_calls_are_counted(act: Act, times: int, text: str) -> None:
    assert counted(act, times) == text


@pytest.mark.parametrize(
    ("entries", "style", "line"),
    [
        pytest.param(
            [
                entry(Act.READ, group="/w/a", calls=1),
                entry(Act.READ, group="/w/b", calls=2),
                entry(Act.READ, group="/w/a", calls=3, failed=2),
                entry(Act.READ, group="/w", calls=1, failed=1),
            ],
            {"root": "/w/"},
            "- earlier, merged: 7 reads (a x4, b x2, . x1; 3 failed)",
            id="by groups, the largest first",
        ),
        pytest.param(
            [entry(Act.COMMAND, group="make")],
            {},
            "- earlier, merged: 1 command (make x1)",
            id="a single one",
        ),
        pytest.param(
            [entry(Act.COMMAND, group=name * 9) for name in "abc"],
            {"groups": 2, "group_chars": 6},
            "- earlier, merged: 3 commands (aaaa … aa x1, bbbb … bb x1, elsewhere x1)",
            id="more groups than are named",
        ),
    ],
)
def test_many_entries_are_one_line(entries: list[Entry], style: dict[str, Any], line: str) -> None:
    assert merged_line(entries, Style(**({"label_chars": 100, "error_chars": 100} | style))) == line


def files(*labels: str, act: Act = Act.READ) -> list[Entry]:
    return [entry(act, label) for label in labels]


@pytest.mark.parametrize(
    ("entries", "root"),
    [
        pytest.param(files("/r/w/a", "/r/w/b", "/r/w/c"), "/r/w/", id="three files of a folder"),
        pytest.param(files("/r/w/a", "/r/w/b"), "", id="two files"),
        pytest.param(files("/r/w/a", "/r/w/b", "r/w/c"), "", id="a path that is not absolute"),
        pytest.param([*files("/r/w/a", "/r/w/b"), *files("/r/w/c", act=Act.COMMAND)], "", id="a command"),
        pytest.param(files("/r/w/a", "/r/w/b", "/r/w/c", act=Act.WRITE), "/r/w/", id="written files"),
        pytest.param(files("/w/a", "/w/b", "/w/c"), "", id="a folder of one name saves nothing"),
        pytest.param(
            files("/r/w/a", "/r/w/b", "/r/w/xxxx/c", "/r/w/xxxx/d"),
            "/r/w/xxxx/",
            id="where both save as much, the longer one",
        ),
        pytest.param(
            files("/r/w/a", "/r/w/b", "/r/w/xxxxxxx/c"), "/r/w/", id="where the upper one saves a little more"
        ),
        pytest.param(files("/r/w/x/a", "/r/w/y/b", "/r/w/z/c"), "/r/w/", id="what they are all below"),
    ],
)
def test_the_root_is_the_folder_that_saves_most(entries: list[Entry], root: str) -> None:
    assert common_root(entries) == root


def commands(*folders: str) -> list[Entry]:
    return [entry(Act.COMMAND, folder=folder) for folder in folders]


@pytest.mark.parametrize(
    ("entries", "home"),
    [
        pytest.param(commands("/w", "/w", "/w"), "/w", id="three commands"),
        pytest.param(commands("/w", "/w"), "", id="two commands"),
        pytest.param(commands("/z", "/a", "/a", "/a"), "/a", id="the commonest"),
        pytest.param(commands("", "", ""), "", id="no folder"),
        pytest.param([], "", id="no command"),
    ],
)
def test_home_is_where_most_commands_run(entries: list[Entry], home: str) -> None:
    assert common_home(entries) == home
