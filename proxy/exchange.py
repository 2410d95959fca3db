"""
Answer one request for a completion: have it read and prepared, send it, and once more if it did not fit.

Only the first event of an answer is looked at before it goes out, since an overflow there can
still be put right; how it passes is the business of `exchange_answer`.
"""

import logging
import time
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from proxy import headers as hd
from proxy.asked import Asked, Outcome, Prepared
from proxy.client import Client
from proxy.core.overflow import Overflow
from proxy.dialects.base import Dialect
from proxy.errors import ProxyError
from proxy.events import emit, log_fault
from proxy.exchange_answer import Answer
from proxy.exchange_beginning import Beginning, read_rest
from proxy.exchange_services import Services
from proxy.exchange_waiting import Begun, Heartbeats, send
from proxy.metrics import OTHER_MODEL, Overflowed
from proxy.understanding import memory_of, understand

T = TypeVar("T")

UNREAD = Prepared(body=None, outcome=Outcome.NONE)
"""A request that goes upstream as it came, unmeasured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Refused:
    """An overflow answer that has been read whole, and the connection let go."""

    overflow: Overflow
    answer: Answer
    whole: Beginning


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
            await refused.answer.relay(refused.whole)
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
            answer = Answer(
                services,
                self._dialect,
                self._client,
                asked=asked,
                prepared=prepared,
                response=response,
                heart=self._heart,
            )
            try:
                beginning = await answer.beginning()
                if beginning.overflow and asked is not None and after is None:
                    whole = await read_rest(beginning)
                    return _Refused(overflow=beginning.overflow, answer=answer, whole=whole)
                is_good = response.status == 200 and not beginning.overflow
                if asked is not None and after is not None:
                    self._overflowed(asked, Overflowed.RECOVERED if is_good else Overflowed.RELAYED)
                await answer.relay(beginning)
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
