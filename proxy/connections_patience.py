"""
How long, and how much, does a client's connection wait for the head of a request?

Nobody is asked for it before the head is there, so this is held where the bytes come in. What
comes after the head is the business of whoever reads the body.
"""

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import h11
from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from proxy.config_limits import LimitsConfig
from proxy.dialects.chat_completions import CHAT_COMPLETIONS

TOO_LARGE = 431


def limits_of(config: Config) -> LimitsConfig:
    """The limits in force of the application that is served; the defaults where it has none."""
    proxy = getattr(getattr(config.app, "state", None), "proxy", None)
    limits: LimitsConfig = proxy.config.limits if proxy else LimitsConfig()
    return limits


def refusal(status: int, head_bytes: int) -> bytes:
    """An answer to what cannot be read, in the form that most clients know; the connection ends with it."""
    if status == TOO_LARGE:
        reason, code = "Request Header Fields Too Large", "head_too_large"
        message = (
            f"the request's line and headers are over {head_bytes} bytes; send fewer, or raise "
            "`limits.head_bytes` of the proxy"
        )
    else:
        status, reason, code = 400, "Bad Request", "bad_request"
        message = "what came is no HTTP request; is the client meant to speak HTTP/1.1, without TLS?"
    body = CHAT_COMPLETIONS.error(status, code, message)
    head = f"HTTP/1.1 {status} {reason}\r\nconnection: close\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


class Patience:
    """
    A time limit that starts once and is not extended by what comes.

    Args:
        loop: Whose clock it is.
        seconds: From `start`.
        give_up: Called at its end, unless `stop` was called before.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, seconds: float, give_up: Callable[[], object]
    ) -> None:
        self._loop = loop
        self._seconds = seconds
        self._give_up = give_up
        self._end: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin, unless it has begun."""
        if self._end is None:
            self._end = self._loop.call_later(self._seconds, self._give_up)

    def stop(self) -> None:
        """What was waited for is there, or is waited for no longer."""
        if self._end is not None:
            self._end.cancel()
            self._end = None


class PatientH11(H11Protocol):
    """uvicorn's, which by itself would wait for the end of a head for ever."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._limits = limits_of(config)
        self.conn = h11.Connection(h11.SERVER, self._limits.head_bytes)
        self._patience = Patience(self.loop, self._limits.head_seconds, self._give_up)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn
        """Part of asyncio's protocol."""
        super().connection_made(transport)
        self._patience.start()

    def connection_lost(self, exc: Exception | None) -> None:
        """Part of asyncio's protocol."""
        self._patience.stop()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Part of asyncio's protocol."""
        super().data_received(data)
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            # A piece of a head, or line breaks before it.
            self._patience.start()
        else:
            self._patience.stop()

    def _give_up(self) -> None:
        self.transport.close()

    def _should_upgrade(self) -> bool:
        """
        uvicorn asks, of each head, whether another protocol takes over. None does; but whoever states
        a body's length in both ways wants two servers to differ on where the next request begins.
        """
        names = {name for name, _ in self.headers}
        return b"transfer-encoding" in names and b"content-length" in names

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Called where `_should_upgrade` says so."""
        self.send_400_response("")

    def send_400_response(self, msg: str) -> None:
        """Called while a request that cannot be read is handled; *msg* is uvicorn's."""
        error = sys.exception()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            status = error.error_status_hint if isinstance(error, h11.RemoteProtocolError) else 400
            self.transport.write(refusal(status, self._limits.head_bytes))
        if self.cycle is not None and not self.cycle.response_complete:
            # Nobody is to write beside it.
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.close()
