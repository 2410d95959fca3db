"""
Who answers a request, and how is one told that it cannot be?

What is not for the proxy itself goes upstream: the compacted endpoints through an `Exchange`,
everything else as it is. An error of ours is told in the wire format of the path.
"""

import logging
from collections.abc import Awaitable, Callable
from functools import partial

from starlette.requests import Request
from starlette.responses import Response as Reply
from starlette.types import Receive, Scope, Send

from proxy.app_process import DIALECTS, Proxy
from proxy.app_straight import Endpoint
from proxy.client import Client, ClientGone
from proxy.dialects.anthropic_messages import ANTHROPIC_MESSAGES
from proxy.dialects.chat_completions import CHAT_COMPLETIONS
from proxy.errors import BadPath, NoSuchMethod, ProxyError
from proxy.events import emit
from proxy.exchange import UNREAD, Exchange
from proxy.exchange_answer import said_of
from proxy.paths import climbs, endpoint, is_count, normal_path, takes_slot
from proxy.relay import relay
from proxy.token_count import count_tokens
from proxy.understanding import Untouched


class Answering:
    """Answers requests, with what *proxy* has when they come."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Any request that is not for the proxy itself."""
        seconds = self._proxy.config.limits.body_silence_seconds
        client = Client(scope, receive, send, room=self._proxy.room, silence_seconds=seconds)
        path = normal_path(client.raw_path)
        compacted = endpoint(path) if client.method == "POST" else ""
        self._proxy.metrics.in_flight.inc()
        try:
            await self._answer(client, path, compacted)
        except ClientGone:
            pass
        finally:
            client.body.let_go()
            self._proxy.metrics.in_flight.dec()
            dialect = DIALECTS[compacted].name if compacted else "none"
            status = str(client.status) if client.status else "client_gone"
            self._proxy.metrics.requests.labels(compacted or "other", dialect, status).inc()

    async def _answer(self, client: Client, path: str, compacted: str) -> None:
        url = self._proxy.upstream.target.url(path, client.query)
        try:
            if caller := self._proxy.access.client(client.headers):
                client.known_as(caller)
            if client.method == "CONNECT":
                raise NoSuchMethod(
                    "this is no forward proxy; set it as the base URL of your client instead of as its proxy"
                )
            if client.method == "TRACE" and self._proxy.upstream.adds_key:
                raise NoSuchMethod("TRACE answers with what the upstream was sent, and so with its key")
            if climbs(client.raw_path):
                raise BadPath("the path has a segment `..`; ask for what it leads to")
            most = self._proxy.config.server.max_body_bytes
            counted = client.method == "POST" and is_count(path)
            if client.method == "POST" and takes_slot(path) and not compacted:
                self._proxy.turnstile.make_way()
            if not compacted and not counted:
                named = url.encode("utf-8", "surrogatepass")
                url = self._proxy.services.renamed.restored(client.credentials, named).decode(
                    "utf-8", "surrogatepass"
                )
                await relay(self._proxy.upstream, client, url, most, self._proxy.places)
                return
            dialect = DIALECTS.get(compacted, ANTHROPIC_MESSAGES)
            raw = await client.body.short(self._proxy.config.limits.understood_bytes, most)
            if raw is None:
                self._proxy.metrics.untouched.labels(dialect.name, Untouched.TOO_LARGE.value).inc()
                self._proxy.turnstile.make_way()
                await relay(self._proxy.upstream, client, url, most, self._proxy.places, told=said_of(UNREAD))
                return
            if counted:
                work = partial(count_tokens, self._proxy.services, dialect, client, raw, url)
            else:
                work = partial(Exchange(self._proxy.services, dialect, client).run, raw, url)
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

    def for_admins(self, endpoint: Callable[[Request], Awaitable[Reply]]) -> Endpoint:
        """*endpoint*, for those alone who may see what is the proxy's own."""

        async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
            try:
                self._proxy.access.admin(scope["headers"])
            except ProxyError as error:
                await self.refuse(scope, receive, send, error)
            else:
                await (await endpoint(Request(scope, receive)))(scope, receive, send)

        return Endpoint(guarded)

    async def _in_place(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do *work* when it is its turn."""
        async with self._proxy.places.one():
            await work()

    async def _tell(self, client: Client, error: ProxyError, path: str) -> None:
        """An error of ours in the wire format of *path*; nothing after a broken answer."""
        asked = ANTHROPIC_MESSAGES if is_count(path) else CHAT_COMPLETIONS
        dialect = DIALECTS.get(endpoint(path), asked)
        self._proxy.metrics.refused.labels(error.code).inc()
        emit("request.refused", level=logging.WARNING, status=error.status, code=error.code, why=str(error))
        if not client.started:
            await client.whole(
                error.status, dialect.error(error.status, error.code, str(error)), headers=_said_with(error)
            )
        elif client.is_stream and client.is_between_events:
            # Not ended: a client must not take a broken answer for a whole one. Nor is half an
            # event gone on with.
            await client.chunk(dialect.error_event(error.status, error.code, str(error)))

    async def readyz(self, request: Request) -> Reply:
        """Whether requests can be answered; why not is for those who may know."""
        return await self._proxy.health.readyz(is_admin=self._proxy.access.is_admin(request.scope["headers"]))

    async def upstream_metrics(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The upstream's own `/metrics`."""
        client = Client(scope, receive, send)
        try:
            if name := self._proxy.access.admin(client.headers):
                client.known_as(name)
            url = self._proxy.upstream.target.url("/metrics", client.query)
            await relay(
                self._proxy.upstream,
                client,
                url,
                self._proxy.config.server.max_body_bytes,
                self._proxy.places,
            )
        except ClientGone:
            return
        except ProxyError as error:
            await self._tell(client, error, "")


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
