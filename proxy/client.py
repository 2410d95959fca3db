"""
The client's side of one exchange: its body in, our answer out, and whether it is still there.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Coroutine, Sequence
from typing import Any

from starlette.types import Receive, Scope, Send

from proxy import headers as hd
from proxy.errors import BodyTooLarge, UpstreamUnreachable

_EVENT_ENDS = (b"\n\n", b"\r\n\r\n", b"\r\r")


class ClientGone(Exception):
    """The client left before its request was complete."""


class Client:
    """
    One request over ASGI.

    Attributes:
        headers: As they came, names in lower case.
        started: Whether the head of the answer is out.
        status: Its status, 0 before.
        is_stream: Whether it is a stream of events.
        is_between_events: Whether what was sent of it ends with an event or a comment, so that
            another event may follow.
    """

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.method: str = scope["method"]
        self.headers: Sequence[tuple[bytes, bytes]] = scope["headers"]
        raw_path: bytes = scope.get("raw_path") or scope["path"].encode()
        # A client that takes us for a forward proxy names the server as well.
        path = re.sub(rb"(?i)^https?://[^/?]*", b"", raw_path.split(b"?")[0])
        self.raw_path = "/" + path.decode("latin-1").removeprefix("/")
        self.query: str = _escaped(scope.get("query_string", b""))
        self.started = False
        self.status = 0
        self.is_stream = False
        self.is_between_events = True
        self._end = b""
        self._has_ended = False
        self._refusal: BodyTooLarge | ClientGone | None = None
        self._receive = receive
        self._send = send
        self._body_read = asyncio.Event()

    def header(self, name: bytes) -> str:
        """The value of a request header; empty where it is absent."""
        return hd.value_of(self.headers, name)

    def body_length(self, limit: int) -> int | None:
        """
        What the request says of its body's length in bytes; None where its end shows it.

        Raises:
            BodyTooLarge: Where that is over *limit* bytes.
        """
        if self.header(b"transfer-encoding"):
            # It wins over a length (RFC 9112, section 6.3).
            return None
        said = self.header(b"content-length")
        length = int(said) if said.isdecimal() else 0
        if length > limit:
            raise _too_large(limit)
        return length

    async def body(self, limit: int) -> AsyncIterator[bytes]:
        """
        The request's body, as it comes.

        Raises:
            BodyTooLarge: Where it is over *limit* bytes, or says that it will be.
            ClientGone: Where the client left before its end.
        """
        self.body_length(limit)
        size = 0
        more = True
        while more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self._refusal = ClientGone()
                raise self._refusal
            piece = message.get("body", b"")
            size += len(piece)
            if size > limit:
                self._refusal = _too_large(limit)
                raise self._refusal
            more = message.get("more_body", False)
            if not more:
                self._body_read.set()
            if piece:
                yield piece

    async def whole_body(self, limit: int) -> bytes:
        """The whole body; raises as `body` does."""
        return b"".join([piece async for piece in self.body(limit)])

    async def while_there(self, work: Coroutine[Any, Any, None]) -> None:
        """
        Do *work*, and cancel it as soon as the client leaves.

        Whatever the work raises is raised, unless the client has left. Work that fails because
        the body which it sends on broke off raises what `body` raised.
        """
        task = asyncio.ensure_future(work)
        watch = asyncio.ensure_future(self._leaves())
        try:
            await asyncio.wait((task, watch), return_when=asyncio.FIRST_COMPLETED)
        finally:
            watch.cancel()
            left = not task.done()
            if left:
                task.cancel()
            # Both end here, so that nothing of a request outlives it.
            results = await asyncio.gather(task, watch, return_exceptions=True)
        error = results[0]
        if not left and isinstance(error, BaseException):
            raise self._refusal or error

    async def head(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> None:
        """
        Send status and headers.

        Raises:
            UpstreamUnreachable: If the status is none of HTTP's, which the server cannot send.
        """
        if not 200 <= status <= 599:
            raise UpstreamUnreachable(
                f"the upstream answered with the status {status}, which HTTP does not have; check "
                "`upstream.url`"
            )
        self.started = True
        self.status = status
        self.is_stream = any(n == b"content-type" and b"event-stream" in v for n, v in headers)
        await self._send({"type": "http.response.start", "status": status, "headers": list(headers)})

    async def chunk(self, data: bytes) -> None:
        """Send a piece of the body; returns once the connection takes more."""
        if self.is_stream:
            self._end = (self._end + data)[-4:]
            is_comment = self.is_between_events and data.startswith(b":") and data.endswith(b"\n")
            self.is_between_events = is_comment or self._end.endswith(_EVENT_ENDS)
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def end(self, data: bytes = b"") -> None:
        """Send the last piece. An answer that is not ended is broken off by the server."""
        self._has_ended = True
        await self._send({"type": "http.response.body", "body": data, "more_body": False})

    async def whole(
        self,
        status: int,
        body: bytes,
        headers: Sequence[tuple[bytes, bytes]] = (),
        kind: str = "application/json",
    ) -> None:
        """Send an answer of our own."""
        own = [(b"content-type", kind.encode()), (b"content-length", str(len(body)).encode())]
        await self.head(status, [*own, *headers])
        await self.end(b"" if self.method == "HEAD" else body)

    async def _leaves(self) -> None:
        await self._body_read.wait()
        try:
            while (await self._receive())["type"] != "http.disconnect":
                pass
        except RuntimeError:
            # A server that has nothing more to say of this client has lost it.
            return
        if self._has_ended:
            # It says so after a whole answer too: what is left to do then may end by itself.
            await asyncio.Event().wait()


def _escaped(query: bytes) -> str:
    return "".join(chr(byte) if byte < 128 else f"%{byte:02X}" for byte in query)


def _too_large(limit: int) -> BodyTooLarge:
    return BodyTooLarge(
        f"the request body is over {limit} bytes; raise `server.max_body_bytes` of the proxy if it is "
        "meant to be"
    )
