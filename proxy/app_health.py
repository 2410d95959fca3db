"""
Can requests be answered? What the pages say of upstream and store, and Prometheus' page.
"""

import asyncio
import time

import orjson
from prometheus_client.exposition import choose_encoder
from starlette.requests import Request
from starlette.responses import Response as Reply

from proxy.errors import ProxyError
from proxy.metrics import Metrics
from proxy.stores.base import Store
from proxy.stores.guarded import GuardedStore
from proxy.upstream import Upstream

# Scrapes of several Prometheus servers ask the upstream once.
_ASK_EVERY_SECONDS = 10.0
# Prometheus gives a scrape up after 10 s.
_SCRAPE_PATIENCE_SECONDS = 3.0
# For whoever probes a container.
_PROBE_PATIENCE_SECONDS = 5.0


class Health:
    """
    What is well and what is not.

    Attributes:
        is_stopping: Set once no request is let in any more.
    """

    def __init__(self, upstream: Upstream, store: Store, metrics: Metrics) -> None:
        self.is_stopping = False
        self._upstream = upstream
        self._store = store
        self._metrics = metrics
        self._asked_upstream_at = -_ASK_EVERY_SECONDS

    async def livez(self, _: Request) -> Reply:
        """The process runs."""
        return Reply("ok\n", media_type="text/plain")

    async def readyz(self, *, is_admin: bool) -> Reply:
        """
        Whether upstream and store can be used; 503 where the upstream cannot.

        Whoever probes a container has no key: the reasons, which name the upstream, are for the others.
        """
        upstream = await self.upstream_told(_PROBE_PATIENCE_SECONDS)
        if self.is_stopping:
            upstream = "not asked: the proxy is stopping"
        told: dict[str, object] = {"ready": upstream == "ok"}
        if is_admin:
            told |= {"upstream": upstream, "store": self.store_state()}
        return Reply(orjson.dumps(told), 200 if upstream == "ok" else 503, media_type="application/json")

    async def metrics_page(self, request: Request) -> Reply:
        """Prometheus' text format, or OpenMetrics where it is asked for."""
        await asyncio.gather(self._look_at_upstream(), self._look_at_store())
        encode, kind = choose_encoder(request.headers.get("accept", ""))
        return Reply(encode(self._metrics.registry), headers={"content-type": kind})

    async def upstream_state(self, timeout_seconds: float) -> str:
        """`ok`, `loading`, or why it cannot be reached."""
        try:
            answer = await self._upstream.ask(
                "GET", "/health", timeout_seconds=timeout_seconds, even_if_down=True
            )
        except ProxyError as error:
            return str(error)
        # llama.cpp answers 503 while it loads; others have no such path.
        return "loading" if answer.status == 503 else "ok"

    async def upstream_told(self, timeout_seconds: float) -> str:
        """The same, with what that means for requests."""
        state = await self.upstream_state(timeout_seconds)
        if not self._upstream.circuit.is_open:
            return state
        return f"{state}; requests are answered with 503 until it accepts a connection"

    def store_state(self) -> str:
        """`ok`, or what it failed with last."""
        is_broken = isinstance(self._store, GuardedStore) and not self._store.healthy
        return self._store.last_error if isinstance(self._store, GuardedStore) and is_broken else "ok"

    async def _look_at_upstream(self) -> None:
        now = time.monotonic()
        if now - self._asked_upstream_at < _ASK_EVERY_SECONDS:
            return
        self._asked_upstream_at = now
        self._metrics.upstream_up.set(await self.upstream_state(_SCRAPE_PATIENCE_SECONDS) == "ok")

    async def _look_at_store(self) -> None:
        entries, size = await self._store.size()
        self._metrics.store_entries.set(entries)
        self._metrics.store_bytes.set(size)
        self._metrics.store_up.set(self.store_state() == "ok")
