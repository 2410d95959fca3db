"""
The client's side of one exchange: its body in, our answer out, and whether it is still there.
"""

import asyncio
import re
from collections.abc import Coroutine, Sequence
from typing import Any

from starlette.types import Receive, Scope, Send

from proxy import headers as hd
from proxy.admission import Room
from proxy.client_body import ClientBody, ClientGone
from proxy.errors import UpstreamUnreachable

__all__ = ["Client", "ClientGone"]

_WITHOUT_BODY = frozenset((204, 304))
_EVENT_ENDS = (b"\n\n", b"\r\n\r\n", b"\r\r")


class Client:
    """
    One request over ASGI.

    Args:
        scope: As ASGI has it.
        receive: The same.
        send: The same.
        room: Where its body has to find room; None where none is read.
        silence_seconds: Longest time between two pieces of the request's body.

    Attributes:
        body: Of the request.
        headers: As they came, names in lower case; without keys once they were found to be ours.
        started: Whether the head of the answer is out.
        status: Its status, 0 before.
        is_stream: Whether it is a stream of events.
        is_between_events: Whether what was sent of it ends with an event or a comment, so that
            another event may follow.
    """

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        *,
        room: Room | None = None,
        silence_seconds: float = 60.0,
    ) -> None:
        self.method: str = scope["method"]
        self.headers: Sequence[tuple[bytes, bytes]] = scope["headers"]
        raw_path: bytes = scope.get("raw_path") or scope["path"].encode()
        # A client that takes us for a forward proxy names the server as well.
        path = re.sub(rb"(?i)^https?://[^/?]*", b"", raw_path.split(b"?")[0])
        self.raw_path = "/" + path.decode("latin-1").removeprefix("/")
        self.query: str = _escaped(scope.get("query_string", b""))
        self._caller = ""
        self.started = False
        self.status = 0
        self.is_stream = False
        self.is_between_events = True
        self._end = b""
        self._has_ended = False
        self.body = ClientBody(self.headers, receive, room or Room(0), silence_seconds)
        self._receive = receive
        self._send = send

    def header(self, name: bytes) -> str:
        """The value of a request header; empty where it is absent."""
        return hd.value_of(self.headers, name)

    @property
    def credentials(self) -> tuple[str, ...]:
        """What tells the caller from others: the name that its key gave it, else all that it sends."""
        return (self._caller,) if self._caller else hd.credentials(self.headers)

    def known_as(self, caller: str) -> None:
        """A key of the proxy's own gave the client this name: no key in its request goes any further."""
        self._caller = caller
        self.headers = [(name, value) for name, value in self.headers if name not in hd.CREDENTIALS]

    async def while_there(self, work: Coroutine[Any, Any, None]) -> None:
        """
        Do *work*, and cancel it as soon as the client leaves.

        Whatever the work raises is raised, unless the client has left. Work that fails because
        the body which it sends on broke off raises what `body` raised.
        """
        me = asyncio.current_task()
        assert me is not None
        left = is_over = False

        def gone(watch: "asyncio.Task[None]") -> None:
            nonlocal left
            if not is_over and not watch.cancelled():
                left = True
                me.cancel()

        cancelling = me.cancelling()
        watch = asyncio.ensure_future(self._leaves())
        watch.add_done_callback(gone)
        try:
            await work
        except asyncio.CancelledError:
            # Only what was asked for here ends here.
            if not left or me.uncancel() > cancelling:
                raise
        except BaseException as error:
            if not left and self.body.refusal is not None:
                raise self.body.refusal from error
            if not left:
                raise
            me.uncancel()
        else:
            if left:
                me.uncancel()
        finally:
            is_over = True
            watch.cancel()

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
        if status in _WITHOUT_BODY:
            # uvicorn would wait for as many bytes.
            headers = [(name, value) for name, value in headers if name != b"content-length"]
        await self._send({"type": "http.response.start", "status": status, "headers": list(headers)})

    async def chunk(self, data: bytes) -> None:
        """Send a piece of the body; returns once the connection takes more."""
        if self.is_stream:
            self._end = (self._end + data[-4:])[-4:]
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
        await self.body.is_read.wait()
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
