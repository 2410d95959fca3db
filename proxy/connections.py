"""
Which HTTP implementation reads a client's connection?

uvicorn's over httptools while requests are plain: a head that comes in one piece, in the letter of
RFC 9112, and a body whose length is said, as nearly every client sends them. From the first request
on that is otherwise (chunked uploads, an offered upgrade, a tunnel, old versions, odd targets) it is
uvicorn's over h11, with not one byte taken from it: h11 is three times slower, but keeps the body of
a request that offers an upgrade, and is strict where two servers could read different things.
"""

import asyncio
import re
from typing import Any

from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from proxy.connections_patience import TOO_LARGE, Patience, PatientH11, limits_of, refusal

_HEAD_END = b"\r\n\r\n"
_NAME = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]++"
_PLAIN = re.compile(
    rb"(?:GET|POST|PUT|PATCH|DELETE|HEAD|OPTIONS) /[!-~]*+ HTTP/1\.1\r\n"
    rb"((?:%b:[\t -~\x80-\xff]*+\r\n)++)\r\n" % _NAME
)
# Of these there is one, with nothing odd about it, or the request is not plain.
_FRAMING = re.compile(rb"(?:^|\n)(content-length|host|connection):[\t ]*+([^\r]*+)\r", re.IGNORECASE)
# They change how a message is framed, or what its end means; and httptools keeps blanks after a value.
_NOT_PLAIN = re.compile(
    rb"(?:^|\n)(?:transfer-encoding|upgrade|expect|trailer|http2-settings):|[\t ]\r", re.IGNORECASE
)
# A length of more digits is nonsense, or an attempt at something.
_MOST_DIGITS = 15


class Connection(HttpToolsProtocol):
    """A client's connection; uvicorn makes one for each client."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        limits = limits_of(config)
        self._most_head_bytes = limits.head_bytes
        self._patience = Patience(self.loop, limits.head_seconds, self._give_up)
        # Of the body of the request that is being read.
        self._missing_bytes = 0
        # What comes while an answer is under way.
        self._later = b""

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
        missing = self._missing_bytes
        if missing:
            self._missing_bytes = max(0, missing - len(data))
            super().data_received(data if len(data) <= missing else data[:missing])
            data = data[missing:]
        if not data:
            return
        if self.cycle is not None and not self.cycle.response_complete:
            self._later += data
            self.flow.pause_reading()
        else:
            self._begin(data)

    def on_response_complete(self) -> None:
        """Called by uvicorn once the last byte of an answer is written."""
        super().on_response_complete()
        if self._later and not self._missing_bytes:
            later, self._later = self._later, b""
            self.loop.call_soon(self._begin, later)

    def _begin(self, data: bytes) -> None:
        """A request begins with *data*."""
        if self.transport.is_closing():
            return
        end = data.find(_HEAD_END) + len(_HEAD_END)
        if end > self._most_head_bytes:
            self._patience.stop()
            self.transport.write(refusal(TOO_LARGE, self._most_head_bytes))
            self.transport.close()
            return
        plain = _PLAIN.fullmatch(data, 0, end) if end >= len(_HEAD_END) else None
        length = _plain_length(plain[1]) if plain else None
        self._patience.stop()
        if length is None:
            self._hand_over(data)
            return
        self._missing_bytes = max(0, end + length - len(data))
        super().data_received(data[: end + length])
        if len(data) > end + length:
            self.data_received(data[end + length :])

    def _hand_over(self, data: bytes) -> None:
        """From here on the connection is h11's."""
        self._unset_keepalive_if_required()
        self.connections.discard(self)
        protocol = PatientH11(self.config, self.server_state, self.app_state, self.loop)
        protocol.connection_made(self.transport)
        self.transport.set_protocol(protocol)
        protocol.data_received(data)

    def _give_up(self) -> None:
        self.transport.close()


def _plain_length(fields: bytes) -> int | None:
    """The body's length in bytes; None where the request is not a plain one."""
    if _NOT_PLAIN.search(fields):
        return None
    framing = [(name.lower(), value) for name, value in _FRAMING.findall(fields)]
    lengths = [value for name, value in framing if name == b"content-length"]
    connections = [value.lower() for name, value in framing if name == b"connection"]
    hosts = sum(name == b"host" for name, _ in framing)
    if hosts != 1 or len(lengths) > 1 or not set(connections) <= {b"keep-alive", b"close"}:
        return None
    if not lengths:
        return 0
    length = lengths[0]
    return int(length) if length.isdigit() and len(length) <= _MOST_DIGITS else None
