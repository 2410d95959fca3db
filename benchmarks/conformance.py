"""
How does the proxy score in compaction-conformance-kit, whose sessions are somebody else's?

    python -m benchmarks.conformance

The kit plants rules, limits, facts, goals and preferences in what the user says, compacts
for several rounds and looks for their exact values. It hands each round the output of the
one before, as `/compact` would get it; a client behind this proxy keeps its whole history
instead, so here each round goes on with the session until the next compaction, and shows
the kit what the model is sent. What the newest turns hold counts there as well.
"""

import asyncio
import contextlib
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from compaction_kit.canaries import seeded_canaries
from compaction_kit.compacted import CompactedContext
from compaction_kit.generated import build_generated_session
from compaction_kit.report import ConformanceReport
from compaction_kit.session import Turn, build_seeded_session
from compaction_kit.testing import check_compactor

from benchmarks.survival import forgetful
from tests.support.answers import Answer
from tests.support.prompts import text_of
from tests.support.proxied import Proxied, proxied
from tests.support.scripted import ScriptedUpstream

ROUNDS = 5
SEEDS = (1, 2, 3)
WINDOW = 32768
# What the agent reads between two things that the user says, so that a session is as long as a real one.
_PAGE = "the row was taken over as it stood, and a note was written beside it\n" * 25
_MOST_STEPS = 80


class ProxyCompactor:
    """The proxy as the kit's compactor, before a scripted model whose notes drop everything."""

    name = "compaction-proxy"

    def __init__(self, window: int = WINDOW) -> None:
        self._window = window
        self._runner = asyncio.Runner()
        self._open = contextlib.AsyncExitStack()
        self._messages: list[dict[str, Any]] = []
        self._proxy: Proxied | None = None

    def __enter__(self) -> "ProxyCompactor":
        """Start upstream and proxy."""
        self._runner.__enter__()
        self._proxy = self._runner.run(self._start())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop both."""
        self._runner.run(self._open.aclose())
        self._runner.__exit__(kind, error, trace)

    def compact(self, turns: list[Turn], round_num: int = 1) -> CompactedContext:
        """The view after the next compaction; *turns* are the session in round 1, later our own output."""
        if round_num == 1:
            self._messages = []
            for turn in turns:
                self._say(turn)
        return CompactedContext(self._runner.run(self._next_fold()), self.name, round_num)

    async def _start(self) -> Proxied:
        upstream = ScriptedUpstream(
            window=self._window,
            script=lambda r: Answer(text=forgetful(r)) if upstream.is_notes(r) else None,
            notes_marker="[From the harness, not from the user.",
        )
        await self._open.enter_async_context(upstream.running())
        return await self._open.enter_async_context(proxied(upstream, window=self._window))

    def _say(self, turn: Turn) -> None:
        if turn.role == "assistant":
            # The agent looks something up before it answers.
            self._read_on()
        self._messages.append({"role": turn.role, "content": turn.text})

    def _read_on(self) -> None:
        call_id = f"call_{len(self._messages)}"
        function = {"name": "read", "arguments": f'{{"path": "part_{len(self._messages)}.csv"}}'}
        self._messages += [
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": call_id, "type": "function", "function": function}],
            },
            {"role": "tool", "tool_call_id": call_id, "content": _PAGE},
        ]

    async def _next_fold(self) -> str:
        assert self._proxy is not None
        for _ in range(_MOST_STEPS):
            self._read_on()
            walk = await self._proxy.send({"messages": self._messages, "model": "scripted"})
            if walk.outcome == "compacted":
                return "\n".join(f"[{m['role']}] {text_of(m)}" for m in walk.messages)
        raise RuntimeError(f"no compaction in {_MOST_STEPS} steps")


def reports(seeds: Sequence[int] = SEEDS) -> dict[str, ConformanceReport]:
    """The kit's reports by the name of the session: its own one, and one for each of *seeds*."""
    with ProxyCompactor() as compactor:
        found = {
            "seeded": check_compactor(
                compactor, session=build_seeded_session(), canaries=seeded_canaries(), rounds=ROUNDS
            )
        }
        for seed in seeds:
            session, canaries = build_generated_session(seed)
            found[f"generated {seed}"] = check_compactor(
                compactor, session=session, canaries=canaries, rounds=ROUNDS
            )
    return found


def main() -> int:
    """Print a line for each session and type."""
    print("| session | type | " + " | ".join(f"round {n}" for n in range(1, ROUNDS + 1)) + " | verdict |")
    print("|---" * (ROUNDS + 3) + "|")
    for session, report in reports().items():
        for finding in report.findings:
            curve = " | ".join(f"{share:.0%}" for share in finding.curve)
            print(f"| {session} | {finding.canary_type} | {curve} | {finding.verdict} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
