"""
Answer one request for a completion: read it, have it prepared, send it, relay the answer.

The answer's bytes pass as they come. Only its first event is looked at before it goes out,
since an overflow there can still be put right; its usage is read from a copy of its end.
"""

import logging
import time
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from proxy import headers as hd
from proxy.asked import Asked, Outcome, Prepared
from proxy.client import Client
from proxy.compactor import Compactor
from proxy.config import Config
from proxy.core.overflow import Overflow
from proxy.dialects.base import Dialect, Waiting
from proxy.dialects.known import Items
from proxy.errors import ProxyError
from proxy.events import emit, log_fault
from proxy.exchange_beginning import MOST_WHOLE_BYTES, Beginning, plain, read_beginning, read_rest, unread
from proxy.exchange_called import has_called
from proxy.exchange_refusal import refusal_behind_200
from proxy.exchange_waiting import Begun, Heartbeats, send
from proxy.metrics import OTHER_MODEL, Metrics, Overflowed
from proxy.notes_call import HEAD_BYTES
from proxy.relay import STREAM_HEADERS, answer_headers, is_stream
from proxy.renamed import Renamed
from proxy.turnstile import Turnstile
from proxy.understanding import memory_of, understand
from proxy.upstream import Upstream
from proxy.upstream_response import Response

# Of the end of a stream, for its usage; a whole answer has it anywhere.
_TAIL_BYTES = 32 * 1024
# They describe a body that is not sent.
_OF_ANOTHER_BODY = hd.OF_THE_BYTES | {
    b"content-type",
    b"content-length",
    *(name for name, _ in STREAM_HEADERS),
}

T = TypeVar("T")

UNREAD = Prepared(body=None, outcome=Outcome.NONE)
"""A request that goes upstream as it came, unmeasured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """What every exchange shares."""

    config: Config
    upstream: Upstream
    compactor: Compactor
    metrics: Metrics
    turnstile: Turnstile
    renamed: Renamed
    items: Items = field(default_factory=Items)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Refused:
    """An overflow answer that has been read whole, and the connection let go."""

    overflow: Overflow
    response: Response
    beginning: Beginning


class Exchange:
    """One request to a compacted endpoint."""

    def __init__(self, services: Services, dialect: Dialect, client: Client) -> None:
        self._services = services
        self._dialect = dialect
        self._client = client
        self._heart: Heartbeats | None = None

    async def run(self, raw: bytes, url: str) -> None:
        """Answer the request whose body is *raw*; errors of ours are raised as `ProxyError`."""
        services = self._services
        started = time.perf_counter()
        asked = self._understood(raw, url)
        prepared = UNREAD
        if asked is not None:
            raw = self._held(raw, asked)
            begun = Begun()
            prepared = await self._prepared(asked, begun)
            if not begun.is_set():
                services.metrics.overhead.observe(time.perf_counter() - started)
        else:
            raw = services.renamed.restored(self._client.credentials, raw)
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
            await self._relay(asked, prepared, refused.response, refused.beginning)
            return
        await self._once(asked, again, raw, url, after=overflow)

    def _held(self, raw: bytes, asked: Asked) -> bytes:
        """The body without its coding, once there is room for it and for what was read of it."""
        body = raw if asked.plain is None else asked.plain
        self._client.body.hold(max(0, memory_of(body) - len(raw)))
        return body

    def _understood(self, raw: bytes, url: str) -> Asked | None:
        """The request in our words; None where it is to be forwarded untouched."""
        config = self._services.config
        try:
            asked = understand(raw, url, self._client, self._dialect, config, items=self._services.items)
        except ProxyError:
            raise
        except Exception:
            log_fault("understanding", self._services.metrics.faults.inc)
            return None
        if isinstance(asked, Asked):
            return asked
        self._services.metrics.untouched.labels(self._dialect.name, asked.value).inc()
        emit("request.untouched", level=logging.DEBUG, dialect=self._dialect.name, why=asked.value)
        return None

    async def _prepared(self, asked: Asked, begun: Begun) -> Prepared:
        """What to send; what came, where a fault of ours leaves nothing better."""
        as_it_came = Prepared(body=None, outcome=Outcome.NONE, model=asked.parsed.conversation.model)
        work = self._services.compactor.prepare(asked, on_notes=begun.set)
        return await self._heart_of(asked).once_begun(self._spared(work, as_it_came, "preparing"), begun)

    async def _recovered(self, asked: Asked, overflow: Overflow, before: Prepared) -> Prepared | None:
        """What to send after an overflow answer, if there is anything shorter."""
        begun = Begun()
        work = self._services.compactor.recover(asked, overflow, before, on_notes=begun.set)
        return await self._heart_of(asked).once_begun(self._spared(work, None, "recovering"), begun)

    async def _spared(self, work: Coroutine[Any, Any, T], otherwise: T, where: str) -> T:
        """The result of *work*, or *otherwise*: a fault of ours must not become the client's."""
        try:
            return await work
        except Exception:
            log_fault(where, self._services.metrics.faults.inc)
            return otherwise

    def _heart_of(self, asked: Asked) -> Heartbeats:
        if self._heart is None:
            self._heart = Heartbeats(
                self._client,
                self._dialect,
                is_stream=asked.parsed.conversation.stream,
                every_seconds=self._services.config.context.keepalive_seconds,
                on_beat=self._services.metrics.keepalives.inc,
            )
        return self._heart

    async def _once(
        self, asked: Asked | None, prepared: Prepared, raw: bytes, url: str, after: Overflow | None = None
    ) -> _Refused | None:
        """
        Send and relay. An overflow is given back instead of relayed, unless it is the second
        one: *after* says that there was one, and whether it is to be asked alone.
        """
        services = self._services
        changed = prepared.body is not None or (asked is not None and asked.plain is not None)
        headers = hd.for_upstream(self._client.headers, drop=hd.OF_THE_BYTES if changed else ())
        body = raw if prepared.body is None else prepared.body
        alone = after is not None and after.pool_full
        async with services.turnstile.alone() if alone else services.turnstile.beside_others():
            began = time.perf_counter()
            sending = send(services.upstream, url, headers, body, patiently=self._client.started)
            response = await (self._heart.while_open(sending) if self._heart else sending)
            seconds = time.perf_counter() - began
            services.metrics.first_byte.labels(self._model(asked)).observe(seconds)
            try:
                beginning = await self._read_beginning(asked, prepared, response)
                if beginning.overflow and asked is not None and after is None:
                    whole = await read_rest(beginning)
                    return _Refused(overflow=beginning.overflow, response=response, beginning=whole)
                is_good = response.status == 200 and not beginning.overflow
                if asked is not None and after is not None:
                    self._overflowed(asked, Overflowed.RECOVERED if is_good else Overflowed.RELAYED)
                await self._relay(asked, prepared, response, beginning)
                if is_good and (prepared.outgrown or after):
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
        model = metrics.model(prepared.model)
        if metrics.conversations.saved((model, prepared.conversation)):
            metrics.runs_saved.labels(model).inc()

    async def _read_beginning(self, asked: Asked | None, prepared: Prepared, response: Response) -> Beginning:
        if asked is None:
            # Nothing could be put right.
            return unread(response)

        async def comment(chunk: bytes) -> None:
            await self._begin(prepared, response)
            await self._client.chunk(chunk)

        return await read_beginning(response, comment if asked.parsed.conversation.stream else None)

    async def _relay(
        self, asked: Asked | None, prepared: Prepared, response: Response, beginning: Beginning
    ) -> None:
        client, streams = self._client, is_stream(response)
        if client.started and not (response.status == 200 and streams):
            await self._say_in_stream(response, beginning)
            return
        refusal = None if client.started else refusal_behind_200(response, beginning)
        if refusal is not None:
            await client.whole(400, refusal, headers_of(prepared, response, but=_OF_ANOTHER_BODY))
            return
        await self._begin(prepared, response)
        keep = _TAIL_BYTES if streams else MOST_WHOLE_BYTES
        kept = list(beginning.held)
        size = sum(map(len, kept))
        head = b"".join(kept)[:HEAD_BYTES] if streams else b""
        waiting = self._heart.waiting if self._heart and self._heart.sent and streams else None
        try:
            for chunk in beginning.held:
                await self._pass_on(chunk, waiting)
            async for chunk in beginning.rest:
                if asked is not None and (streams or size <= keep):
                    kept.append(chunk)
                    size += len(chunk)
                    if streams and size > 2 * keep:
                        kept[:] = [b"".join(kept)[-keep:]]
                        size = len(kept[0])
                await self._pass_on(chunk, waiting)
            await client.end(waiting.end() if waiting else b"")
        finally:
            # Also where a client has all it wants, and leaves a stream that its server keeps open.
            if waiting and waiting.renamed:
                self._services.renamed.remember(self._client.credentials, *waiting.renamed)
            if asked is not None and response.status == 200 and (streams or size <= keep):
                try:
                    self._record(asked, prepared, response, head, b"".join(kept), streams=streams)
                except Exception:
                    log_fault("recording", self._services.metrics.faults.inc)

    async def _pass_on(self, chunk: bytes, waiting: Waiting | None) -> None:
        if waiting is not None:
            chunk = waiting.relay(chunk)
        if chunk:
            await self._client.chunk(chunk)

    def _record(
        self, asked: Asked, prepared: Prepared, response: Response, head: bytes, tail: bytes, *, streams: bool
    ) -> None:
        if streams and response.header("content-encoding"):
            return
        tail = plain(response, tail)
        usage = self._dialect.read_usage(head, tail, is_stream=streams)
        if usage is not None:
            self._services.compactor.record(prepared, usage)
        self._services.compactor.answered(
            asked, prepared, usage, lambda: has_called(self._dialect, tail, is_stream=streams)
        )

    async def _begin(self, prepared: Prepared, response: Response) -> None:
        if self._client.started:
            return
        await self._client.head(response.status, headers_of(prepared, response))

    async def _say_in_stream(self, response: Response, beginning: Beginning) -> None:
        """An answer that is no stream, to a client that already has a stream's head."""
        whole = await read_rest(beginning)
        text = plain(response, b"".join(whole.held)).decode("utf-8", "replace").strip()
        code = "upstream_error"
        message = f"the upstream answered {response.status}: {text[:2000]}"
        await self._client.end(self._dialect.error_event(response.status, code, message))


def headers_of(
    prepared: Prepared, response: Response, but: frozenset[bytes] = frozenset()
) -> list[tuple[bytes, bytes]]:
    """The headers of an answer, *but* those that do not hold for what is sent of it, and our own."""
    told = said_of(prepared)
    # An upstream that is a proxy like this one says the same of itself.
    left_out = but | {name for name, _ in told}
    return [*((name, value) for name, value in answer_headers(response) if name not in left_out), *told]


def said_of(prepared: Prepared) -> list[tuple[bytes, bytes]]:
    """The response headers that tell what happened to the conversation."""
    told = [(b"x-compaction", prepared.outcome.value.encode())]
    if prepared.budget:
        told.append((b"x-context-tokens", f"{prepared.tokens}/{prepared.budget}".encode()))
    return told
