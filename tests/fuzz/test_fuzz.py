"""
Whatever is asked and whatever is answered: no fault of the proxy, and not a byte changed but for a reason.

The short form of `python -m benchmarks.fuzz`: other seeds with every version of these files, and the same
ones on every run.
"""

import asyncio

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxy.dialects.sse import Events
from tests.fuzz.cases import WINDOWS, Case, case_of
from tests.fuzz.play import INSTRUCTION, Echo, play, until_fault
from tests.fuzz.streams import bare_stream, cut
from tests.fuzz.values import Dice
from tests.support.fronted import fronted, sample

SEEDS = st.integers(0, 2**64 - 1)


def at_window(window: int, seeds: list[int]) -> list[Case]:
    return [case for case in map(case_of, seeds) if case.window == window]


@pytest.mark.parametrize("window", WINDOWS)
def test_no_body_header_or_stream_makes_a_fault_or_changes_a_byte_without_need(window: int) -> None:
    async def run(cases: list[Case]) -> list[tuple[Case, str]]:
        context = {"window": window, "notes_instruction": INSTRUCTION}
        async with Echo().running() as echo, fronted(echo.upstream.url, context=context) as url:
            return await until_fault(cases, url, echo, lambda: sample(url, "context_faults_total"))

    @settings(max_examples=2, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(seeds=st.lists(SEEDS, min_size=120, max_size=120))
    def cases(seeds: list[int]) -> None:
        assert [why for _, why in asyncio.run(run(at_window(window, seeds)))] == []

    cases()


async def test_the_rules_would_notice_what_they_are_for() -> None:
    """An upstream that gets another body, or a client that gets other bytes, is seen."""
    case = Case(path="/v1/messages", headers=(), body=b"{}", window=1024, stream=(b"data: 1\n\n",))
    other = Case(path="/v1/messages", headers=(), body=b"[]", window=1024, stream=(b"data: 2\n\n",))
    async with Echo().running() as echo, fronted(echo.upstream.url, context={"window": 1024}) as url:
        assert await play(case, url, echo) == ""

        async def ask_for(sent: Case, judged: Case) -> str:
            echo.case = sent
            judge = Echo(case=judged)
            judge.upstream = echo.upstream
            return await play(judged, url, judge)

        assert "answer" in await ask_for(other, case)
    async with Echo().running() as echo:
        assert "refused" in await play(case, echo.upstream.url + "/elsewhere", Echo())


@settings(max_examples=60, deadline=None, derandomize=True)
@given(seed=SEEDS)
def test_a_stream_reads_the_same_wherever_it_is_cut(seed: int) -> None:
    dice = Dice(seed)
    stream = bare_stream(dice)
    whole = Events()
    expected = whole.feed(stream) + whole.end()
    reader = Events()
    found = [event for piece in cut(dice, stream) for event in reader.feed(piece)] + reader.end()
    assert found == expected
