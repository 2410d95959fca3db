"""
What does the compaction of a history of 200,000 tokens cost the proxy itself, and those beside it?

    python -m benchmarks.large_history           about a minute
    python -m benchmarks.large_history --write   put the table into docs/speed.md

The model server answers at once, so that what is left is the proxy's own work. While it goes on, a
second client sends one small request after the other: the longest that one of them took, next to
the longest before it, is how long the proxy's loop stood still.
"""

import argparse
import asyncio
import contextlib
import os
import platform
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.agent_sessions import Session, session
from benchmarks.load import Connection, connected
from benchmarks.overhead import Servers, request, running
from benchmarks.overhead_servers import quick_loop
from benchmarks.page import put_into_page

# Code has between four and five characters to a token.
HISTORY_BYTES = 960_000
_MESSAGE_BYTES = 1_000
# How long the second client asks before the large request comes.
_BEFORE_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A history of 200,000 tokens before a window, whose model's name says how large it is."""

    name: str
    model: str
    context: str = ""


CASES = (
    Case(name="window of 256k, inline", model="large"),
    Case(name="window of 256k, masked", model="large", context='strategy = "mask-first"'),
    Case(name="window of 32k, arriving whole", model="small"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """
    What was measured of a case; times in milliseconds, memory in megabytes.

    Attributes:
        outcome: The header `x-compaction`.
        waited: What the client waited for the first request.
        cpu: The proxy's processor time of it.
        again: What it waits for the next one, which uses what was made.
        stall: The longest small request while the first was under way.
        calm: The longest one before that.
        memory: Resident before it.
        peak: The most during it.
    """

    case: Case
    outcome: str
    waited: float
    cpu: float
    again: float
    stall: float
    calm: float
    memory: float
    peak: float


async def measure(case: Case, servers: Servers, size: int = HISTORY_BYTES) -> Found:
    """The first request of a history of *size* bytes, and one more."""
    port = servers.ports["proxy"]
    large, other = await connected(port), await connected(port)
    # The vocabulary is read with the first request.
    await large.ask(request(_session(case, 3_000, 6)))
    beside: list[tuple[float, float]] = []
    asking = asyncio.create_task(_ask_on(other, beside))
    await asyncio.sleep(_BEFORE_SECONDS)
    whole = _session(case, size, size // _MESSAGE_BYTES)
    pieces = request(whole)
    memory, spent = servers.memory("proxy"), servers.cpu_seconds("proxy")
    _forget_peak(servers)
    began = time.perf_counter()
    answer = await large.ask(pieces)
    ended = time.perf_counter()
    spent = servers.cpu_seconds("proxy") - spent
    peak = _peak(servers)
    again = request(whole, 1)
    second = time.perf_counter()
    await large.ask(again)
    again_seconds = time.perf_counter() - second
    asking.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asking
    for connection in (large, other):
        connection.close()
    # They are closed in the loop's next round.
    await asyncio.sleep(0)
    during = [took for at, took in beside if at + took > began and at < ended]
    before = [took for at, took in beside if at + took <= began]
    head = answer.partition(b"\r\n\r\n")[0].decode("latin-1").lower()
    outcome = next(
        (line.split(": ")[1] for line in head.split("\r\n") if line.startswith("x-compaction")), ""
    )
    return Found(
        case=case,
        outcome=outcome,
        waited=1000 * (ended - began),
        cpu=1000 * spent,
        again=1000 * again_seconds,
        stall=1000 * max(during),
        calm=1000 * max(before),
        memory=memory,
        peak=peak,
    )


def _session(case: Case, size: int, messages: int) -> Session:
    name = f"{case.name} {size}"
    return session(name, size=size, messages=messages, model=case.model, stream=False, tools=1, first=(1, 1))


async def _ask_on(connection: Connection, beside: list[tuple[float, float]]) -> None:
    """Small requests, one after the other; *beside* gets when each began, and how long it took."""
    small = request(
        session("beside", size=3_000, messages=6, model="roomy", stream=False, tools=1, first=(1, 0))
    )
    while True:
        began = time.perf_counter()
        await connection.ask(small)
        beside.append((began, time.perf_counter() - began))
        await asyncio.sleep(0.002)


def _status(servers: Servers, what: str) -> float:
    with contextlib.suppress(OSError):
        status = Path(f"/proc/{servers.processes['proxy'].pid}/status").read_text()
        return int(status.split(f"{what}:")[1].split()[0]) / 1024
    return 0.0


def _peak(servers: Servers) -> float:
    return _status(servers, "VmHWM")


def _forget_peak(servers: Servers) -> None:
    # Linux: from here on the peak is that of what follows.
    with contextlib.suppress(OSError):
        Path(f"/proc/{servers.processes['proxy'].pid}/clear_refs").write_text("5")


def table(found: Sequence[Found]) -> str:
    """The cases as Markdown."""
    lines = [
        "| 200k tokens | outcome | the client waits | processor time | the next request "
        "| longest small request beside it (before it) | memory before, peak |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in found:
        lines.append(
            f"| {one.case.name} | {one.outcome} | {one.waited:,.0f} ms | {one.cpu:,.0f} ms "
            f"| {one.again:,.0f} ms | {one.stall:,.0f} ms ({one.calm:,.0f}) "
            f"| {one.memory:.0f} MB, {one.peak:.0f} MB |"
        )
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose name holds this")
    parser.add_argument("--write", action="store_true", help="into docs/speed.md")
    arguments = parser.parse_args()
    found = []
    for case in CASES:
        if arguments.only in case.name:
            with running(case.context) as servers, asyncio.Runner(loop_factory=quick_loop) as runner:
                found.append(runner.run(measure(case, servers)))
                print(table(found[-1:]).splitlines()[-1], file=sys.stderr, flush=True)
    machine = f"{platform.python_implementation()} {platform.python_version()}, {os.cpu_count()} cores."
    text = f"{table(found)}\n\n{machine}"
    print(text)
    if arguments.write:
        put_into_page("large history", text)


if __name__ == "__main__":
    main()
