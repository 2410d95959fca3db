"""
Give one request to an ASGI application, and write its answer as HTTP/1.1.

For requests whose head was understood: their body comes in pieces from the connection. An answer
without a length is chunked. Head and first piece are written at once where both are there, so
that most answers leave in one packet.
"""

import asyncio
import logging
import re
from collections.abc import Callable
from http import HTTPStatus

from starlette.types import ASGIApp, Message, Scope
from uvicorn.protocols.http.flow_control import FlowControl

# Of a body that nobody has asked for yet; long histories fit, so that they are read without a pause.
_MOST_UNREAD_BYTES = 1024 * 1024
_NOT_IN_NAMES = re.compile(rb"[^!#$%&'*+.^_`|~0-9A-Za-z-]")
_NOT_IN_VALUES = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_PHRASES = {status.value: status.phrase for status in HTTPStatus}
_STATUS_LINES = {
    status: f"HTTP/1.1 {status} {_PHRASES.get(status, '')}\r\n".encode() for status in range(100, 600)
}
_LAST_CHUNK = b"0\r\n\r\n"


class OneRequest:
    """
    One request and its answer.

    Args:
        transport: Where the answer is written to.
        flow: Whether it takes more, and whether more is read.
        scope: ASGI's.
        keep_alive: Whether the connection goes on after the answer.
        on_complete: Called once the last byte of the answer is written.

    Attributes:
        keep_alive: As given; may be taken back until the answer has begun.
        is_complete: Whether the answer is.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        flow: FlowControl,
        scope: Scope,
        *,
        keep_alive: bool,
        on_complete: Callable[[], None],
    ) -> None:
        self.keep_alive = keep_alive
        self.is_complete = False
        self._flow = flow
        self._transport = transport
        self._on_complete = on_complete
        self._scope = scope
        self._is_head = scope["method"] == "HEAD"
        self._body: list[bytes] = []
        self._is_read = False
        self._is_lost = False
        self._changed = asyncio.Event()
        # Of the answer: its head while that is not written yet, and how its body is framed.
        self._started = False
        self._head = b""
        self._chunked = False
        self._promised_bytes = 0

    def read(self, piece: bytes, *, is_last: bool) -> None:
        """A piece of the request's body has come."""
        self._is_read = is_last
        if self.is_complete:
            return
        if piece:
            self._body.append(piece)
            if not is_last and sum(map(len, self._body)) > _MOST_UNREAD_BYTES:
                self._flow.pause_reading()
        self._changed.set()

    def lost(self) -> None:
        """The client has gone."""
        self._is_lost = not self.is_complete
        self._changed.set()

    async def run(self, app: ASGIApp) -> None:
        """Answer the request."""
        try:
            await app(self._scope, self.receive, self.send)
        except Exception:
            logging.getLogger("uvicorn.error").exception("Exception in ASGI application")
        except asyncio.CancelledError:
            self._transport.close()
            raise
        if not self._started and not self._is_lost:
            own = [(b"content-type", b"text/plain"), (b"content-length", b"21"), (b"connection", b"close")]
            await self.send({"type": "http.response.start", "status": 500, "headers": own})
            await self.send({"type": "http.response.body", "body": b"Internal Server Error"})
        elif not self.is_complete and not self._is_lost:
            # What is not ended is broken off, so that nobody takes it for a whole.
            self._flush()
            self._transport.close()

    async def receive(self) -> Message:
        """ASGI's."""
        if not self._is_lost and not self.is_complete:
            if not self._changed.is_set():
                self._flow.resume_reading()
                await self._changed.wait()
            self._changed.clear()
        if self._is_lost or self.is_complete:
            return {"type": "http.disconnect"}
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        self._body = []
        return {"type": "http.request", "body": body, "more_body": not self._is_read}

    async def send(self, message: Message) -> None:
        """ASGI's."""
        if self._flow.write_paused and not self._is_lost:
            await self._flow.drain()
        if self._is_lost:
            return
        if not self._started:
            self._start(message["status"], message["headers"])
        elif not self.is_complete:
            self._go_on(message.get("body", b""), is_last=not message.get("more_body", False))

    def _start(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        parts = [_STATUS_LINES[status]]
        length: int | None = None
        for name, value in headers:
            if _NOT_IN_NAMES.search(name) or _NOT_IN_VALUES.search(value):
                raise RuntimeError("a header that HTTP does not have")
            if name == b"content-length" and length is None:
                length = int(value)
            elif name == b"connection" and b"close" in value.lower():
                self.keep_alive = False
                continue
            parts += (name, b": ", value, b"\r\n")
        self._started = True
        if not self.keep_alive:
            parts.append(b"connection: close\r\n")
        has_no_body = self._is_head or status in (204, 304)
        self._chunked = length is None and not has_no_body
        self._promised_bytes = 0 if has_no_body else length or 0
        parts.append(b"transfer-encoding: chunked\r\n\r\n" if self._chunked else b"\r\n")
        self._head = b"".join(parts)
        # With the first piece of the body, if that is there at once.
        asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        if self._head:
            head, self._head = self._head, b""
            self._transport.write(head)

    def _go_on(self, body: bytes, *, is_last: bool) -> None:
        if self._chunked:
            framed = b"%b%x\r\n%b\r\n" % (self._head, len(body), body) if body else self._head
            written = framed + _LAST_CHUNK if is_last else framed
        else:
            if self._is_head or not self._promised_bytes:
                body = b""
            if len(body) > self._promised_bytes:
                raise RuntimeError("the answer is longer than its length says")
            self._promised_bytes -= len(body)
            written = self._head + body
        self._head = b""
        if written:
            self._transport.write(written)
        if is_last:
            if self._promised_bytes:
                raise RuntimeError("the answer is shorter than its length says")
            self.is_complete = True
            self._changed.set()
            if not self.keep_alive:
                self._transport.close()
            self._on_complete()
