"""
What lives as long as the process, and how does it begin, change and end?
"""

import asyncio
import logging
import time
from collections.abc import Mapping
from dataclasses import replace

from prometheus_client import CollectorRegistry, ProcessCollector

from proxy.admission import Places, Room
from proxy.app_health import Health
from proxy.app_store import store_for
from proxy.board import MOST_CONVERSATIONS, Board
from proxy.callers import Access
from proxy.compactor import Compactor
from proxy.config import Config, ContextConfig
from proxy.counting import Counts
from proxy.dialects.anthropic_messages import ANTHROPIC_MESSAGES
from proxy.dialects.base import Dialect
from proxy.dialects.chat_completions import CHAT_COMPLETIONS
from proxy.dialects.responses import RESPONSES
from proxy.errors import StoreError
from proxy.events import emit
from proxy.exchange_services import Services
from proxy.metrics import Metrics
from proxy.origins import Origins
from proxy.renamed import Renamed
from proxy.sizing import Sizing
from proxy.status import Status
from proxy.stores.guarded import GuardedStore
from proxy.tokenizer import Tokenizer
from proxy.turnstile import Turnstile
from proxy.understanding import Untouched
from proxy.upstream import Upstream
from proxy.way_out import proxy_for
from proxy.windows import Windows

DIALECTS: dict[str, Dialect] = {
    dialect.endpoint: dialect for dialect in (CHAT_COMPLETIONS, RESPONSES, ANTHROPIC_MESSAGES)
}

# A broken store fails every request; a person needs to hear of it once a while.
_WARN_EVERY_SECONDS = 60.0


class Proxy:
    """Everything that lives as long as the process. For one event loop, which need not run yet."""

    def __init__(self, config: Config, environ: Mapping[str, str]) -> None:
        self.config = config
        self.access = Access(config.server)
        self.origins = Origins(config.server)
        self.metrics = Metrics(CollectorRegistry())
        ProcessCollector(registry=self.metrics.registry)
        for path, dialect in DIALECTS.items():
            self.metrics.expect(path, dialect.name)
            for reason in Untouched:
                self.metrics.untouched.labels(dialect.name, reason.value)
        self.metrics.expect("other", "none")
        self.upstream = Upstream(
            url=config.upstream.url,
            key=environ.get(config.upstream.key_env, "") if config.upstream.key_env else "",
            proxy=proxy_for(config.upstream.url, environ),
            connect_timeout_seconds=config.upstream.connect_timeout_seconds,
            idle_timeout_seconds=config.upstream.idle_timeout_seconds,
        )
        self.upstream.circuit.on_change = self.metrics.circuit_open.set
        self.tokenizer = Tokenizer()
        self.board = Board(
            now=time.time,
            most=MOST_CONVERSATIONS if config.status.enabled else 0,
            show_content=config.status.show_content,
        )
        self.store = store_for(config.store, environ, self._store_failed)
        self.places = Places(config.limits.requests_at_once, config.limits.requests_waiting)
        self.metrics.waiting.set_function(lambda: self.places.waiting)
        self.room = Room(config.limits.bodies_at_once_bytes)
        self.turnstile = Turnstile(notes=config.limits.notes_at_once)
        self.windows = Windows(
            self.upstream.ask,
            configured=config.context.known_window,
            now=time.monotonic,
            kind="" if config.upstream.kind == "auto" else config.upstream.kind,
            on_window=lambda model, window: self.metrics.window.labels(self.metrics.model(model)).set(window),
        )
        self._sizing = Sizing(self.tokenizer, Counts())
        self.services = Services(
            config=config,
            upstream=self.upstream,
            compactor=self.compactor_for(config.context),
            metrics=self.metrics,
            turnstile=self.turnstile,
            renamed=Renamed(),
        )
        self.health = Health(self.upstream, self.store, self.metrics)
        self.status = Status(
            self.board,
            now=time.time,
            upstream_url=self.upstream.target.root,
            upstream_state=self.health.upstream_told,
            store_state=self.health.store_state,
        )
        self.is_stopping = False
        self._ending: asyncio.Task[None] | None = None
        # Requests that began before the configuration was read again still use them.
        self._replaced: list[Compactor] = []
        self._warned_at = -_WARN_EVERY_SECONDS

    def compactor_for(self, context: ContextConfig) -> Compactor:
        """A compactor with these settings; all share what is stored and known."""
        return Compactor(
            context,
            upstream=self.upstream,
            store=self.store,
            windows=self.windows,
            sizing=self._sizing,
            metrics=self.metrics,
            turnstile=self.turnstile,
            board=self.board,
        )

    def _store_failed(self, error: StoreError) -> None:
        self.metrics.store_errors.inc()
        if time.monotonic() - self._warned_at >= _WARN_EVERY_SECONDS:
            self._warned_at = time.monotonic()
            emit("store.failed", level=logging.WARNING, why=str(error))

    async def open(self) -> None:
        """What must not wait for the first request."""
        if isinstance(self.store, GuardedStore):
            await self.store.open()

    def renew(self, config: Config, *, is_new_context: bool) -> None:
        """Let requests that come from now on have other settings; those under way keep theirs."""
        compactor = self.services.compactor
        if is_new_context:
            self._replaced.append(compactor)
            compactor = self.compactor_for(config.context)
        self.services = replace(self.services, config=config, compactor=compactor)

    def stop(self) -> None:
        """Begin nothing any more: send away who waits or comes, and end what nobody waits for."""
        if not self.is_stopping:
            self.is_stopping = True
            self.places.close()
            self.status.close()
            self.health.is_stopping = True
            self._ending = asyncio.ensure_future(self._end_what_nobody_waits_for())

    async def _end_what_nobody_waits_for(self) -> None:
        await asyncio.gather(*(compactor.close() for compactor in (*self._replaced, self.services.compactor)))

    async def close(self) -> None:
        """Let go of everything."""
        self.stop()
        if self._ending is not None:
            await self._ending
        await self.upstream.close()
        await self.store.close()
