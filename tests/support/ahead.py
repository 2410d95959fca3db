"""
Play an agent that runs its tools between two requests, before a proxy that works ahead of them.

The model calls a tool in every answer. What it writes for notes, and when, the test decides.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from tests.support.agent_sessions import AgentSession, naming_marks, remembering_upstream
from tests.support.answers import Answer
from tests.support.discovery import Server
from tests.support.prompts import STRICT
from tests.support.recorded import Recorded
from tests.support.scripted import ScriptedUpstream
from tests.support.watched import Got, Watched, watched

WINDOW = 4096
# About as long as an answer in the session.
CALL = Answer(text="I look at the next part. " * 5, calls=(("read_file", {"path": "src/a.py"}),))
AHEAD: dict[str, Any] = {"mode": "ahead", "prewarm": False}
_MOST_TURNS = 40
_LONGEST_SECONDS = 60.0


def limit_of(request: Recorded) -> Any:
    """The output limit of a request, in any format."""
    body = request.json
    return body.get("max_tokens", body.get("max_output_tokens"))


@dataclass(slots=True, kw_only=True)
class Working:
    """
    A running proxy, the model behind it, and an agent.

    Attributes:
        answer: What the model says where it is not asked for notes.
        notes: What it says to a request for notes; None for notes that name what was seen.
    """

    proxy: Watched
    upstream: ScriptedUpstream
    session: AgentSession
    answer: Answer = CALL
    notes: Callable[[Recorded], Answer | None] = lambda _: None
    last: Got = field(default_factory=lambda: Got(status=0, headers={}, body=b"", is_whole=False))

    def script(self, request: Recorded) -> Answer | None:
        """For the upstream."""
        if self.upstream.is_notes(request):
            return self.notes(request) or naming_marks(self.upstream)(request)
        return self.answer

    async def ask(self, session: AgentSession | None = None, **members: Any) -> Got:
        """One request, of this agent unless another is named; what follows it may be under way."""
        self.last = await self.proxy.send((session or self.session).body(**members))
        assert self.last.status == 200, self.last.body
        return self.last

    async def idle(self) -> None:
        """Nothing is under way any more."""
        await self.proxy.proxy.services.compactor.until_idle()

    @property
    def share(self) -> float:
        """How much of its budget the last prompt took."""
        tokens, _, budget = self.last.headers["x-context-tokens"].partition("/")
        return int(tokens) / int(budget)

    @property
    def prewarms(self) -> list[Recorded]:
        """Requests for a single token."""
        return [request for request in self.upstream.turns if limit_of(request) == 1]

    @property
    def asked(self) -> list[Recorded]:
        """Requests of agents that reached the upstream."""
        return [request for request in self.upstream.turns if limit_of(request) != 1]

    def fate(self, outcome: str) -> float:
        """How many notes made ahead came to this."""
        return self.proxy.counted("context_notes_ahead_total", outcome=outcome)

    async def until_noted(self) -> None:
        """Go on, with time for everything, until notes were asked for; they may have come to nothing."""
        before = len(self.upstream.notes)
        for _ in range(_MOST_TURNS):
            await self.ask()
            await self.idle()
            if len(self.upstream.notes) > before:
                return
            self.session.step()
        raise AssertionError("no notes were asked for")

    async def until_noting(self) -> None:
        """The same where the notes are held back: they are under way now."""
        for _ in range(_MOST_TURNS):
            await self.ask()
            if self.share > 0.5:
                await self.upstream.until(lambda upstream: bool(upstream.notes))
                return
            await self.idle()
            self.session.step()
        raise AssertionError("no notes were asked for")

    async def until_over(self) -> Got:
        """Go on, with time for everything, until a request is over `compact_at`; that one."""
        for _ in range(_MOST_TURNS):
            self.session.step()
            got = await self.ask()
            if got.outcome != "none":
                return got
            await self.idle()
        raise AssertionError("no request was over compact_at")


@contextlib.asynccontextmanager
async def working(
    *,
    window: int = WINDOW,
    slots: int = 1,
    server: Server = Server.LLAMA_CPP,
    turns: int = 8,
    **context: Any,
) -> AsyncIterator[Working]:
    """
    An agent at work before a proxy in mode "ahead", without prewarms; *context* changes `[context]`.

    It has had so many *turns* already: by default nearly as many as it takes for notes.
    """
    upstream = remembering_upstream(window=window, slots=slots, server=server, strict=STRICT)
    members = AHEAD | context
    store = {"store": members.pop("store")} if "store" in members else {}
    # What nobody ends would hang, not fail.
    async with (
        asyncio.timeout(_LONGEST_SECONDS),
        upstream.running(),
        watched(upstream.url, **store, **members) as proxy,
    ):
        made = Working(proxy=proxy, upstream=upstream, session=AgentSession(name="alice").step(turns))
        upstream.script = made.script
        yield made


def same_messages(one: bytes, other: bytes) -> bool:
    """Whether two bodies have the same messages."""
    return bool(json.loads(one)["messages"] == json.loads(other)["messages"])
