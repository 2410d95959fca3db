"""
How long does an agent wait for its compactions, with notes made inline and ahead of need?

    python -m benchmarks.waiting            about a minute
    python -m benchmarks.waiting --write    put the table into docs/speed.md

The same session is played through the whole proxy, over real sockets, against a simulated
server with one slot (`timed_upstream`), for tools that take 0, 2 and 10 s. What a request took
longer than the server needs for the tokens that are new in it is waiting that was added; what
every request takes longer, the median, is the benchmark's own and taken off. Less than a second
(of the simulation) is what else the machine does, except where the request was compacted.
"""

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.page import put_into_page
from benchmarks.timed_upstream import Pace, TimedUpstream
from tests.support.agent_sessions import NOTES_MARKER, AgentSession, naming_marks
from tests.support.answers import Answer
from tests.support.prompts import Prompt, common, count, render
from tests.support.recorded import Recorded
from tests.support.watched import watched

# A model of some ten billion parameters on a good graphics card.
PACE = Pace(prompt=1500, written=60, scale=1 / 15)
WINDOW = 16384
ANSWER_TOKENS, NOTES_TOKENS = 100, 350
RESULT_WORDS = 400
TURNS = 25
TOOL_SECONDS = (0.0, 2.0, 10.0)
_NOISE_SECONDS = 1.0
MODES = ("inline", "ahead")


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """
    A session that was played.

    Attributes:
        compactions: How many.
        added_seconds: Waiting that they added, all together.
        used: Sets of notes made ahead that were used.
        wasted: That were aborted, or not used.
        prewarms: Prompts that were processed ahead to their end.
    """

    compactions: int
    added_seconds: float
    used: int
    wasted: int
    prewarms: int

    @property
    def each(self) -> float:
        """Added waiting for one compaction, in seconds."""
        return self.added_seconds / max(1, self.compactions)


async def play(mode: str, tool_seconds: float | None, *, turns: int = TURNS, pace: Pace = PACE) -> Played:
    """Play the session with tools that take *tool_seconds*; None for as long as the work ahead takes."""
    upstream = TimedUpstream(
        window=WINDOW, notes_marker=NOTES_MARKER, pace=pace, answers=ANSWER_TOKENS, noted=NOTES_TOKENS
    )
    naming = naming_marks(upstream)

    def script(request: Recorded) -> Answer | None:
        if upstream.is_notes(request):
            return naming(request)
        return Answer(text="I look at the next part. " * 12, calls=(("read_file", {"path": "src/a.py"}),))

    upstream.script = script
    session = AgentSession(name="agent", result_words=RESULT_WORDS)
    late: list[tuple[float, bool]] = []
    before: Prompt = ()
    async with upstream.running(), watched(upstream.url, mode=mode) as proxy:
        for _ in range(turns):
            prompt = render(session.body())
            started = time.monotonic()
            got = await proxy.send(session.body())
            took = (time.monotonic() - started) / pace.scale
            assert got.status == 200, got.body
            new = count(prompt) - common(before, prompt)
            longer = took - new / pace.prompt - ANSWER_TOKENS / pace.written
            late.append((longer, got.outcome == "compacted"))
            before = prompt
            if tool_seconds is None:
                await proxy.proxy.services.compactor.until_idle()
            else:
                await pace.sleep(tool_seconds)
            session.step()
        count_ahead = proxy.counted
        # Vocabulary and server are read and asked for the first.
        del late[0]
        usual = statistics.median(longer for longer, _ in late)
        added = [(longer - usual, is_compacted) for longer, is_compacted in late]
        return Played(
            compactions=len(proxy.events("context.compacted")),
            added_seconds=sum(more for more, is_compacted in added if is_compacted or more > _NOISE_SECONDS),
            used=int(count_ahead("context_notes_ahead_total", outcome="used")),
            wasted=len(proxy.events("context.notes_wasted")),
            prewarms=int(count_ahead("context_prewarms_total", outcome="done")),
        )


async def measure(tool_seconds: Sequence[float] = TOOL_SECONDS) -> dict[float, dict[str, Played]]:
    """Every mode with every kind of tools, one after the other: they would disturb each other's clocks."""
    return {seconds: {mode: await play(mode, seconds) for mode in MODES} for seconds in tool_seconds}


def table(found: dict[float, dict[str, Played]]) -> str:
    """What is printed."""
    lines = [
        "| tools take | compactions | waiting added by each, inline | ahead | ahead / inline "
        "| notes made ahead: used, wasted | prompts processed ahead |",
        "|---|---|---|---|---|---|---|",
    ]
    for seconds, by_mode in found.items():
        inline, ahead = by_mode["inline"], by_mode["ahead"]
        lines.append(
            f"| {seconds:g} s | {inline.compactions}, {ahead.compactions} | {inline.each:.1f} s "
            f"| {ahead.each:.1f} s | {ahead.each / inline.each:.2f} | {ahead.used}, {ahead.wasted} "
            f"| {ahead.prewarms} |"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.waiting")
    parser.add_argument("--write", action="store_true", help="put the table into docs/speed.md")
    written = parser.parse_args(arguments).write
    found = table(asyncio.run(measure()))
    print(found)
    if written:
        put_into_page("waiting", found)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
