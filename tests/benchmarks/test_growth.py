"""The benchmarks of growth and of large histories run, and measure what they say they do."""

import asyncio
import sys
from collections.abc import Iterator

import pytest

from benchmarks import growth, large_history
from benchmarks.overhead import Servers, running

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processor time and memory come from /proc")


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    with running() as started:
        yield started


def test_growth_measures_messages_and_conversations(servers: Servers) -> None:
    async def both() -> tuple[list[growth.Point], list[growth.Point]]:
        conversations = await growth.by_conversations(servers, (1, 2))
        return await growth.by_messages(servers, (10, 40)), conversations

    messages, conversations = asyncio.run(both())
    assert [one.name for one in messages] == ["10 messages, untouched", "40 messages, untouched"]
    assert [one.name for one in conversations] == ["1 stored conversations", "2 stored conversations"]
    for one in (*messages, *conversations):
        assert one.relay > 0 and one.proxy > 0 and one.cpu > 0 and one.megabytes > 20
    assert messages[1].kilobytes > 3 * messages[0].kilobytes
    assert growth.table(messages).count("\n") == 3
    assert "Memory after 2 stored conversations" in growth.verdict(messages, conversations)


def test_a_large_history_is_compacted_while_another_client_asks(servers: Servers) -> None:
    case = large_history.Case(name="small", model="tight")
    found = asyncio.run(large_history.measure(case, servers, size=60_000))
    assert found.outcome == "compacted"
    assert found.waited > 0 and found.cpu > 0 and found.stall > 0 and found.calm > 0
    assert found.peak >= found.memory > 20
    assert "| small | compacted |" in large_history.table([found])
