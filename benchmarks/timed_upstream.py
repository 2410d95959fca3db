"""
A scripted llama.cpp with one slot that takes its time for every token of a prompt, and for every one written.

Time is scaled, so that minutes pass in seconds. As on the real server a request waits for the
slot, what the slot holds of a prompt is not processed again, and a client that leaves ends
the work: what was processed by then is kept.
"""

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any

from tests.support.answers import Answer, Numbers, events, whole
from tests.support.asgi import send_events, send_whole
from tests.support.prompts import Prompt, common, count, render
from tests.support.recorded import Recorded
from tests.support.scripted import NOTES, ScriptedUpstream, _json


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """
    How fast a server is, and how fast time passes.

    Attributes:
        prompt: Tokens of a prompt in a second.
        written: Tokens written in a second.
        scale: Seconds of the clock for a second of the simulation.
    """

    prompt: float
    written: float
    scale: float

    async def sleep(self, seconds: float) -> None:
        """Let so many simulated *seconds* pass."""
        await asyncio.sleep(seconds * self.scale)


@dataclass(slots=True, kw_only=True)
class TimedUpstream(ScriptedUpstream):
    """
    See the module.

    Attributes:
        pace: Its speed.
        answers: Tokens of each answer to a request of the agent.
        noted: Tokens of each set of notes.
    """

    pace: Pace
    answers: int
    noted: int
    _held: Prompt = ()
    _slot: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def _complete(self, request: Recorded, send: Any) -> None:
        prompt = request.prompt = render(request.chat)
        size = count(prompt)
        async with self._slot:
            cached = min(common(self._held, prompt), size - 1)
            begun = time.monotonic()
            seconds = (size - cached) / self.pace.prompt
            try:
                await self.pace.sleep(seconds)
            except asyncio.CancelledError:
                done = (time.monotonic() - begun) / self.pace.scale / seconds
                self._held = first_tokens(prompt, cached + int(min(1.0, done) * (size - cached)))
                raise
            self._held = prompt
            completion = min(self._length(request), request.chat.get("max_tokens") or size)
            await self.pace.sleep(completion / self.pace.written)
        numbers = Numbers(prompt=size, cached=cached, completion=completion, has_timings=True)
        request.numbers = numbers
        answer = self.script(request) or Answer(text=NOTES)
        if request.json.get("stream"):
            stream = events(answer, numbers, model="timed", number=len(self.requests), include_usage=True)
            await send_events(request, send, answer, stream)
        else:
            said = whole(answer, numbers, model="timed", number=len(self.requests))
            await send_whole(request, send, answer, _json(said))

    def _length(self, request: Recorded) -> int:
        return self.noted if self.is_notes(request) else self.answers


def first_tokens(prompt: Prompt, tokens: int, chars_per_token: int = 4) -> Prompt:
    """The first *tokens* of a prompt; the last segment may be cut."""
    kept: list[str] = []
    for segment in prompt:
        size = count([segment])
        if size > tokens:
            return (*kept, segment[: tokens * chars_per_token])
        kept.append(segment)
        tokens -= size
    return tuple(kept)
