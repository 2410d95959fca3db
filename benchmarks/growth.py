"""
Does a request cost more for what it does not hold: messages before it, conversations beside it?

    python -m benchmarks.growth              all of it, about four minutes
    python -m benchmarks.growth --quick      fewer messages and conversations, to see that it runs
    python -m benchmarks.growth --write      put the tables into docs/speed.md

Upstream, bare relay and proxy run in processes of their own, as in `overhead`. A request is warm:
its history but the newest turn was sent before. Judged is the processor time that the proxy spends
on a request, which other work on the machine does not lengthen; the waiting is told beside it.
"""

import argparse
import asyncio
import itertools
import os
import platform
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.agent_sessions import Session, session
from benchmarks.load import Connection, ask_all, connected
from benchmarks.overhead import Servers, request, running
from benchmarks.overhead_servers import quick_loop
from benchmarks.page import put_into_page

MESSAGES = (10, 100, 1_000, 5_000)
CONVERSATIONS = (1, 100, 1_000)
# About what a message of an agent's session takes.
_MESSAGE_BYTES = 1_000
# A conversation of the second table: long enough for notes in a window of 16,384 tokens.
_CONVERSATION = {"size": 60_000, "messages": 60}
_TARGETS = ("relay", "proxy")
_GOAL_MEGABYTES = 150
# Requests for the median of a round, and rounds in which relay and proxy take turns.
_EACH, _ROUNDS = 5, 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One row: median waiting and mean processor time in milliseconds, and the proxy's resident memory."""

    name: str
    kilobytes: float
    relay: float
    proxy: float
    cpu: float
    megabytes: float


async def point(name: str, conversation: Session, servers: Servers) -> Point:
    """The next request of *conversation*, which both servers have heard before."""
    numbers = itertools.count(50_000)
    connections = {target: await connected(servers.ports[target]) for target in _TARGETS}
    for connection in connections.values():
        # In between a compaction may happen, and its rest begins.
        await ask_all([connection], lambda _: request(conversation), 1)
        await ask_all([connection], lambda _: request(conversation, next(numbers)), 2)
    times: dict[str, list[float]] = {target: [] for target in _TARGETS}
    spent: list[float] = []
    for number in range(_ROUNDS):
        for target in _TARGETS[:: 1 if number % 2 else -1]:
            before = servers.cpu_seconds(target)
            load = await ask_all([connections[target]], lambda _: request(conversation, next(numbers)), _EACH)
            times[target].append(1000 * statistics.median(load.latencies))
            if target == "proxy":
                spent.append(1000 * (servers.cpu_seconds(target) - before) / _EACH)
    await _let_go(*connections.values())
    return Point(
        name=name,
        kilobytes=sum(map(len, conversation.body(next(numbers)))) / 1000,
        relay=statistics.median(times["relay"]),
        proxy=statistics.median(times["proxy"]),
        cpu=statistics.median(spent),
        megabytes=servers.memory("proxy"),
    )


async def by_messages(servers: Servers, counts: Sequence[int]) -> list[Point]:
    """Histories of so many messages: sent as they are, and compacted."""
    points = []
    for model, told in (("endless", "untouched"), ("narrow", "compacted")):
        for count in counts:
            size = count * _MESSAGE_BYTES
            if model == "narrow" and size < 400_000:
                # It fits.
                continue
            made = session(
                f"{model} {count}",
                size=size,
                messages=count,
                model=model,
                stream=False,
                tools=1,
                first=(1, 1),
            )
            points.append(await point(f"{count:,} messages, {told}", made, servers))
            _say(points[-1])
    return points


async def by_conversations(servers: Servers, counts: Sequence[int]) -> list[Point]:
    """One conversation more, where so many are stored."""
    points, stored = [], 0
    connection: Connection = await connected(servers.ports["proxy"])
    for count in counts:
        for number in range(stored, count):
            made = _conversation(f"stored {number}")
            await ask_all([connection], lambda _, made=made: request(made), 1)  # type: ignore[misc]
        stored = count
        points.append(
            await point(f"{count:,} stored conversations", _conversation(f"one more, {count}"), servers)
        )
        _say(points[-1])
    await _let_go(connection)
    return points


async def _let_go(*connections: Connection) -> None:
    for connection in connections:
        connection.close()
    # They are closed in the loop's next round.
    await asyncio.sleep(0)


def _conversation(name: str) -> Session:
    return session(name, **_CONVERSATION, model="tight", stream=False, tools=1, first=(1, 1))


def _say(one: Point) -> None:
    print(f"{one.name}: {one.cpu:.2f} ms, {one.megabytes:.0f} MB", file=sys.stderr, flush=True)


def table(points: Sequence[Point]) -> str:
    """The rows as Markdown."""
    lines = [
        "| | body | bare relay | proxy | processor time of the proxy | per MB of body | its memory |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in points:
        lines.append(
            f"| {one.name} | {one.kilobytes:,.0f} KB | {one.relay:.2f} ms | {one.proxy:.2f} ms "
            f"| {one.cpu:.2f} ms | {1000 * one.cpu / one.kilobytes:.1f} ms | {one.megabytes:.0f} MB |"
        )
    return "\n".join(lines)


def verdict(messages: Sequence[Point], conversations: Sequence[Point]) -> str:
    """What the tables say of the goals."""
    small, large = [one for one in messages if "untouched" in one.name][-2:]
    first, last = conversations[0], conversations[-1]
    grown = (large.cpu / small.cpu) / (large.kilobytes / small.kilobytes)
    memory = "met" if last.megabytes < _GOAL_MEGABYTES else "missed"
    return (
        f"Between the last two untouched bodies the processor time grows by {large.cpu / small.cpu:.1f} for "
        f"{large.kilobytes / small.kilobytes:.1f} times the bytes ({grown:.2f}; 1 is linear). From "
        f"{first.name} to {last.name} that of the next one goes from {first.cpu:.1f} to {last.cpu:.1f} ms. "
        f"Memory after {last.name}: {last.megabytes:.0f} MB (goal: under {_GOAL_MEGABYTES}, {memory})."
    )


async def measure_all(servers: Servers, *, quick: bool) -> tuple[list[Point], list[Point]]:
    """Conversations first: memory is to be that of theirs alone."""
    conversations = await by_conversations(servers, (1, 10, 30) if quick else CONVERSATIONS)
    return await by_messages(servers, MESSAGES[:3] if quick else MESSAGES), conversations


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer messages and conversations")
    parser.add_argument("--write", action="store_true", help="into docs/speed.md")
    arguments = parser.parse_args()
    with running() as servers, asyncio.Runner(loop_factory=quick_loop) as runner:
        messages, conversations = runner.run(measure_all(servers, quick=arguments.quick))
    machine = f"{platform.python_implementation()} {platform.python_version()}, {os.cpu_count()} cores."
    found = "\n\n".join([table(messages), table(conversations), verdict(messages, conversations), machine])
    print(found)
    if arguments.write:
        put_into_page("growth", found)


if __name__ == "__main__":
    main()
