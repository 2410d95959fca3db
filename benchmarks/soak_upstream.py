"""
A model server for a soak: it answers each turn with that turn's own canary, and now and then breaks.

What went wrong is kept by turn, so that an error which a client sees can be told from one of the proxy's
own making.
"""

import asyncio
import contextlib
import json
import random
import re
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace

from tests.support import wire_bytes
from tests.support.agent_sessions import MARK, naming_marks, remembering_upstream
from tests.support.answers import Answer
from tests.support.discovery import Server, overflow
from tests.support.gate import Gate
from tests.support.raw_upstream import RawUpstream, Send, Stall, Step
from tests.support.recorded import Recorded

TURN = "x-turn"
CANARY = re.compile(rb"canary-[a-z]+-\d+")
# A connection that was refused a moment ago may still be told of.
_GRACE_SECONDS = 5.0
_NEWER = 400


def canary(mark: str) -> str:
    """What answers the turn that has this *mark*; short enough to stand in one piece of a stream."""
    return mark.replace("mark", "canary")


class SoakUpstream:
    """
    A scripted server behind one that breaks things.

    Args:
        window: Tokens.
        share: Of the requests that meet a fault.
        seed: Decides which.

    Attributes:
        met: Kinds of faults, by turn; "notes" among them for one that a request for notes met.
        kinds: How often each happened.
        restarts: How often it was away for a moment.
    """

    def __init__(self, *, window: int, share: float, seed: int) -> None:
        self.window = window
        self.share = share
        self.met: dict[str, list[str]] = defaultdict(list)
        self.kinds: Counter[str] = Counter()
        self.restarts = 0
        self._chance = random.Random(seed)
        self._behind = remembering_upstream(window=window, slots=16)
        self._notes = naming_marks(self._behind)
        self._behind.script = self._answer
        self._front = RawUpstream(script=self._script)
        self._was_down_at = -_GRACE_SECONDS

    @property
    def url(self) -> str:
        """Where it listens."""
        return self._front.url

    @property
    def was_just_down(self) -> bool:
        """Whether a client may be told that it is not there."""
        return time.monotonic() - self._was_down_at < _GRACE_SECONDS

    @contextlib.asynccontextmanager
    async def running(self, *, restart_every_seconds: float) -> AsyncIterator["SoakUpstream"]:
        """Serve, but for a second or two after each *restart_every_seconds*."""
        async with self._behind.running():
            self._front.behind = self._behind.url
            up = asyncio.Event()
            task = asyncio.create_task(self._come_and_go(up, restart_every_seconds))
            await up.wait()
            try:
                yield self
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def _come_and_go(self, up: asyncio.Event, every_seconds: float) -> None:
        while True:
            async with self._front.running():
                up.set()
                await asyncio.sleep(every_seconds)
                self._was_down_at = time.monotonic()
            self.restarts += 1
            await asyncio.sleep(self._chance.uniform(0.5, 2.0))
            self._was_down_at = time.monotonic()

    def _answer(self, request: Recorded) -> Answer:
        """The canary of the newest turn, or notes."""
        self._forget()
        gate = Gate()
        asyncio.get_running_loop().call_later(self._chance.expovariate(1 / 0.15), gate.open)
        notes = self._notes(request)
        if notes is not None:
            return replace(notes, before=gate)
        # Calls, results and texts all carry it; the last message is never replaced.
        marks = MARK.findall(request.body.decode("utf-8", "replace"))
        return Answer(text=f"{canary(marks[-1])} is done.", before=gate)

    def _forget(self) -> None:
        """A soak that keeps all that arrived would run out of memory itself."""
        del self._behind.requests[:-_NEWER]
        del self._front.requests[:-_NEWER]

    def _script(self, request: Recorded) -> Iterable[Step] | None:
        turn = request.header(TURN)
        if turn is None or not request.is_chat or self._chance.random() > self.share:
            return None
        kind = self._chance.choice(tuple(_FAULTS))
        self.kinds[kind] += 1
        self.met[turn].append("notes" if self._behind.is_notes(request) else kind)
        return _FAULTS[kind](self.window)


def _too_long(window: int) -> list[Step]:
    status, body = overflow(Server.LLAMA_CPP, prompt=window + 900, limit=None, window=window) or (400, {})
    return [Send(wire_bytes.response(json.dumps(body).encode(), status=f"{status} Bad Request"))]


_FAULTS = {
    "reset": lambda _: wire_bytes.reset_before_headers(),
    "closed": lambda _: wire_bytes.closed_before_headers(),
    "500": lambda _: [Send(wire_bytes.status(500))],
    "503": lambda _: [Send(wire_bytes.status(503, retry_after="1"))],
    "429": lambda _: [Send(wire_bytes.status(429, retry_after="1"))],
    "a page": lambda _: [Send(wire_bytes.html(502))],
    "half of JSON": lambda _: [Send(wire_bytes.truncated_json())],
    "reset in the body": lambda _: wire_bytes.reset_in_body(),
    "reset in a stream": lambda _: wire_bytes.reset_in_stream(),
    "closed in a stream": lambda _: wire_bytes.closed_in_stream(),
    "a wrong length": lambda _: wire_bytes.length_too_long(),
    "silence": lambda _: [Stall()],
    "silence in a stream": lambda _: wire_bytes.stall_in_stream(),
    "too long": _too_long,
}
