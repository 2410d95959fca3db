"""The benchmark of the overhead runs, and says what it found as a table."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.agent_sessions import session
from benchmarks.load import Load
from benchmarks.overhead import CASES, TARGETS, Case, Result, measure, met, running, table
from benchmarks.page import put_into_page


async def test_every_target_is_asked_as_often_and_answers() -> None:
    plain, streamed = (replace(case, each=2, connections=2) for case in CASES[:2])
    with running() as servers:
        results = [await measure(case, servers, rounds=2) for case in (plain, streamed)]
    for result in results:
        assert [len(result.loads[target]) for target in TARGETS] == [2, 2, 2]
        assert all(len(load.latencies) == 4 for loads in result.loads.values() for load in loads)
    assert table(results).count("\n") == 3


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.name} {case.connections}")
def test_bodies_have_the_size_and_the_messages_that_the_table_says(case: Case) -> None:
    made = session(
        "x", size=case.size, messages=case.messages, model="m", stream=False,
        tools=1 if case.size < 10_000 else 12, first=(1, 0) if case.size < 10_000 else (6, 4),
    )  # fmt: skip
    body = b"".join(made.body(1))
    assert abs(len(body) - case.size) < 0.1 * case.size
    assert body.count(b'{"role":') == case.messages


@pytest.mark.parametrize(
    ("goal", "connections", "proxy", "is_met"),
    [
        pytest.param("<= 1.0 x", 1, 0.010, "yes", id="as quick as the relay"),
        pytest.param("<= 1.0 x", 1, 0.011, "no", id="slower than the relay"),
        pytest.param("<= +2 ms", 1, 0.0119, "yes", id="within 2 ms"),
        pytest.param("<= +2 ms", 1, 0.0125, "no", id="over 2 ms"),
        pytest.param(">= 1.0 x", 16, 0.010, "yes", id="as many as the relay"),
        pytest.param(">= 1.0 x", 16, 0.011, "no", id="fewer than the relay"),
        pytest.param("", 1, 0.5, "", id="no goal"),
    ],
)
def test_a_goal_is_met_or_not(goal: str, connections: int, proxy: float, is_met: str) -> None:
    case = replace(CASES[0], goal=goal, connections=connections)
    loads = {"direct": 0.001, "relay": 0.010, "proxy": proxy}
    result = Result(case, {target: [Load((seconds,), seconds)] for target, seconds in loads.items()})
    assert met(result) == is_met


def test_figures_go_into_their_place_and_nowhere_else(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A\n<!-- a -->\nold\n<!-- end of a -->\n<!-- b -->\nb\n<!-- end of b -->\n", encoding="utf-8"
    )
    put_into_page("a", "new\nlines\n", page)
    assert page.read_text(encoding="utf-8") == (
        "# A\n<!-- a -->\nnew\nlines\n<!-- end of a -->\n<!-- b -->\nb\n<!-- end of b -->\n"
    )
    with pytest.raises(ValueError, match="no place for 'c'"):
        put_into_page("c", "x", page)
