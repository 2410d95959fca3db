"""
What does a session cost on the real llama.cpp, by its own timings?

The model is a small one whose words are worth little. So its notes are only as good as a
record must be to be accepted, and they take the room that they may: what is measured is the
server's work. It has one slot, and keeps the whole cache of its sliding-window model.
"""

import asyncio
from typing import Any

from benchmarks.economy_cost import Asked, Cost, users_shown
from benchmarks.economy_sessions import Session
from tests.support.agent_sessions import NOTES_MARKER
from tests.support.llama import SAMPLING, Llama
from tests.support.passing import Passed, Passing
from tests.support.proxied import wire
from tests.support.watched import watched

WINDOWS = (4096, 8192)
# A longer session says nothing more, and takes minutes.
WINDOWS_LONG = 4
# This model has no thoughts; a heartbeat would hide the outcome, which the headers tell.
_CONTEXT: dict[str, Any] = {"notes_reasoning_tokens": 0, "keepalive_seconds": 600.0}
_OK = 200


async def real(session: Session, llama: Llama, window: int, **context: Any) -> Cost:
    """Replay *session* before the running *llama*; *context* are members of `[context]`."""
    relay = Passing(behind=llama.url)
    cost = Cost(session=session.name, window=window)
    async with relay.running(), watched(relay.url, **(_CONTEXT | context)) as proxy:
        for recorded in session.bodies:
            body = recorded | {"model": "gemma", "max_tokens": 1, **SAMPLING}
            before = len(relay.passed)
            got = await proxy.send(wire(body))
            arrived = [passed for passed in relay.passed[before:] if passed.is_completion]
            cost.requests += 1
            cost.refused += got.status != _OK or any(passed.status != _OK for passed in arrived)
            cost.compactions += got.outcome == "compacted"
            cost.trims += got.outcome == "trimmed"
            cost.users.append(users_shown(body, arrived[-1].body))
            cost.history = await asyncio.to_thread(llama.count, body)
            if cost.history >= WINDOWS_LONG * window:
                break
    cost.asked = await asyncio.to_thread(lambda: [_asked(llama, passed) for passed in relay.completions])
    return cost


def _asked(llama: Llama, passed: Passed) -> Asked:
    is_answered = passed.status == _OK
    return Asked(
        view=_tokens(llama, passed),
        prompt=passed.prompt if is_answered else 0,
        cached=passed.cached if is_answered else 0,
        is_notes=passed.is_notes,
    )


def _tokens(llama: Llama, passed: Passed) -> list[int]:
    """The prompt as the server's own tokens; of a request for notes what stands before the instruction."""
    status, rendered = llama.post("/apply-template", passed.request.json)
    assert status == _OK, rendered
    prompt: str = rendered["prompt"]
    if passed.is_notes:
        prompt = prompt.rpartition(NOTES_MARKER)[0]
    status, found = llama.post("/tokenize", {"content": prompt, "add_special": True, "parse_special": True})
    assert status == _OK, found
    tokens: list[int] = found["tokens"]
    return tokens
