"""
Ask over a plain socket, and see the bytes of the answer as they came.

HTTP client libraries decode, merge and normalise; what a relay must keep (status line,
header order and repeats, the cut into chunks) is only visible below them.
"""

import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit


@dataclass(slots=True)
class RawAnswer:
    """
    An answer whose body is read on demand.

    Attributes:
        status: The number in the status line.
        status_line: As it came, without the line end.
        headers: Name and value as they came, in order, repeats included.
    """

    status: int
    status_line: str
    headers: list[tuple[str, str]]
    _reader: asyncio.StreamReader = field(repr=False)
    _writer: asyncio.StreamWriter = field(repr=False)

    def header(self, name: str) -> str | None:
        """The value of *name* in any case, or None. Repeats are joined with ", "."""
        values = [v for n, v in self.headers if n.lower() == name.lower()]
        return ", ".join(values) if values else None

    async def chunks(self) -> AsyncIterator[bytes]:
        """
        The body piece by piece: each transfer chunk by itself, else what the socket gives.

        Raises:
            asyncio.IncompleteReadError: The body ended early.
            ConnectionResetError: The peer reset the connection.
        """
        if (self.header("transfer-encoding") or "").lower() == "chunked":
            while size := int((await self._reader.readuntil(b"\r\n")).split(b";")[0], 16):
                yield await self._reader.readexactly(size)
                await self._reader.readexactly(2)
            await self._reader.readuntil(b"\r\n")
        elif (length := self.header("content-length")) is not None:
            missing = int(length)
            while missing:
                piece = await self._reader.read(min(missing, 65536))
                if not piece:
                    raise asyncio.IncompleteReadError(b"", missing)
                missing -= len(piece)
                yield piece
        else:
            while piece := await self._reader.read(65536):
                yield piece

    async def read(self) -> bytes:
        """The whole body, chunks joined."""
        return b"".join([piece async for piece in self.chunks()])

    async def json(self) -> Any:
        """The whole body, parsed."""
        return json.loads(await self.read())

    def reset(self) -> None:
        """Leave with an RST, as a killed client does."""
        reset(self._writer)

    def close(self) -> None:
        """Leave with a FIN, as a client that gave up does."""
        self._writer.close()


class RawRequest:
    """
    One request on a connection of its own; use as an async context manager.

    *target* is sent as it is, so doubled slashes and odd escapes arrive as written. A
    Host and, for a body, a Content-Length header are added unless given.
    """

    def __init__(
        self,
        base_url: str,
        target: str,
        *,
        method: str = "POST",
        body: bytes | dict[str, Any] = b"",
        headers: Sequence[tuple[str, str]] = (),
    ) -> None:
        self._url = urlsplit(base_url)
        self._body = json.dumps(body).encode() if isinstance(body, dict) else body
        given = {name.lower() for name, _ in headers}
        lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers)]
        if "host" not in given:
            lines.append(f"Host: {self._url.netloc}")
        if self._body and not given & {"content-length", "transfer-encoding"}:
            lines.append(f"Content-Length: {len(self._body)}")
        if isinstance(body, dict) and "content-type" not in given:
            lines.append("Content-Type: application/json")
        self._head = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
        self._writer: asyncio.StreamWriter | None = None
        self._reader: asyncio.StreamReader | None = None

    async def __aenter__(self) -> Self:
        """Connect and send; the answer may not be there yet."""
        self._reader, self._writer = await asyncio.open_connection(
            self._url.hostname, self._url.port, limit=1 << 24
        )
        self._writer.write(self._head + self._body)
        await self._writer.drain()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._writer is not None
        self._writer.close()

    async def answer(self) -> RawAnswer:
        """Wait for status and headers."""
        assert self._reader is not None and self._writer is not None
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = [(n, v.strip()) for n, _, v in (line.partition(":") for line in head[1:] if line)]
        return RawAnswer(int(head[0].split(" ")[1]), head[0], headers, self._reader, self._writer)

    def write(self, data: bytes) -> None:
        """Send more, as it is."""
        assert self._writer is not None
        self._writer.write(data)

    async def is_closed(self) -> bool:
        """Whether the server closes the connection without another word; waits until it says either."""
        assert self._reader is not None
        try:
            return not await self._reader.read(1)
        except ConnectionError:
            return True

    def reset(self) -> None:
        """Leave with an RST before or during the answer."""
        assert self._writer is not None
        reset(self._writer)

    def close(self) -> None:
        """Leave with a FIN before or during the answer."""
        assert self._writer is not None
        self._writer.close()


async def ask(
    base_url: str,
    target: str,
    *,
    method: str = "POST",
    body: bytes | dict[str, Any] = b"",
    headers: Sequence[tuple[str, str]] = (),
) -> tuple[RawAnswer, bytes]:
    """One request, and the answer with its whole body."""
    async with RawRequest(base_url, target, method=method, body=body, headers=headers) as request:
        answer = await request.answer()
        return answer, await answer.read()


def reset(writer: asyncio.StreamWriter) -> None:
    """Close with an RST: what the peer has not read yet is lost to it."""
    sock = writer.get_extra_info("socket")
    if sock is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
