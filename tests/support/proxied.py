"""
Put the proxy in front of a scripted upstream, over real sockets, and keep what became of each request.

One request at a time can be told from the others by what arrived while it was answered.
"""

import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

from proxy.app import make_app
from proxy.config import Config, ContextConfig, StoreConfig, UpstreamConfig, UpstreamKind
from tests.support.early import EARLY
from tests.support.raw_client import ask
from tests.support.recorded import Recorded
from tests.support.scripted import ScriptedUpstream
from tests.support.serving import serving

MEMORY = StoreConfig(kind="memory")


@dataclass(frozen=True, slots=True, kw_only=True)
class Walked:
    """
    One request, and what came of it.

    Attributes:
        body: As the client sent it.
        status: That the client got.
        outcome: The header `x-compaction`.
        tokens: The prompt as the proxy measured it.
        budget: What it may fill.
        answer: The body that the client got.
        turns: Requests for the agent that reached the upstream; two where the first overflowed.
        notes: Requests for notes that reached it.
    """

    body: bytes
    status: int
    outcome: str
    tokens: int
    budget: int
    answer: bytes
    turns: tuple[Recorded, ...]
    notes: tuple[Recorded, ...]

    @property
    def view(self) -> bytes:
        """The body that was answered."""
        return self.turns[-1].body

    @property
    def messages(self) -> list[Any]:
        """The messages of the body that was answered."""
        return self.turns[-1].messages


@dataclass(frozen=True, slots=True)
class Proxied:
    """A running proxy and the upstream behind it."""

    url: str
    upstream: ScriptedUpstream

    async def send(
        self,
        body: bytes | Mapping[str, Any],
        *,
        key: str = "",
        headers: tuple[tuple[str, str], ...] = (),
        path: str = "/v1/chat/completions",
    ) -> Walked:
        """Ask for a completion at *path*, with *key* as bearer token, while nobody else does."""
        raw = body if isinstance(body, bytes) else wire(body)
        sent = [("Content-Type", "application/json"), *headers]
        if key:
            sent.append(("Authorization", f"Bearer {key}"))
        before = len(self.upstream.requests)
        answer, whole = await ask(self.url, path, body=raw, headers=sent)
        arrived = [r for r in self.upstream.requests[before:] if r.is_chat]
        tokens, _, budget = (answer.header("x-context-tokens") or "0/0").partition("/")
        return Walked(
            body=raw,
            status=answer.status,
            outcome=answer.header("x-compaction") or "",
            tokens=int(tokens),
            budget=int(budget),
            answer=whole,
            turns=tuple(r for r in arrived if not self.upstream.is_notes(r)),
            notes=tuple(r for r in arrived if self.upstream.is_notes(r)),
        )


@contextlib.asynccontextmanager
async def proxied(
    upstream: ScriptedUpstream, *, store: StoreConfig = MEMORY, kind: UpstreamKind = "auto", **context: Any
) -> AsyncIterator[Proxied]:
    """A proxy of its own before the running *upstream*; *context* are members of `[context]`."""
    config = Config(
        upstream=UpstreamConfig(url=upstream.url, kind=kind),
        context=ContextConfig(**(EARLY | context)),
        store=store,
    )
    async with serving(make_app(config, {})) as url:
        yield Proxied(url, upstream)


def wire(body: Mapping[str, Any]) -> bytes:
    """The body as the `openai` client writes it: no spaces, and no escapes that can be helped."""
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def messages_bytes(body: bytes) -> bytes:
    """
    The bytes of the messages of a body that begins with them, without the closing bracket.

    So that "extends" is a question of bytes alone.
    """
    text = body.decode()
    assert text.startswith(('{"messages":[', '{"input":['))
    start = text.index("[")
    _, end = json.JSONDecoder().raw_decode(text, start)
    return text[start : end - 1].encode()


def extends(later: bytes, earlier: bytes) -> bool:
    """Whether the messages of one body go on where those of the other end, byte for byte."""
    before, after = messages_bytes(earlier), messages_bytes(later)
    return after == before or after.startswith(before + b",")
