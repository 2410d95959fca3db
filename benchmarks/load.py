"""
Ask over raw connections, as cheaply as can be, and take the time.

For answers of known servers only: a chunked answer is over where a piece ends with the last
chunk. Times are in seconds.
"""

import asyncio
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

_CONTENT_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_LAST_CHUNK = b"\r\n0\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Load:
    """What one round took: each request from its first byte to the answer's last, and all of them."""

    latencies: tuple[float, ...]
    seconds: float


class Connection(asyncio.Protocol):
    """One connection that asks for one thing after the other."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport
        self._held = bytearray()
        self._wanted = -1
        self._done: asyncio.Future[bytes] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Part of asyncio's protocol."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Part of asyncio's protocol."""
        self._held += data
        if self._wanted < 0:
            end = self._held.find(b"\r\n\r\n")
            if end < 0:
                return
            said = _CONTENT_LENGTH.search(self._held, 0, end + 2)
            self._wanted = end + 4 + int(said[1]) if said else 0
        is_whole = len(self._held) >= self._wanted if self._wanted else self._held.endswith(_LAST_CHUNK, -7)
        if is_whole and self._done and not self._done.done():
            self._done.set_result(bytes(self._held))

    def connection_lost(self, exc: Exception | None) -> None:
        """Part of asyncio's protocol."""
        if self._done and not self._done.done():
            self._done.set_exception(exc or ConnectionError("the server closed the connection"))

    async def ask(self, pieces: Sequence[bytes]) -> bytes:
        """The answer, head and all, to a request that is sent in *pieces*."""
        self._held, self._wanted = bytearray(), -1
        self._done = asyncio.get_running_loop().create_future()
        self._transport.writelines(pieces)
        return await self._done

    def close(self) -> None:
        """Let go."""
        self._transport.close()


async def connected(port: int) -> Connection:
    """A new connection to *port* of this machine."""
    _, connection = await asyncio.get_running_loop().create_connection(Connection, "127.0.0.1", port)
    return connection


async def ask_all(
    connections: Sequence[Connection], make: Callable[[int], Sequence[bytes]], each: int
) -> Load:
    """
    *each* requests on every one of *connections*, which ask at the same time.

    *make* has the next request of the connection with that index, in pieces.

    Raises:
        RuntimeError: If an answer is none of HTTP 200.
    """
    latencies: list[float] = []

    async def one_by_one(index: int, connection: Connection) -> None:
        for _ in range(each):
            pieces = make(index)
            began = time.perf_counter()
            answer = await connection.ask(pieces)
            latencies.append(time.perf_counter() - began)
            if not answer.startswith(b"HTTP/1.1 200"):
                raise RuntimeError(f"expected an answer, got {answer[:300]!r}")

    began = time.perf_counter()
    await asyncio.gather(*(one_by_one(i, c) for i, c in enumerate(connections)))
    return Load(tuple(latencies), time.perf_counter() - began)
