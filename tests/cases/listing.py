"""
Which reported failure is held by which test?

    python -m tests.cases.listing

writes `docs/cases.md` from the tests as pytest collects them. A case stands in the name of its
test, `test_s01_what_holds`, or in the id of a row of its table, `S01: what holds`.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cases.not_ours import NEAREST, NOT_OURS

FOLDER = Path(__file__).parent
CHECKOUT = FOLDER.parents[1]
PAGE = CHECKOUT / "docs" / "cases.md"
_IN_NAME = re.compile(r"test_((?:[srxp]\d\d_)+)(\w+)")
_IN_ROW = re.compile(r"\b([SRXP]\d\d): ([^-\]]+)")
_KINDS = {"S": "Streams", "R": "Requests", "X": "The context window", "P": "Side by side"}
_HEAD = """\
# Failures that others reported

Users of proxies, gateways, servers and agents reported each of these. Here each is a test, which
sends what was sent there, or the nearest to it, over real sockets.
Made from `tests/cases/` by `python -m tests.cases.listing`.
"""


@dataclass(frozen=True, slots=True, order=True)
class Held:
    """A case, the rule that it is held by, and the file and function of the test."""

    case: str
    rule: str
    test: str


def ids() -> tuple[str, ...]:
    """Of every case, in the order in which they are listed."""
    return tuple((FOLDER / "ids.txt").read_text(encoding="utf-8").split())


def held(nodes: Iterable[str]) -> list[Held]:
    """The cases in the node ids of collected tests, each pair of case and test once."""
    return sorted({found for node in nodes for found in _cases_of(node)})


def collected() -> list[str]:
    """The node ids of the tests in this folder."""
    seen = _Seen()
    pytest.main(["--collect-only", "-p", "no:cacheprovider", "-p", "no:terminal", str(FOLDER)], [seen])
    return seen.nodes


def page(found: Iterable[Held]) -> str:
    """The whole text of `docs/cases.md`."""
    by_case: dict[str, list[Held]] = {}
    for one in found:
        by_case.setdefault(one.case, []).append(one)
    lines = [_HEAD]
    for letter, title in _KINDS.items():
        lines += [f"## {title}", "| id | rule | test | status |", "|---|---|---|---|"]
        for case in (case for case in ids() if case.startswith(letter)):
            if case in NOT_OURS:
                lines.append(f"| {case} | | | does not apply: {NOT_OURS[case]} |")
            for one in by_case.get(case, ()):
                status = f"tested; {NEAREST[case]}" if case in NEAREST else "tested"
                lines.append(f"| {case} | {one.rule} | `{one.test}` | {status} |")
        lines.append("")
    return "\n".join(lines)


class _Seen:
    def __init__(self) -> None:
        self.nodes: list[str] = []

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        self.nodes = [item.nodeid for item in items]


def _cases_of(node: str) -> Iterator[Held]:
    path, _, name = node.partition("::")
    function = name.partition("[")[0]
    test = f"{Path(path).name}::{function}"
    named = _IN_NAME.match(name)
    if named:
        for case in named[1].upper().split("_")[:-1]:
            yield Held(case, _sentence(named[2]), test)
    for case, rule in _IN_ROW.findall(name):
        yield Held(
            case, f"{_sentence((named[2] if named else function).removeprefix('test_'))}: {rule}", test
        )


def _sentence(name: str) -> str:
    words = name.replace("_", " ")
    return words[:1].upper() + words[1:]


if __name__ == "__main__":
    PAGE.write_text(page(held(collected())), encoding="utf-8")
