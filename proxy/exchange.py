"""
Answer one request for a completion: read it, have it prepared, send it, relay the answer.

The answer's bytes pass as they come. Only its first event is looked at before it goes out,
since an overflow there can still be put right; its usage is read from a copy of its end.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TypeVar

from proxy import headers as hd
from proxy.asked import Asked, Outcome, Prepared
from proxy.client import Client
from proxy.compactor import Compactor
from proxy.config import Config
from proxy.core.overflow import Overflow, read_overflow
from proxy.dialects.base import Dialect
from proxy.dialects.sse import Events, split_first
from proxy.encodings import decoded
from proxy.errors import BadEncoding, BodyTooLarge, UpstreamUnreachable
from proxy.events import emit
from proxy.metrics import OTHER_MODEL, Metrics, Overflowed
from proxy.notes_call import HEAD_BYTES
from proxy.relay import STREAM_HEADERS, answer_headers, is_stream
from proxy.turnstile import Turnstile
from proxy.understanding import understand
from proxy.upstream import Response, Upstream

# An error body that says "too long" is short; a longer one is relayed without a look.
_MOST_ERROR_BYTES = 256 * 1024
# Of the end of a stream, for its usage; of a whole answer, which has it anywhere.
_TAIL_BYTES, _MOST_WHOLE_BYTES = 32 * 1024, 8 * 1024 * 1024
# What may come before the first event of a stream: comments while the upstream prefills.
_MOST_PEEKED_BYTES = 64 * 1024
# Once a 200 is out nobody else can try again.
_TRIES_AFTER_HEAD = 5
_LONGEST_RETRY_AFTER_SECONDS = 60.0


T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """What every exchange shares."""

    config: Config
    upstream: Upstream
    compactor: Compactor
    metrics: Metrics
    turnstile: Turnstile


@dataclass(slots=True)
class _Peeked:
    """The beginning of an answer: what was read of it, and whether it says that the prompt is too long."""

    held: list[bytes]
    rest: AsyncIterator[bytes]
    overflow: Overflow | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Refused:
    """An overflow answer that has been read whole, and the connection let go."""

    overflow: Overflow
    response: Response
    peeked: _Peeked


class Exchange:
    """One request to a compacted endpoint."""

    def __init__(self, services: Services, dialect: Dialect, client: Client) -> None:
        self._services = services
        self._dialect = dialect
        self._client = client
        self._notes_begun = asyncio.Event()
        self._heartbeats = 0

    async def run(self, raw: bytes, url: str) -> None:
        """Answer the request whose body is *raw*; errors of ours are raised as `ProxyError`."""
        services = self._services
        started = time.perf_counter()
        asked = self._understood(raw, url)
        prepared = Prepared(body=None, outcome=Outcome.NONE)
        if asked is not None:
            prepared = await self._prepared(asked)
            if not self._notes_begun.is_set():
                services.metrics.overhead.observe(time.perf_counter() - started)
        refused = await self._once(asked, prepared, raw, url)
        if refused is None:
            return
        assert asked is not None
        overflow = refused.overflow
        again: Prepared | None = prepared
        if not overflow.pool_full:
            again = await self._recovered(asked, overflow, prepared)
        if again is None:
            self._overflowed(asked, Overflowed.RELAYED)
            await self._relay(asked, prepared, refused.response, refused.peeked)
            return
        await self._once(asked, again, raw, url, after=overflow)

    def _understood(self, raw: bytes, url: str) -> Asked | None:
        """The request in our words; None where it is to be forwarded untouched."""
        limit = self._services.config.server.max_body_bytes
        asked = understand(raw, url, self._client, self._dialect, limit)
        if isinstance(asked, Asked):
            return asked
        self._services.metrics.untouched.labels(self._dialect.name, asked.value).inc()
        emit("request.untouched", level=logging.DEBUG, dialect=self._dialect.name, why=asked.value)
        return None

    async def _prepared(self, asked: Asked) -> Prepared:
        work = self._services.compactor.prepare(asked, on_notes=self._notes_begun.set)
        return await self._with_heartbeats(asked, asyncio.ensure_future(work))

    async def _recovered(self, asked: Asked, overflow: Overflow, before: Prepared) -> Prepared | None:
        """What to send after an overflow answer, if there is anything shorter."""
        work = self._services.compactor.recover(asked, overflow, before, on_notes=self._notes_begun.set)
        return await self._with_heartbeats(asked, asyncio.ensure_future(work))

    async def _with_heartbeats(self, asked: Asked, work: "asyncio.Future[T]") -> T:
        """Wait for *work*; a streaming client that waits for notes is told that we live."""
        every = self._services.config.context.keepalive_seconds
        begun = asyncio.ensure_future(self._notes_begun.wait())
        try:
            await asyncio.wait((work, begun), return_when=asyncio.FIRST_COMPLETED)
            while not work.done():
                await asyncio.wait((work,), timeout=every)
                if not work.done() and asked.parsed.conversation.stream:
                    if not self._client.started:
                        await self._client.head(
                            200, [(b"content-type", b"text/event-stream"), *STREAM_HEADERS]
                        )
                    await self._client.chunk(self._dialect.heartbeat(self._heartbeats))
                    self._heartbeats += 1
                    self._services.metrics.keepalives.inc()
            return work.result()
        finally:
            begun.cancel()
            if not work.done():
                work.cancel()
                await asyncio.gather(work, return_exceptions=True)

    async def _once(
        self, asked: Asked | None, prepared: Prepared, raw: bytes, url: str, after: Overflow | None = None
    ) -> _Refused | None:
        """
        Send and relay. An overflow is given back instead of relayed, unless it is the second
        one: *after* says that there was one, and whether it is to be asked alone.
        """
        services = self._services
        changed = prepared.body is not None
        headers = hd.for_upstream(self._client.headers, drop=(b"content-encoding",) if changed else ())
        body = raw if prepared.body is None else prepared.body
        alone = after is not None and after.pool_full
        async with services.turnstile.alone() if alone else services.turnstile.beside_others():
            began = time.perf_counter()
            response = await self._sent(url, headers, body)
            seconds = time.perf_counter() - began
            services.metrics.first_byte.labels(self._model(asked)).observe(seconds)
            try:
                peeked = await self._peek(prepared if asked else None, response)
                if peeked.overflow and asked is not None and after is None:
                    return await _held(response, peeked)
                if asked is not None and after is not None:
                    self._overflowed(asked, Overflowed.RELAYED if peeked.overflow else Overflowed.RECOVERED)
                await self._relay(asked, prepared, response, peeked)
                if response.status == 200 and not peeked.overflow and (prepared.outgrown or after):
                    self._saved(prepared)
            finally:
                await response.close()
        return None

    def _model(self, asked: Asked | None) -> str:
        metrics = self._services.metrics
        return metrics.model(asked.parsed.conversation.model) if asked else OTHER_MODEL

    def _overflowed(self, asked: Asked, outcome: Overflowed) -> None:
        self._services.metrics.overflows.labels(self._model(asked), outcome.value).inc()

    def _saved(self, prepared: Prepared) -> None:
        metrics = self._services.metrics
        if metrics.conversations.saved(prepared.conversation):
            metrics.runs_saved.labels(metrics.model(prepared.model)).inc()

    async def _sent(self, url: str, headers: list[tuple[str, str]], body: bytes) -> Response:
        """The head of the upstream's answer. Once our 200 is out, faults that pass are waited for here."""
        tries = 1 if not self._client.started else _TRIES_AFTER_HEAD
        for left in range(tries - 1, -1, -1):
            try:
                response = await self._services.upstream.send("POST", url, headers=headers, body=body)
            except UpstreamUnreachable:
                if not left:
                    raise
                await asyncio.sleep(1)
                continue
            if response.status not in (429, 503) or not left:
                return response
            await response.close()
            await asyncio.sleep(_retry_after(response))
        raise AssertionError("unreachable")

    async def _peek(self, prepared: Prepared | None, response: Response) -> _Peeked:
        """Read as much of the answer as tells an overflow, forwarding comments of a stream at once."""
        rest = response.chunks().__aiter__()
        peeked = _Peeked([], rest)
        if response.status == 200 and is_stream(response):
            await self._peek_stream(prepared, response, peeked)
            return peeked
        looks_wrong = response.status >= 400
        size = 0
        async for chunk in rest:
            peeked.held.append(chunk)
            size += len(chunk)
            # A 200 is only looked into where it begins like an error.
            if not looks_wrong and not peeked.held[0].lstrip().startswith(b'{"error"'):
                return peeked
            if size > _MOST_ERROR_BYTES:
                return peeked
        peeked.overflow = read_overflow(response.status, _plain(response, b"".join(peeked.held)))
        return peeked

    async def _peek_stream(self, prepared: Prepared | None, response: Response, peeked: _Peeked) -> None:
        if response.header("content-encoding"):
            return
        reader = Events()
        size = 0
        async for chunk in peeked.rest:
            size += len(chunk)
            events = reader.feed(chunk)
            if not events and not reader.is_in_event and not peeked.held:
                # Comments only: they show the client that the upstream lives.
                await self._begin(prepared, response)
                await self._client.chunk(chunk)
                continue
            peeked.held.append(chunk)
            said = [event for event in events if event.data]
            if said:
                peeked.overflow = _overflow_in(said[0].name, said[0].data)
                return
            if size > _MOST_PEEKED_BYTES:
                return
        for event in reader.end():
            peeked.overflow = peeked.overflow or _overflow_in(event.name, event.data)

    async def _relay(
        self, asked: Asked | None, prepared: Prepared, response: Response, peeked: _Peeked
    ) -> None:
        client, streams = self._client, is_stream(response)
        if client.started and not (response.status == 200 and streams):
            await self._say_in_stream(response, peeked)
            return
        await self._begin(prepared if asked else None, response)
        keep = _TAIL_BYTES if streams else _MOST_WHOLE_BYTES
        kept: list[bytes] = list(peeked.held)
        size = sum(map(len, kept))
        head = b"".join(kept)[:HEAD_BYTES] if streams else b""
        held = peeked.held
        if self._heartbeats and streams:
            first, rest = split_first(b"".join(held))
            held = [self._dialect.after_heartbeats(first) + rest]
        for chunk in held:
            await client.chunk(chunk)
        async for chunk in peeked.rest:
            await client.chunk(chunk)
            if asked is None:
                continue
            kept.append(chunk)
            size += len(chunk)
            if streams and size > 2 * keep:
                kept[:] = [b"".join(kept)[-keep:]]
                size = len(kept[0])
        await client.end()
        if asked is not None and response.status == 200 and (streams or size <= keep):
            self._record(prepared, response, head, b"".join(kept), streams=streams)

    def _record(
        self, prepared: Prepared, response: Response, head: bytes, tail: bytes, *, streams: bool
    ) -> None:
        if streams and response.header("content-encoding"):
            return
        usage = self._dialect.read_usage(head, _plain(response, tail), is_stream=streams)
        if usage is not None:
            self._services.compactor.record(prepared, usage)

    async def _begin(self, prepared: Prepared | None, response: Response) -> None:
        if self._client.started:
            return
        await self._client.head(response.status, [*answer_headers(response), *said_of(prepared)])

    async def _say_in_stream(self, response: Response, peeked: _Peeked) -> None:
        """An answer that is no stream, to a client that already has a stream's head."""
        held = b"".join([*peeked.held, *[chunk async for chunk in peeked.rest]])
        text = _plain(response, held).decode("utf-8", "replace").strip()
        code = "upstream_error"
        message = f"the upstream answered {response.status}: {text[:2000]}"
        await self._client.end(self._dialect.error_event(response.status, code, message))


async def _held(response: Response, peeked: _Peeked) -> _Refused:
    assert peeked.overflow is not None
    rest = [chunk async for chunk in peeked.rest]
    whole = _Peeked([*peeked.held, *rest], _nothing(), peeked.overflow)
    return _Refused(overflow=peeked.overflow, response=response, peeked=whole)


async def _nothing() -> AsyncIterator[bytes]:
    return
    yield b""


def said_of(prepared: Prepared | None) -> list[tuple[bytes, bytes]]:
    """The response headers that tell what happened to the conversation."""
    if prepared is None:
        return []
    told = [(b"x-compaction", prepared.outcome.value.encode())]
    if prepared.budget:
        told.append((b"x-context-tokens", f"{prepared.tokens}/{prepared.budget}".encode()))
    return told


def _overflow_in(name: bytes, data: bytes) -> Overflow | None:
    """An overflow that the first event of a stream tells; ordinary chunks are not searched."""
    is_error = name == b"error" or b'"error"' in data[:2000] or b'"code"' in data[:200]
    return read_overflow(200, data) if is_error else None


def _plain(response: Response, body: bytes) -> bytes:
    try:
        return decoded(body, response.header("content-encoding"), _MOST_WHOLE_BYTES)
    except (BadEncoding, BodyTooLarge):
        return body


def _retry_after(response: Response) -> float:
    said = response.header("retry-after")
    try:
        return min(_LONGEST_RETRY_AFTER_SECONDS, max(0.0, float(said)))
    except ValueError:
        return 1.0
