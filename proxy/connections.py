"""
Read plain requests from a client's connection without a parser, and leave all others to h11.

Plain is what nearly every client sends: a head that comes in one piece, in the letter of
RFC 9112, and a body whose length is said. Whatever is otherwise (chunked uploads, an offered
upgrade, a tunnel, old versions, odd targets) goes to uvicorn's h11 protocol with not one byte
taken from it, and so does the rest of that connection: how strange requests are understood
is decided in one place.

Built for uvicorn's server: it makes one `Connection` for each client.
"""

import asyncio
import re
from typing import Any, cast
from urllib.parse import unquote

from starlette.types import ASGIApp, Scope
from uvicorn import Config
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.utils import get_local_addr, get_remote_addr
from uvicorn.server import ServerState

from proxy.connections_asgi import OneRequest
from proxy.connections_patience import TOO_LARGE, Patience, PatientH11, limits_of, refusal

_HEAD_END = b"\r\n\r\n"
_NAME = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]++"
_PLAIN = re.compile(
    rb"(GET|POST|PUT|PATCH|DELETE|HEAD|OPTIONS) (/[!-~]*+) HTTP/1\.1\r\n"
    rb"((?:%b:[\t -~\x80-\xff]*+\r\n)++)\r\n" % _NAME
)
_FIELD = re.compile(rb"(%b):[\t ]*([^\r]*)\r\n" % _NAME)
# They change how a message is framed or what its end means.
_NOT_PLAIN = frozenset((b"transfer-encoding", b"upgrade", b"expect", b"trailer", b"http2-settings"))
# A length of more digits is nonsense, or an attempt at something.
_MOST_DIGITS = 15


class Connection(asyncio.Protocol):
    """A client's connection; its requests are answered one after the other."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self.config = config
        self.server_state = server_state
        self.transport: asyncio.Transport
        self.flow: FlowControl
        self._app_state = app_state
        self._app = cast(ASGIApp, config.loaded_app)
        self._loop = _loop or asyncio.get_running_loop()
        self._exchange: OneRequest | None = None
        # Of the request that is being read; what comes after it waits for its answer.
        self._missing_bytes = 0
        self._later = b""
        self._idle: asyncio.TimerHandle | None = None
        limits = limits_of(config)
        self._most_head_bytes = limits.head_bytes
        self._patience = Patience(self._loop, limits.head_seconds, self._give_up)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Part of asyncio's protocol."""
        self.transport = cast(asyncio.Transport, transport)
        self.flow = FlowControl(self.transport)
        self._server = get_local_addr(self.transport)
        self._client = get_remote_addr(self.transport)
        self.server_state.connections.add(self)  # type: ignore[arg-type]  # it names its own classes
        self._patience.start()

    def connection_lost(self, exc: Exception | None) -> None:
        """Part of asyncio's protocol."""
        self.server_state.connections.discard(self)
        self._is_used()
        self._patience.stop()
        if self._exchange is not None:
            self._exchange.lost()
        self.flow.resume_writing()
        if exc is None:
            self.transport.close()

    def data_received(self, data: bytes) -> None:
        """Part of asyncio's protocol."""
        exchange = self._exchange
        if self._missing_bytes:
            piece = data if len(data) <= self._missing_bytes else data[: self._missing_bytes]
            self._missing_bytes -= len(piece)
            assert exchange is not None
            exchange.read(piece, is_last=not self._missing_bytes)
            data = data[len(piece) :]
        if not data:
            return
        if exchange is None or exchange.is_complete:
            self._is_used()
            self._begin(data)
        else:
            self._later += data
            self.flow.pause_reading()

    def eof_received(self) -> None:
        """Part of asyncio's protocol."""

    def pause_writing(self) -> None:
        """Part of asyncio's protocol."""
        self.flow.pause_writing()

    def resume_writing(self) -> None:
        """Part of asyncio's protocol."""
        self.flow.resume_writing()

    def shutdown(self) -> None:
        """Called by uvicorn's server when it stops: the answer under way is the last."""
        if self._exchange is None or self._exchange.is_complete:
            self.transport.close()
        else:
            self._exchange.keep_alive = False

    def _answered(self) -> None:
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self._later and not self._missing_bytes:
            later, self._later = self._later, b""
            self._loop.call_soon(self._begin, later)
        else:
            self._idle = self._loop.call_later(self.config.timeout_keep_alive, self.transport.close)

    def _give_up(self) -> None:
        self.transport.close()

    def _is_used(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None

    def _begin(self, data: bytes) -> None:
        """A request begins with *data*."""
        if self.transport.is_closing():
            return
        self._patience.stop()
        end = data.find(_HEAD_END) + len(_HEAD_END)
        if end > self._most_head_bytes:
            self.transport.write(refusal(TOO_LARGE, self._most_head_bytes))
            self.transport.close()
            return
        plain = _PLAIN.fullmatch(data, 0, end) if end >= len(_HEAD_END) else None
        fields = _FIELD.findall(plain[3]) if plain else []
        headers = [(name.lower(), value.rstrip(b"\t ")) for name, value in fields]
        length = _plain_length(headers)
        if plain is None or length is None:
            self._hand_over(data)
            return
        path, _, query = plain[2].partition(b"?")
        decoded = path.decode("ascii")
        scope: Scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "server": self._server,
            "client": self._client,
            "scheme": "http",
            "method": plain[1].decode("ascii"),
            "root_path": "",
            "path": unquote(decoded) if "%" in decoded else decoded,
            "raw_path": path,
            "query_string": query,
            "headers": headers,
            "state": self._app_state.copy(),
        }
        self._missing_bytes = length
        exchange = self._exchange = OneRequest(
            self.transport, self.flow, scope, keep_alive=_is_kept(headers), on_complete=self._answered
        )
        task = self._loop.create_task(exchange.run(self._app))
        self.server_state.tasks.add(task)
        task.add_done_callback(self.server_state.tasks.discard)
        if not length:
            exchange.read(b"", is_last=True)
        if len(data) > end:
            self.data_received(data[end:])

    def _hand_over(self, data: bytes) -> None:
        """From here on the connection is h11's."""
        self.server_state.connections.discard(self)
        protocol = PatientH11(self.config, self.server_state, self._app_state, self._loop)
        protocol.connection_made(self.transport)
        self.transport.set_protocol(protocol)
        protocol.data_received(data)


def _plain_length(headers: list[tuple[bytes, bytes]]) -> int | None:
    """The body's length in bytes; None where the request is not a plain one."""
    hosts = 0
    length: int | None = None
    for name, value in headers:
        if name in _NOT_PLAIN:
            return None
        if name == b"content-length":
            if length is not None or not value.isdigit() or len(value) > _MOST_DIGITS:
                return None
            length = int(value)
        elif name == b"host":
            hosts += 1
        elif name == b"connection" and value.lower() not in (b"keep-alive", b"close"):
            return None
    return (length or 0) if hosts == 1 else None


def _is_kept(headers: list[tuple[bytes, bytes]]) -> bool:
    """Whether the client may ask again on the same connection."""
    return not any(name == b"connection" and value.lower() == b"close" for name, value in headers)
