"""
Talk HTTP to the upstream.

Bytes in, bytes out: nothing is decoded, no redirect followed, no cookie kept, no
header added that the client did not send. Slow is not gone: there is a limit on
connecting and one on silence, none on the whole. The transport is httpx-aiohttp's, called
without httpx's client: its own interface is the one that relays chunks as they come.
"""

import time
from collections.abc import AsyncIterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass

import aiohttp
import httpx
from httpx_aiohttp import AiohttpTransport
from multidict import CIMultiDict
from yarl import URL

from proxy.circuit import Circuit
from proxy.connecting import Connector, reason_of, try_connection
from proxy.errors import UpstreamStalled, UpstreamUnreachable
from proxy.paths import Target

Headers = Sequence[tuple[str, str]]

# llama.cpp closes an idle connection after 5 s; one that is used again at that very
# moment would be lost.
KEEPALIVE_SECONDS = 4.0
# A queued request holds its connection, so the pool must not be the bottleneck.
MAX_CONNECTIONS = 1000
# Answers to questions of our own are small; a server that sends more is not believed.
MAX_ANSWER_BYTES = 8 * 1024 * 1024
_PIECE_BYTES = 256 * 1024

# Target and headers of the request that is being sent. httpx's own types would undo escapes in
# the one, and join repeats and refuse what is not ASCII in the other.
_AS_SENT: ContextVar[tuple[URL, Headers]] = ContextVar("_AS_SENT")
# These state how the body is really sent.
_FRAMING = ("host", "content-length", "transfer-encoding")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A whole answer to a question of our own."""

    status: int
    headers: Headers
    body: bytes


class Response:
    """A response whose body has not been read yet; `close` ends the upstream's work."""

    def __init__(self, response: httpx.Response) -> None:
        self._response = response
        self.status = response.status_code
        self.headers: list[tuple[bytes, bytes]] = [(k.lower(), v) for k, v in response.headers.raw]

    def header(self, name: str) -> str:
        """The value of a header; empty where it is absent."""
        return str(self._response.headers.get(name, ""))

    async def chunks(self) -> AsyncIterator[bytes]:
        """
        The body's bytes, each piece as it comes.

        Raises:
            UpstreamUnreachable: If the connection breaks in mid-body.
            UpstreamStalled: If it is silent for too long.
        """
        stream = self._response.stream
        assert isinstance(stream, httpx.AsyncByteStream)
        try:
            async for chunk in stream:
                yield chunk
        except (httpx.TransportError, aiohttp.ClientError, OSError) as error:
            raise _said(error, "in the middle of its answer") from error

    async def read(self, limit: int = MAX_ANSWER_BYTES) -> bytes:
        """The body up to *limit* bytes; what comes after is left unread."""
        parts: list[bytes] = []
        size = 0
        async for chunk in self.chunks():
            parts.append(chunk)
            size += len(chunk)
            if size > limit:
                break
        return b"".join(parts)[:limit]

    async def close(self) -> None:
        """Let go; a body that was not read to its end takes the connection with it."""
        await self._response.aclose()


class Upstream:
    """
    The server behind the proxy.

    Args:
        url: As configured, with or without `/v1`.
        key: Replaces the client's credentials where not empty.
        connect_timeout_seconds: For a connection to come about.
        idle_timeout_seconds: For silence, also while the upstream queues or prefills.

    Attributes:
        circuit: Whether it can be connected to.
    """

    def __init__(
        self,
        *,
        url: str,
        key: str = "",
        connect_timeout_seconds: float = 10.0,
        idle_timeout_seconds: float = 600.0,
    ) -> None:
        self.target = Target.of(url)
        self._key = key
        self._timeout = {
            "connect": connect_timeout_seconds,
            "read": idle_timeout_seconds,
            "write": idle_timeout_seconds,
            "pool": None,
        }
        self.circuit = Circuit(
            self.target.root,
            lambda: try_connection(self.target.root, self._timeout["connect"] or 0),
            now=time.monotonic,
        )
        self._transport = AiohttpTransport(client=self._session, trust_env=False)

    def _session(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=Connector(self.circuit, limit=MAX_CONNECTIONS, keepalive_timeout=KEEPALIVE_SECONDS),
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
            auto_decompress=False,
            trust_env=False,
            max_line_size=65536,
            max_field_size=65536,
            middlewares=(_keep_as_sent,),
        )

    async def send(
        self,
        method: str,
        url: str,
        *,
        headers: Headers = (),
        body: bytes | AsyncIterator[bytes] = b"",
        idle_timeout_seconds: float | None = None,
        even_if_down: bool = False,
    ) -> Response:
        """
        Send one request and wait for the head of its answer.

        A connection that the upstream had closed between two requests is replaced once,
        where the body can be sent again and no byte of an answer came. *even_if_down* is for
        those who want to know.

        Raises:
            UpstreamDown: If there was no connection several times, and there is none now.
            UpstreamUnreachable: If there is no connection, or it closed before an answer.
            UpstreamStalled: If the answer's head does not come in time.
        """
        if self.circuit.is_open and not even_if_down:
            await self.circuit.pass_through()
        timeout = dict(self._timeout)
        if idle_timeout_seconds is not None:
            timeout["read"] = idle_timeout_seconds
        sent = [*self._with_key(headers)]
        framing = [(k, v) for k, v in sent if k.lower() in _FRAMING]
        if isinstance(body, bytes) and (body or method in ("POST", "PUT", "PATCH")):
            framing = [("content-length", str(len(body)))]
        _AS_SENT.set((URL(url, encoded=True), sent))
        for attempt in (1, 2):
            request = httpx.Request(
                method,
                self.target.root,
                headers=framing,
                content=_in_pieces(body) if isinstance(body, bytes) else body,
                extensions={"timeout": timeout},
            )
            try:
                return Response(await self._transport.handle_async_request(request))
            except (httpx.TransportError, aiohttp.ClientError, OSError, ValueError) as error:
                again = attempt == 1 and isinstance(body, bytes) and _was_closed(error)
                if not again:
                    raise _said(error, f"at {self.target.root}") from error
        raise AssertionError("unreachable")

    async def ask(
        self,
        method: str,
        path: str,
        *,
        headers: Headers = (),
        body: bytes = b"",
        timeout_seconds: float = 5.0,
        even_if_down: bool = False,
    ) -> Answer:
        """
        A small question of our own, such as for the window; *path* counts from the root.

        Raises:
            UpstreamUnreachable: If there is no connection, or it broke.
            UpstreamStalled: If the answer does not come in time.
        """
        if body and not any(k.lower() == "content-type" for k, _ in headers):
            headers = [*headers, ("content-type", "application/json")]
        response = await self.send(
            method,
            self.target.url(path),
            headers=headers,
            body=body,
            idle_timeout_seconds=timeout_seconds,
            even_if_down=even_if_down,
        )
        try:
            content = await response.read()
        finally:
            await response.close()
        pairs = [(k.decode("latin-1"), v.decode("latin-1")) for k, v in response.headers]
        return Answer(status=response.status, headers=pairs, body=content)

    async def close(self) -> None:
        """Close every connection."""
        await self.circuit.close()
        await self._transport.aclose()

    def _with_key(self, headers: Headers) -> Headers:
        if not self._key:
            return headers
        kept = [(k, v) for k, v in headers if k.lower() not in ("authorization", "x-api-key", "api-key")]
        return [*kept, ("authorization", f"Bearer {self._key}")]


def _in_pieces(body: bytes) -> bytes | AsyncIterator[bytes] | None:
    """A long body in pieces, so that writing it does not hold up everybody else."""

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(body), _PIECE_BYTES):
            yield body[start : start + _PIECE_BYTES]

    return pieces() if len(body) > _PIECE_BYTES else body or None


async def _keep_as_sent(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """Put back what the layers above have changed."""
    url, headers = _AS_SENT.get()
    framing = [(k, v) for k, v in request.headers.items() if k.lower() in _FRAMING]
    kept = [(k, v) for k, v in headers if k.lower() not in _FRAMING]
    request.url = url
    request.headers = CIMultiDict([*framing, *kept])
    return await handler(request)


def _was_closed(error: Exception) -> bool:
    """Whether the upstream closed the connection before it answered."""
    cause = error.__cause__ if isinstance(error, httpx.TransportError) else error
    if isinstance(cause, aiohttp.ClientConnectorError):
        return False
    # It then quotes what it had read of the head: the upstream had begun to answer.
    if isinstance(cause, aiohttp.ServerDisconnectedError) and not isinstance(cause.message, str):
        return False
    return isinstance(cause, aiohttp.ServerDisconnectedError | aiohttp.ClientOSError | ConnectionResetError)


def _said(error: Exception, where: str) -> UpstreamUnreachable | UpstreamStalled:
    cause = error.__cause__ or error
    slow = isinstance(cause, aiohttp.SocketTimeoutError) or isinstance(error, httpx.ReadTimeout)
    connecting = isinstance(cause, aiohttp.ConnectionTimeoutError)
    if slow and not connecting:
        return UpstreamStalled(
            f"the upstream {where} sent nothing for longer than `upstream.idle_timeout_seconds`; it may be "
            "overloaded, or processing a prompt that takes longer than this allows"
        )
    # aiohttp quotes the bytes that it could not read, and they may be of a conversation.
    is_garbled = isinstance(cause, aiohttp.ClientResponseError | aiohttp.http_exceptions.HttpProcessingError)
    reason = "what it sent is no HTTP" if is_garbled else _reason(cause)
    return UpstreamUnreachable(
        f"the upstream went away {where} ({reason}); start it again, or check `upstream.url`"
        if where.startswith("in ")
        else f"no answer from the upstream {where} ({reason}); is it running, and is `upstream.url` right?"
    )


def _reason(cause: BaseException) -> str:
    if isinstance(cause, aiohttp.ClientConnectorError) and not isinstance(cause, aiohttp.ClientSSLError):
        return reason_of(cause)
    return str(cause) or type(cause).__name__
