"""
Routes, and what lives as long as the process.

Every method and path that is not the proxy's own goes upstream; the compacted endpoints
go through an `Exchange`, everything else is relayed as it is.
"""

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from functools import partial

from prometheus_client import CollectorRegistry, ProcessCollector
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response as Reply
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from proxy.admission import Places, Room
from proxy.app_health import Health
from proxy.app_store import store_for
from proxy.app_straight import Endpoint, Everything, Straight
from proxy.board import MOST_CONVERSATIONS, Board
from proxy.callers import Access
from proxy.client import Client, ClientGone
from proxy.compactor import Compactor
from proxy.config import Config, ContextConfig
from proxy.counting import Counts
from proxy.dialects.anthropic_messages import ANTHROPIC_MESSAGES
from proxy.dialects.base import Dialect
from proxy.dialects.chat_completions import CHAT_COMPLETIONS
from proxy.dialects.responses import RESPONSES
from proxy.entrance import Entrance
from proxy.errors import BadPath, NoSuchMethod, ProxyError, StoreError
from proxy.events import emit
from proxy.exchange import UNREAD, Exchange
from proxy.exchange_answer import said_of
from proxy.exchange_services import Services
from proxy.metrics import Metrics
from proxy.origins import Origins
from proxy.paths import climbs, endpoint, is_count, normal_path, takes_slot
from proxy.relay import relay
from proxy.renamed import Renamed
from proxy.sizing import Sizing
from proxy.status import Status
from proxy.stores.guarded import GuardedStore
from proxy.token_count import count_tokens
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
    """Everything that lives as long as the process. Made inside the event loop that serves it."""

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

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Any request that is not for the proxy itself."""
        seconds = self.config.limits.body_silence_seconds
        client = Client(scope, receive, send, room=self.room, silence_seconds=seconds)
        path = normal_path(client.raw_path)
        compacted = endpoint(path) if client.method == "POST" else ""
        self.metrics.in_flight.inc()
        try:
            await self._answer(client, path, compacted)
        except ClientGone:
            pass
        finally:
            client.body.let_go()
            self.metrics.in_flight.dec()
            dialect = DIALECTS[compacted].name if compacted else "none"
            status = str(client.status) if client.status else "client_gone"
            self.metrics.requests.labels(compacted or "other", dialect, status).inc()

    async def _answer(self, client: Client, path: str, compacted: str) -> None:
        url = self.upstream.target.url(path, client.query)
        try:
            if caller := self.access.client(client.headers):
                client.known_as(caller)
            if client.method == "CONNECT":
                raise NoSuchMethod(
                    "this is no forward proxy; set it as the base URL of your client instead of as its proxy"
                )
            if client.method == "TRACE" and self.upstream.adds_key:
                raise NoSuchMethod("TRACE answers with what the upstream was sent, and so with its key")
            if climbs(client.raw_path):
                raise BadPath("the path has a segment `..`; ask for what it leads to")
            most = self.config.server.max_body_bytes
            counted = client.method == "POST" and is_count(path)
            if client.method == "POST" and takes_slot(path) and not compacted:
                self.turnstile.make_way()
            if not compacted and not counted:
                named = url.encode("utf-8", "surrogatepass")
                url = self.services.renamed.restored(client.credentials, named).decode(
                    "utf-8", "surrogatepass"
                )
                await relay(self.upstream, client, url, most, self.places)
                return
            dialect = DIALECTS.get(compacted, ANTHROPIC_MESSAGES)
            raw = await client.body.short(self.config.limits.understood_bytes, most)
            if raw is None:
                self.metrics.untouched.labels(dialect.name, Untouched.TOO_LARGE.value).inc()
                self.turnstile.make_way()
                await relay(self.upstream, client, url, most, self.places, told=said_of(UNREAD))
                return
            if counted:
                work = partial(count_tokens, self.services, dialect, client, raw, url)
            else:
                work = partial(Exchange(self.services, dialect, client).run, raw, url)
            await client.while_there(self._in_place(work))
        except ClientGone:
            raise
        except ProxyError as error:
            await self._tell(client, error, path)
        except Exception:
            # A fault of ours must read like one, and must be found.
            logging.getLogger("proxy").exception("request.failed")
            await self._tell(client, ProxyError("the proxy failed; its log tells more"), path)

    async def refuse(self, scope: Scope, receive: Receive, send: Send, error: ProxyError) -> None:
        """Answer a request that is let in nowhere."""
        client = Client(scope, receive, send)
        await self._tell(client, error, normal_path(client.raw_path))

    def for_admins(self, endpoint: Callable[[Request], Awaitable[Reply]]) -> "Endpoint":
        """*endpoint*, for those alone who may see what is the proxy's own."""

        async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
            try:
                self.access.admin(scope["headers"])
            except ProxyError as error:
                await self.refuse(scope, receive, send, error)
            else:
                await (await endpoint(Request(scope, receive)))(scope, receive, send)

        return Endpoint(guarded)

    async def _in_place(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do *work* when it is its turn."""
        async with self.places.one():
            await work()

    async def _tell(self, client: Client, error: ProxyError, path: str) -> None:
        """An error of ours in the wire format of *path*; nothing after a broken answer."""
        asked = ANTHROPIC_MESSAGES if is_count(path) else CHAT_COMPLETIONS
        dialect = DIALECTS.get(endpoint(path), asked)
        self.metrics.refused.labels(error.code).inc()
        emit("request.refused", level=logging.WARNING, status=error.status, code=error.code, why=str(error))
        if not client.started:
            await client.whole(
                error.status, dialect.error(error.status, error.code, str(error)), headers=_said_with(error)
            )
        elif client.is_stream and client.is_between_events:
            # Not ended: a client must not take a broken answer for a whole one. Nor is half an
            # event gone on with.
            await client.chunk(dialect.error_event(error.status, error.code, str(error)))

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

    async def readyz(self, request: Request) -> Reply:
        """Whether requests can be answered; why not is for those who may know."""
        return await self.health.readyz(is_admin=self.access.is_admin(request.scope["headers"]))

    async def upstream_metrics(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The upstream's own `/metrics`."""
        client = Client(scope, receive, send)
        try:
            if name := self.access.admin(client.headers):
                client.known_as(name)
            url = self.upstream.target.url("/metrics", client.query)
            await relay(self.upstream, client, url, self.config.server.max_body_bytes, self.places)
        except ClientGone:
            return
        except ProxyError as error:
            await self._tell(client, error, "")


def make_app(config: Config, environ: Mapping[str, str] | None = None) -> Starlette:
    """
    The ASGI application. Its lifespan opens the store and closes everything.

    Raises:
        ConfigError: If there is no usable upstream URL.
    """
    proxy = Proxy(config, os.environ if environ is None else environ)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        await proxy.open()
        try:
            yield
        finally:
            await proxy.close()

    routes = [
        Route("/livez", proxy.health.livez),
        Route("/readyz", proxy.readyz),
        Route("/upstream/metrics", Endpoint(proxy.upstream_metrics)),
    ]
    if config.metrics.enabled:
        routes.append(Route("/metrics", proxy.for_admins(proxy.health.metrics_page), methods=["GET"]))
    if config.status.enabled:
        pages = proxy.status.pages()
        routes += [Route(path, proxy.for_admins(page), methods=["GET"]) for path, page in pages.items()]
    span: Callable[[Starlette], AbstractAsyncContextManager[None]] = lifespan
    entrance = Middleware(Entrance, origins=lambda: proxy.origins, refuse=proxy.refuse)
    app = Straight(
        routes=[*routes, Everything(proxy.handle)], rest=proxy.handle, entrance=entrance, lifespan=span
    )
    app.state.proxy = proxy
    return app


def _said_with(error: ProxyError) -> list[tuple[bytes, bytes]]:
    """The headers that go with an error."""
    said = []
    if error.retry_after_seconds:
        said.append((b"retry-after", str(error.retry_after_seconds).encode()))
    if error.challenge:
        said.append((b"www-authenticate", error.challenge.encode()))
    if error.closes:
        said.append((b"connection", b"close"))
    return said
