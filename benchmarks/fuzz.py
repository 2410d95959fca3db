"""
Does any request, or any answer of an upstream, bring the proxy down, hang it, or change what it must not?

    python -m benchmarks.fuzz --bodies 100000            all seeds from 0
    python -m benchmarks.fuzz --bodies 1000 --first 5000 so many from there

Three proxies, each a process of its own before an upstream that echoes, with windows from tiny to large.
What was not as it must be goes into `tests/fuzz/corpus/`, one case of each kind, where a test replays it.
"""

import argparse
import asyncio
import re
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from tests.fuzz.cases import WINDOWS, Case, case_of
from tests.fuzz.play import INSTRUCTION, Echo, until_fault
from tests.support.fronted import sample
from tests.support.processes import ProxyProcess, proxy_process

CORPUS = Path(__file__).parent.parent / "tests" / "fuzz" / "corpus"
_BATCH = 50
# A store that is full after a few thousand compactions, so that what grows later grows for no reason.
_STORE_BYTES = 8 * 1024 * 1024
# Of one batch; a large body and what is made of it take far less.
_JUMP_BYTES = 100 * 1024 * 1024
# Of one batch too: what takes so long holds up everybody else.
_LONGEST_CPU_SECONDS = 8.0


class Run:
    """Counts of one run, and the kinds of what was found."""

    def __init__(self, last: int) -> None:
        self.last = last
        self.played = 0
        self.memory: dict[int, list[int]] = {window: [] for window in WINDOWS}
        self.kinds: Counter[str] = Counter()

    def found(self, case: Case, why: str) -> None:
        """Keep the first case of each kind."""
        what, _, rest = why.partition(":")
        kind = re.sub(r"[^a-z]+", "-", f"{what} {rest[:30]}".lower()).strip("-")
        self.kinds[kind] += 1
        print(f"{kind}: {why}", flush=True)
        if self.kinds[kind] == 1:
            CORPUS.mkdir(parents=True, exist_ok=True)
            (CORPUS / f"{kind}.json").write_text(case.to_json(), encoding="utf-8")

    def report(self, seconds: float) -> str:
        """The figures, and what was found."""
        lines = [f"{self.played} bodies in {seconds:.0f} s"]
        for window, sizes in self.memory.items():
            if sizes:
                first, most, last = (f"{size / 2**20:.0f}" for size in (sizes[0], max(sizes), sizes[-1]))
                lines.append(
                    f"window {window}: {first} MiB after {_BATCH}, {most} at most, {last} at the end"
                )
        lines += [f"{count} x {kind}" for kind, count in self.kinds.most_common()] or ["nothing was found"]
        return "\n".join(lines)


async def run(first: int, bodies: int) -> Run:
    """Play the cases of *bodies* seeds from *first*."""
    made = Run(first + bodies)
    queues: dict[int, asyncio.Queue[Case | None]] = {w: asyncio.Queue(2 * _BATCH) for w in WINDOWS}
    async with AsyncExitStack() as stack, asyncio.TaskGroup() as workers:
        for window in WINDOWS:
            workers.create_task(_work(made, window, queues[window], stack))
        for seed in range(first, first + bodies):
            case = case_of(seed)
            await queues[case.window].put(case)
            if seed % 5000 == 4999:
                print(f"seed {seed}, {made.played} played", flush=True)
        for queue in queues.values():
            await queue.put(None)
    return made


async def _work(made: Run, window: int, queue: "asyncio.Queue[Case | None]", stack: AsyncExitStack) -> None:
    echo = await stack.enter_async_context(Echo().running())
    settings = {
        "context.window": window,
        "context.notes_instruction": INSTRUCTION,
        "store.max_bytes": _STORE_BYTES,
    }
    proxy = await stack.enter_async_context(proxy_process(echo.upstream.url, settings))
    is_more, spent = True, proxy.held().cpu_seconds
    while is_more:
        batch: list[Case] = []
        while len(batch) < _BATCH and is_more:
            case = await queue.get()
            is_more = case is not None
            batch += [case] if case else []
        for case, why in await until_fault(
            batch, proxy.url, echo, lambda: sample(proxy.url, "context_faults_total")
        ):
            made.found(case, why)
            if why.startswith("fault"):
                print("".join(proxy.said[-3:])[:3000], flush=True)
        made.played += len(batch)
        spent = _look(made, window, proxy, batch, spent)


def _look(made: Run, window: int, proxy: ProxyProcess, batch: list[Case], spent: float) -> float:
    """Whether the process took too much for *batch*; the seconds of its time that are spent now."""
    held = proxy.held()
    before = made.memory[window][-1] if made.memory[window] else held.memory_bytes
    made.memory[window].append(held.memory_bytes)
    if not batch:
        return held.cpu_seconds
    largest = max(batch, key=lambda case: len(case.body) + sum(map(len, case.stream)))
    if held.memory_bytes - before > _JUMP_BYTES:
        jump = (held.memory_bytes - before) >> 20
        made.found(largest, f"memory: a jump by {jump} MiB within {len(batch)} bodies")
    if held.cpu_seconds - spent > _LONGEST_CPU_SECONDS:
        took = held.cpu_seconds - spent
        made.found(largest, f"time: {took:.1f} s of the processor for {len(batch)} bodies")
    return held.cpu_seconds


def main(arguments: Sequence[str]) -> int:
    """Run, and print the figures; 1 where anything was found."""
    parser = argparse.ArgumentParser(description="fuzz the proxy over real sockets")
    parser.add_argument(
        "--bodies", type=int, default=1000, metavar="N", help="how many (default: %(default)s)"
    )
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="(default: %(default)s)")
    asked = parser.parse_args(arguments)
    started = time.monotonic()
    made = asyncio.run(run(asked.first, asked.bodies))
    print(made.report(time.monotonic() - started))
    return 1 if made.kinds else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
