"""
How many tokens does a server process for a session behind the proxy, over the least that it must?

    python -m benchmarks.economy                        simulated server, windows of 8k, 16k and 32k
    python -m benchmarks.economy --llama                real llama.cpp with a small model, 4k and 8k
    python -m benchmarks.economy --window 8192 --session own

Recorded sessions go through the real proxy over real sockets. The simulated server has one
slot with a prefix cache, llama.cpp's window, error and timings, and refuses what strict chat
templates refuse. Its notes are as long as the instruction allows. What the model's answers
were is recorded, so every number follows from the prompts alone.
"""

import argparse
import asyncio
import json
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks import economy_llama
from benchmarks.economy_cost import HEADER, Asked, Cost, row, users_shown
from benchmarks.economy_sessions import OWN, Session, sessions
from proxy.config import ContextConfig
from tests.support.agent_sessions import NOTES_MARKER
from tests.support.answers import Answer
from tests.support.early import EARLY
from tests.support.llama import llama
from tests.support.prompts import STRICT, Prompt, refusal, text_of
from tests.support.proxied import proxied, wire
from tests.support.recorded import Recorded
from tests.support.scripted import ScriptedUpstream

WINDOWS = (8192, 16384, 32768)
# What the tests' own proxy has otherwise.
SHIPPED = {name: getattr(ContextConfig(), name) for name in EARLY}
# Characters of a word and the space after it, as English has them.
_WORD_CHARS = 6
_LINE = "The agent went on with part {part} of stage {stage} and noted what it had seen there.\n"


async def simulated(session: Session, window: int, **context: Any) -> Cost:
    """Replay *session* before a simulated server; *context* are members of `[context]`."""
    upstream = ScriptedUpstream(window=window, notes_marker=NOTES_MARKER)
    upstream.script = lambda request: _notes(request, upstream)
    cost = Cost(session=session.name, window=window)
    async with upstream.running(), proxied(upstream, **(SHIPPED | context)) as proxy:
        for body in session.bodies:
            # What the recording itself breaks is not held against the proxy.
            upstream.strict = frozenset(
                r for r in STRICT if refusal(body["messages"], frozenset({r})) is None
            )
            walk = await proxy.send(wire(body))
            arrived = sorted((*walk.turns, *walk.notes), key=upstream.requests.index)
            cost.asked += [_asked(request, upstream) for request in arrived]
            cost.requests += 1
            cost.refused += walk.status != 200 or any(request.status != 200 for request in arrived)
            cost.compactions += walk.outcome == "compacted"
            cost.trims += walk.outcome == "trimmed"
            cost.users.append(users_shown(body, walk.view))
        cost.history = upstream.count(session.bodies[-1])
    return cost


def _notes(request: Recorded, upstream: ScriptedUpstream) -> Answer | None:
    """Notes of as many words as were asked for, each time others."""
    if not upstream.is_notes(request):
        return None
    asked = re.search(r"in at most (\d+) words", text_of(request.messages[-1]))
    chars = _WORD_CHARS * int(asked[1] if asked else 300)
    stage = len(upstream.notes)
    lines = "".join(_LINE.format(part=part, stage=stage) for part in range(chars // len(_LINE) + 1))
    return Answer(text=lines[:chars].rpartition("\n")[0])


def _asked(request: Recorded, upstream: ScriptedUpstream) -> Asked:
    is_notes = upstream.is_notes(request)
    numbers = request.numbers
    return Asked(
        view=_tokens(_view(request.prompt) if is_notes else request.prompt, upstream.chars_per_token),
        prompt=numbers.prompt if numbers else 0,
        cached=numbers.cached if numbers else 0,
        is_notes=is_notes,
    )


def _view(prompt: Prompt) -> Prompt:
    """The prompt of a notes request up to the instruction."""
    at = next(i for i in range(len(prompt) - 1, -1, -1) if NOTES_MARKER in prompt[i])
    return (*prompt[:at], prompt[at].partition(NOTES_MARKER)[0])


def _tokens(prompt: Prompt, chars: int) -> list[str]:
    return [segment[at : at + chars] for segment in prompt for at in range(0, len(segment), chars)]


def main(arguments: Sequence[str]) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--llama", action="store_true", help="replay before the real llama.cpp")
    parser.add_argument("--window", type=int, action="append", help="tokens; may be given several times")
    parser.add_argument("--session", action="append", help="by name; may be given several times")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=JSON", help="of [context]")
    chosen = parser.parse_args(arguments)
    context = {key: json.loads(value) for key, _, value in (pair.partition("=") for pair in chosen.set)}
    print(HEADER)
    print("|---" * (HEADER.count("|") - 1) + "|")
    costs = _llama(chosen, context) if chosen.llama else _simulated(chosen, context)
    for cost in costs:
        print(row(cost), flush=True)
    return 0


def _simulated(chosen: argparse.Namespace, context: dict[str, Any]) -> Iterator[Cost]:
    for window in chosen.window or WINDOWS:
        for session in sessions(chosen.session or ()):
            yield asyncio.run(simulated(session, window, **context))


def _llama(chosen: argparse.Namespace, context: dict[str, Any]) -> Iterator[Cost]:
    for window in chosen.window or economy_llama.WINDOWS:
        with llama(window=window) as running:
            for session in sessions(chosen.session or [OWN]):
                yield asyncio.run(economy_llama.real(session, running, window, **(SHIPPED | context)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
