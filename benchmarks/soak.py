"""
Does the proxy stay what it was under load and faults, and does everybody get the answer that is theirs?

    python -m benchmarks.soak --minutes 30 --agents 50

So many agents work at once, in all three formats, streaming and not. The upstream breaks some answers, is
away for a moment now and then, and gives each turn a canary of its own: an answer with another one was
mixed up, one without it was lost. What the proxy process holds is looked at from outside.
"""

import argparse
import asyncio
import random
import string
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from benchmarks.soak_upstream import CANARY, TURN, SoakUpstream, canary
from tests.support.agent_sessions import AgentSession
from tests.support.formats import FORMATS, Format
from tests.support.processes import Held, ProxyProcess, proxy_process
from tests.support.raw_client import ask

WINDOW = 4096
_TURNS = 40
_LONGEST_SECONDS = 60.0
_SETTINGS = {"upstream.idle_timeout_seconds": 5, "context.notes_idle_timeout_seconds": 5}
# Connections that are kept, to either side, end within this.
_QUIET_SECONDS = 6.0
_MOST_GROWTH = 1.25
_MOST_LEFT = 4


@dataclass(slots=True, kw_only=True)
class Report:
    """
    What came of it.

    Attributes:
        answered: Turns that got their canary.
        outcomes: What the proxy said of them.
        told: Errors that a client was told of after a fault of the upstream, by status; 0 for a break.
        wrong: What was not as it must be.
        samples: Seconds since the start, what the process held, and the tasks of its loop.
        before: What it held before the first request.
        after: What it held when all was quiet again.
    """

    answered: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    told: Counter[int] = field(default_factory=Counter)
    wrong: Counter[str] = field(default_factory=Counter)
    samples: list[tuple[float, Held, int]] = field(default_factory=list)
    before: tuple[Held, int] | None = None
    after: tuple[Held, int] | None = None

    def text(self, upstream: SoakUpstream, agents: int) -> str:
        """The figures in a few lines."""
        lines = [
            f"{agents} agents for {self.samples[-1][0] / 60:.1f} minutes: {self.answered} turns answered, "
            "each with its own canary",
            f"outcomes: {_counts(self.outcomes)}",
            f"{sum(upstream.kinds.values())} faults of the upstream ({_counts(upstream.kinds)}) and "
            f"{upstream.restarts} restarts; clients were told of {sum(self.told.values())} errors "
            f"({_counts(self.told)})",
        ]
        for name, (held, tasks) in (("before", self.before), ("after", self.after)):  # type: ignore[misc]
            lines.append(
                f"{name}: {held.memory_bytes >> 20} MiB, {held.handles} handles, {held.sockets} sockets, "
                f"{tasks} tasks"
            )
        third = len(self.samples) // 3
        parts = (("second third", self.samples[third : 2 * third]), ("last third", self.samples[-third:]))
        for name, part in parts:
            lines.append(
                f"{name}, median: {median(h.memory_bytes for _, h, _ in part) / 2**20:.0f} MiB, "
                f"{median(h.handles for _, h, _ in part):.0f} handles, "
                f"{median(h.sockets for _, h, _ in part):.0f} sockets, "
                f"{median(t for _, _, t in part):.0f} tasks"
            )
        lines += [f"WRONG {count} x {what}" for what, count in self.wrong.most_common()] or [
            "nothing was wrong"
        ]
        return "\n".join(lines)

    def judge(self) -> None:
        """Whether what it holds stayed flat, and was let go."""
        assert self.before is not None and self.after is not None
        third = len(self.samples) // 3
        middle, last = self.samples[third : 2 * third], self.samples[-third:]
        if middle and median(h.memory_bytes for _, h, _ in last) > _MOST_GROWTH * median(
            h.memory_bytes for _, h, _ in middle
        ):
            self.wrong["memory went on growing"] += 1
        for what, before, after in (
            ("sockets", self.before[0].sockets, self.after[0].sockets),
            ("handles", self.before[0].handles, self.after[0].handles),
            ("tasks", self.before[1], self.after[1]),
        ):
            if after > before + _MOST_LEFT:
                self.wrong[f"{what} were not let go: {before} before, {after} after"] += 1


def _counts(counts: "Counter[str] | Counter[int]") -> str:
    return ", ".join(f"{what or 'none'} {count}" for what, count in counts.most_common())


class Soak:
    """One run: what agents share."""

    def __init__(
        self, upstream: SoakUpstream, proxy: ProxyProcess, *, pace_seconds: float, seed: int
    ) -> None:
        self.upstream = upstream
        self.proxy = proxy
        self.report = Report()
        self.is_over = False
        self._pace_seconds = pace_seconds
        self._chance = random.Random(seed)

    async def agent(self, number: int) -> None:
        """Work on one session after the other until it is over."""
        spoken, streams = FORMATS[number % len(FORMATS)], number % 2 == 0
        await asyncio.sleep(self._chance.uniform(0, self._pace_seconds))
        for sessions in range(10**6):
            session = AgentSession(name=_name(number, sessions), task=f"Task {sessions}, agent {number}.")
            while session.turns < _TURNS:
                session.step()
                await self._turn(session, spoken, streams=streams)
                if self.is_over:
                    return
                await asyncio.sleep(self._chance.uniform(0, 2 * self._pace_seconds))

    async def _turn(self, session: AgentSession, spoken: Format, *, streams: bool) -> None:
        """Ask until there is an answer, as agents do."""
        mark = f"mark-{session.name}-{session.turns - 1}"
        body = spoken.wire(session.body(stream=streams))
        while not await self._is_answered(mark, spoken, body, streams=streams):
            if self.is_over:
                return
            await asyncio.sleep(self._chance.uniform(0.1, 1.0))

    async def _is_answered(self, mark: str, spoken: Format, body: bytes, *, streams: bool) -> bool:
        report = self.report
        faults = len(self.upstream.met[mark])
        headers = [("Content-Type", "application/json"), (TURN, mark)]
        try:
            async with asyncio.timeout(_LONGEST_SECONDS):
                answer, got = await ask(self.proxy.url, spoken.path, body=body, headers=headers)
        except TimeoutError:
            report.wrong["a request that was never answered"] += 1
            return False
        except (OSError, asyncio.IncompleteReadError, ValueError) as error:
            # Broken off, so that nobody takes it for a whole answer.
            self._told(mark, faults, 0, type(error).__name__)
            return False
        found = {canary_.decode() for canary_ in CANARY.findall(got)}
        if found - {canary(mark)}:
            report.wrong["an answer with somebody else's canary"] += 1
        if answer.status != 200 or not found or (streams and not _is_whole(got)):
            self._told(mark, faults, answer.status, got[:120].decode("utf-8", "replace"))
            return False
        report.answered += 1
        report.outcomes[answer.header("x-compaction") or "heartbeat"] += 1
        del self.upstream.met[mark]
        return True

    def _told(self, mark: str, faults: int, status: int, what: str) -> None:
        """An error, which must come from a fault of the upstream."""
        self.report.told[status] += 1
        if len(self.upstream.met[mark]) == faults and not self.upstream.was_just_down:
            self.report.wrong[f"an error without a fault: {status} {what}"] += 1

    async def look(self, seconds: float, every_seconds: float) -> None:
        """Look at the process for so long."""
        began = time.monotonic()
        while (passed := time.monotonic() - began) < seconds:
            await asyncio.sleep(min(every_seconds, seconds - passed))
            self.report.samples.append(
                (time.monotonic() - began, self.proxy.held(), await self.proxy.tasks())
            )


def _is_whole(stream: bytes) -> bool:
    return any(end in stream for end in (b"[DONE]", b"response.completed", b"message_stop"))


def _name(number: int, sessions: int) -> str:
    """Letters that no other session of the run has, and few: the canary is to stand in one piece."""
    letters, left = "", sessions * 64 + number
    while left or not letters:
        letters += string.ascii_lowercase[left % 26]
        left //= 26
    return letters


async def run(
    seconds: float, agents: int, *, pace_seconds: float = 2.0, share: float = 0.05, seed: int = 0
) -> tuple[Report, SoakUpstream]:
    """Soak for *seconds*; each agent pauses for *pace_seconds* between turns, on average."""
    upstream = SoakUpstream(window=WINDOW, share=share, seed=seed)
    async with AsyncExitStack() as stack:
        state = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        await stack.enter_async_context(upstream.running(restart_every_seconds=min(90.0, seconds / 3)))
        proxy = await stack.enter_async_context(
            proxy_process(upstream.url, _SETTINGS, state=state, module="tests.support.telling_proxy")
        )
        soak = Soak(upstream, proxy, pace_seconds=pace_seconds, seed=seed)
        # The vocabulary is read in the background, and belongs to what it holds at rest.
        await asyncio.sleep(3)
        soak.report.before = (proxy.held(), await proxy.tasks())
        working = [asyncio.create_task(soak.agent(number)) for number in range(agents)]
        await soak.look(seconds, every_seconds=max(0.5, seconds / 120))
        soak.is_over = True
        await asyncio.gather(*working)
        await asyncio.sleep(_QUIET_SECONDS)
        soak.report.after = (proxy.held(), await proxy.tasks())
        for line in proxy.said:
            if '"level":"error"' in line or "context.fault" in line:
                soak.report.wrong[f"a fault of the proxy: {line.strip()[:300]}"] += 1
    soak.report.judge()
    return soak.report, upstream


def main(arguments: Sequence[str]) -> int:
    """Run, and print the figures; 1 where anything was wrong."""
    parser = argparse.ArgumentParser(description="many agents, many faults, and a long time")
    parser.add_argument("--minutes", type=float, default=30.0, metavar="N", help="(default: %(default)s)")
    parser.add_argument("--agents", type=int, default=50, metavar="N", help="(default: %(default)s)")
    parser.add_argument(
        "--pace", type=float, default=2.0, metavar="SECONDS", help="between turns (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="(default: %(default)s)")
    asked = parser.parse_args(arguments)
    report, upstream = asyncio.run(
        run(asked.minutes * 60, asked.agents, pace_seconds=asked.pace, seed=asked.seed)
    )
    print(report.text(upstream, asked.agents))
    return 1 if report.wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
