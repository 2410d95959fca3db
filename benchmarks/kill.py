"""
Does the store open, and does each view stay what it was, whenever the proxy is killed?

    python -m benchmarks.kill --kills 200

A proxy process with an SQLite file is killed (SIGKILL) at random moments under the traffic of several
agents, in all three formats, and started again on the same file. An agent whose answer does not come
asks again, as agents do. Every attempt at one turn must reach the upstream as the same bytes, and each
turn must extend the one before it where no rewrite was told.
"""

import argparse
import asyncio
import contextlib
import random
import string
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.support.agent_sessions import AgentSession, remembering_upstream
from tests.support.answers import Answer
from tests.support.formats import FORMATS, Format
from tests.support.gate import Gate
from tests.support.processes import ProxyProcess, proxy_process
from tests.support.raw_client import ask
from tests.support.recorded import Recorded
from tests.support.scripted import ORDINARY, ScriptedUpstream

_WINDOW = 4096
# Several compactions and folds; longer ones only take longer to send.
_MOST_TURNS = 60
# From right after its start to the middle of its work.
_LONGEST_LIFE_SECONDS = 1.2
_LONGEST_ANSWER_SECONDS = 0.15
_TURN = "x-turn"
# What the log says of a file that could not be used.
_STORE_TROUBLE = ("store.set_aside", "store.failed", "request.failed", "context.fault")


@dataclass(slots=True, kw_only=True)
class Report:
    """
    What came of it.

    Attributes:
        kills: How often the proxy was killed.
        turns: Turns that were answered.
        attempts: Requests that reached the upstream for them.
        again: Turns that reached it more than once.
        rewritten: Turns whose view was a new one: a compaction, or a trim.
        restart_seconds: From each start to the listening socket, on average.
        wrong: What was not as it must be.
    """

    kills: int = 0
    turns: int = 0
    attempts: int = 0
    again: int = 0
    rewritten: int = 0
    restart_seconds: float = 0.0
    wrong: list[str] = field(default_factory=list)

    def text(self) -> str:
        """The figures in a few lines."""
        return "\n".join(
            [
                f"{self.kills} kills, {self.turns} turns answered, {self.attempts} requests for them",
                f"{self.again} turns were asked for again, {self.rewritten} brought a new view",
                f"{self.restart_seconds:.2f} s from a start to the listening socket, on average",
                *(self.wrong or ["nothing was wrong"]),
            ]
        )


class Ground:
    """What agents share: the upstream, and the proxy that runs now."""

    def __init__(self, upstream: ScriptedUpstream, url: str) -> None:
        self.upstream = upstream
        self.url = url
        self.up = asyncio.Event()
        self.is_over = False
        self.report = Report()

    def arrived(self, turn: str) -> list[Recorded]:
        """The attempts at *turn* that reached the upstream, without requests for notes."""
        return [r for r in self.upstream.chats if r.header(_TURN) == turn and not self.upstream.is_notes(r)]


async def _agent(ground: Ground, spoken: Format, number: int) -> None:
    """Work on one session after the other until it is over."""
    sessions = 0
    while not ground.is_over:
        name = f"{string.ascii_lowercase[number]}{string.ascii_lowercase[sessions % 26]}"
        session = AgentSession(name=name, task=f"Task {sessions} of agent {number}.", result_words=150)
        before: list[str] = []
        while session.turns < _MOST_TURNS and not ground.is_over:
            turn = f"{number}-{sessions}-{session.turns}"
            outcome, again = await _ask(ground, spoken, session, turn)
            if outcome is None:
                return
            before = _judge(ground, spoken, turn, outcome, again=again, before=before)
            session.step()
        sessions += 1


async def _ask(ground: Ground, spoken: Format, session: AgentSession, turn: str) -> tuple[str | None, bool]:
    """The outcome of a turn, asked for until it is answered, and whether it was asked for more than once."""
    body = spoken.wire(session.body())
    for attempt in range(1000):
        await ground.up.wait()
        if ground.is_over:
            break
        headers = [("Content-Type", "application/json"), (_TURN, turn)]
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, IndexError, ValueError):
            answer, _ = await ask(ground.url, spoken.path, body=body, headers=headers)
            if answer.status == 200:
                return answer.header("x-compaction") or "", attempt > 0
            ground.report.wrong.append(f"turn {turn} was answered with {answer.status}")
        # Refused, until the next one listens.
        await asyncio.sleep(0.02)
    return None, True


def _judge(
    ground: Ground, spoken: Format, turn: str, outcome: str, *, again: bool, before: list[str]
) -> list[str]:
    """Its messages as they reached the upstream."""
    report, arrived = ground.report, ground.arrived(turn)
    report.turns += 1
    report.attempts += len(arrived)
    report.again += len(arrived) > 1
    if len({request.body for request in arrived}) > 1:
        sizes = [len(spoken.slices(request.body)) for request in arrived]
        report.wrong.append(
            f"turn {turn} reached the upstream as different views, of {sizes} messages, "
            f"and was answered as {outcome!r}"
        )
    view = spoken.slices(arrived[-1].body)
    if outcome in ("compacted", "trimmed"):
        report.rewritten += 1
    elif not again and view[: len(before)] != before:
        report.wrong.append(f"turn {turn} does not extend the one before, and nobody was told")
    # What was said of a turn is not needed again.
    ground.upstream.requests[:] = [r for r in ground.upstream.requests if r.header(_TURN) != turn]
    return view


async def run(
    kills: int, *, seed: int = 0, agents: int = 6, settings: Mapping[str, object] | None = None
) -> Report:
    """Kill a proxy with *settings*, by `table.key`, so many times; *seed* decides when."""
    chance = random.Random(seed)
    upstream = remembering_upstream(window=_WINDOW, slots=4)
    upstream.script = _slowly(upstream.script, chance)
    with tempfile.TemporaryDirectory() as folder:
        async with upstream.running():
            state, port, ground = Path(folder), 0, Ground(upstream, "")
            tasks = [asyncio.create_task(_agent(ground, FORMATS[i % len(FORMATS)], i)) for i in range(agents)]
            started: dict[str, float] = defaultdict(float)
            for life in range(kills + 1):
                began = time.perf_counter()
                async with proxy_process(upstream.url, settings or {}, port=port, state=state) as proxy:
                    started["seconds"] += time.perf_counter() - began
                    port = int(proxy.url.rpartition(":")[2])
                    ground.url = proxy.url
                    ground.up.set()
                    if life == kills:
                        await _finish(ground, tasks)
                        continue
                    await asyncio.sleep(chance.uniform(0, _LONGEST_LIFE_SECONDS))
                    ground.up.clear()
                    await proxy.kill()
                ground.report.kills += 1
                _look(ground.report, proxy)
            ground.report.restart_seconds = started["seconds"] / (kills + 1)
    return ground.report


def _slowly(
    script: Callable[[Recorded], Answer | None], chance: random.Random
) -> Callable[[Recorded], Answer | None]:
    """The same answers after a while, so that something is under way at most moments."""

    def slow(request: Recorded) -> Answer:
        gate = Gate()
        asyncio.get_running_loop().call_later(chance.uniform(0, _LONGEST_ANSWER_SECONDS), gate.open)
        return replace(script(request) or Answer(text=ORDINARY), before=gate)

    return slow


async def _finish(ground: Ground, tasks: Sequence["asyncio.Task[None]"]) -> None:
    """Let every agent have one more answer, and end them."""
    turns = ground.report.turns
    while ground.report.turns < turns + 3 * len(tasks) and not all(task.done() for task in tasks):
        await asyncio.sleep(0.05)
    ground.is_over = True
    await asyncio.gather(*tasks)


def _look(report: Report, proxy: ProxyProcess) -> None:
    for line in proxy.said:
        if any(trouble in line for trouble in _STORE_TROUBLE):
            report.wrong.append(line.strip()[:500])


def main(arguments: Sequence[str]) -> int:
    """Run, and print the figures; 1 where anything was wrong."""
    parser = argparse.ArgumentParser(description="kill the proxy at random moments")
    parser.add_argument("--kills", type=int, default=20, metavar="N", help="(default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="(default: %(default)s)")
    asked = parser.parse_args(arguments)
    report = asyncio.run(run(asked.kills, seed=asked.seed))
    print(report.text())
    return 1 if report.wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
