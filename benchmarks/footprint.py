"""
How soon does the proxy listen, and how much memory does it take?

    python -m benchmarks.footprint              print both, in about a minute
    python -m benchmarks.footprint --write      put them into docs/speed.md

A start is timed from the command to the first answer of its own `/livez`. The processor time beside it
is what the start takes where nothing else runs; waiting on a busy machine is longer.
"""

import argparse
import asyncio
import itertools
import os
import statistics
import sys
import time

from benchmarks.agent_sessions import session
from benchmarks.load import ask_all, connected
from benchmarks.overhead import Servers, request, running
from benchmarks.overhead_servers import quick_loop
from benchmarks.page import put_into_page

_STARTS = 7
_CONVERSATIONS = 1000
_REQUESTS_EACH = 3
_BYTES, _MESSAGES = 30_000, 40
# The vocabulary is read beside the first requests.
_SETTLING_SECONDS = 3.0
_LIVEZ = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def first_answer(servers: Servers) -> float:
    """Processor seconds of the proxy up to its first answer."""
    connection = await connected(servers.ports["proxy"])
    await connection.ask([_LIVEZ])
    connection.close()
    return servers.cpu_seconds("proxy")


async def memory_of(servers: Servers) -> tuple[float, float]:
    """Resident megabytes of the proxy before any conversation, and after a thousand."""
    await asyncio.sleep(_SETTLING_SECONDS)
    idle = servers.memory("proxy")
    connection = await connected(servers.ports["proxy"])
    numbers = itertools.count(10_000)
    for i in range(_CONVERSATIONS):
        conversation = session(
            f"conversation {i}", size=_BYTES, messages=_MESSAGES, model="roomy", stream=False, tools=4
        )
        await ask_all([connection], lambda _, c=conversation: request(c, next(numbers)), _REQUESTS_EACH)
    connection.close()
    return idle, servers.memory("proxy")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help="into docs/speed.md")
    arguments = parser.parse_args()
    waits, works = [], []
    with asyncio.Runner(loop_factory=quick_loop) as runner:
        for _ in range(_STARTS):
            with running() as servers:
                works.append(runner.run(first_answer(servers)))
                waits.append(time.perf_counter() - servers.began_at["proxy"])
        with running() as servers:
            idle, full = runner.run(memory_of(servers))
    start, work = statistics.median(waits), statistics.median(works)
    found = (
        "| | measured | goal | met |\n|---|---|---|---|\n"
        f"| start to the first answer, median of {_STARTS} | {start:.2f} s | < 1.0 s |"
        f" {'yes' if start < 1.0 else 'no'} |\n"
        f"| processor time of a start | {work:.2f} s | | |\n"
        f"| resident, before the first conversation | {idle:.0f} MB | | |\n"
        f"| resident, after {_CONVERSATIONS} conversations of {_BYTES // 1000} KB | {full:.0f} MB |"
        " < 150 MB |"
        f" {'yes' if full < 150 else 'no'} |\n\n"
        f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}."
    )
    print(found)
    if arguments.write:
        put_into_page("footprint", found)


if __name__ == "__main__":
    sys.exit(main())
