"""
The body of a client's request: how long it says it is, how long it may take, and room for it.

A body that is read whole has to find room in memory; one that passes through is never whole
here.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable

from starlette.types import Message, Receive

from proxy import headers as hd
from proxy.admission import Room
from proxy.errors import BodyTooLarge, RequestTooSlow

# Of a body that is held in memory, on the average; a modem was faster.
_LEAST_BYTES_PER_SECOND = 1024


class ClientGone(Exception):
    """The client left before its request was complete."""


class ClientBody:
    """
    For one request, and one reader.

    Args:
        headers: Of the request, names in lower case.
        receive: As ASGI has it.
        room: For what is held.
        silence_seconds: Longest time between two pieces.

    Attributes:
        is_read: Set once its end has come.
        refusal: What was raised of it, if anything was.
        held_bytes: What takes room.
    """

    def __init__(
        self, headers: Iterable[tuple[bytes, bytes]], receive: Receive, room: Room, silence_seconds: float
    ) -> None:
        self.is_read = asyncio.Event()
        self.refusal: BodyTooLarge | RequestTooSlow | ClientGone | None = None
        self.held_bytes = 0
        self._headers = headers
        self._receive = receive
        self._room = room
        self._silence_seconds = silence_seconds
        self._read: list[bytes] = []

    def length(self, limit: int) -> int | None:
        """
        What the request says of its length in bytes; None where its end shows it.

        Raises:
            BodyTooLarge: Where that is over *limit* bytes.
        """
        if hd.value_of(self._headers, b"transfer-encoding"):
            # It wins over a length (RFC 9112, section 6.3).
            return None
        said = hd.value_of(self._headers, b"content-length")
        length = int(said) if said.isdecimal() else 0
        if length > limit:
            raise _too_large(limit)
        return length

    async def pieces(self, limit: int) -> AsyncIterator[bytes]:
        """
        The body as it comes; from its beginning, also where `short` gave it up.

        Raises:
            BodyTooLarge: Where it is over *limit* bytes, or says that it will be.
            RequestTooSlow: Where the client is silent for too long.
            ClientGone: Where the client left before its end.
        """
        self.length(limit)
        size = 0
        read, self._read = self._read, []
        for piece in read:
            size += len(piece)
            yield piece
        while not self.is_read.is_set():
            piece = await self._next_piece()
            size += len(piece)
            if size > limit:
                self.refusal = _too_large(limit)
                raise self.refusal
            if piece:
                yield piece

    async def short(self, most: int, limit: int) -> bytes | None:
        """
        The whole body; None where it is over *most* bytes, and `pieces` is to be used.

        Raises:
            Overloaded: Where there is no room for it.
            Exception: What `pieces` raises; a client that sends next to nothing is too slow as well.
        """
        if (self.length(limit) or 0) > most:
            return None
        size = 0
        begun = asyncio.get_running_loop().time()
        while not self.is_read.is_set():
            piece = await self._next_piece()
            size += len(piece)
            self.hold(len(piece))
            self._read.append(piece)
            if size > limit:
                self.refusal = _too_large(limit)
                raise self.refusal
            if size > most:
                return None
            seconds = asyncio.get_running_loop().time() - begun - self._silence_seconds
            if size < seconds * _LEAST_BYTES_PER_SECOND and not self.is_read.is_set():
                raise self._too_slow()
        read, self._read = self._read, []
        return b"".join(read)

    def hold(self, size: int) -> None:
        """
        Take room for *size* bytes more, for what is made of the body.

        Raises:
            Overloaded: Where there is none.
        """
        self._room.take(size, own=self.held_bytes)
        self.held_bytes += size

    def let_go(self) -> None:
        """Give back all room."""
        self._room.give_back(self.held_bytes)
        self.held_bytes = 0

    async def _next_piece(self) -> bytes:
        try:
            async with asyncio.timeout(self._silence_seconds):
                message: Message = await self._receive()
        except TimeoutError:
            raise self._too_slow() from None
        if message["type"] == "http.disconnect":
            self.refusal = ClientGone()
            raise self.refusal
        if not message.get("more_body", False):
            self.is_read.set()
        piece: bytes = message.get("body", b"")
        return piece

    def _too_slow(self) -> RequestTooSlow:
        self.refusal = RequestTooSlow(
            "the request's body did not come to its end: nothing, or next to nothing, came for "
            f"{self._silence_seconds:g} seconds; send it again, or raise `limits.body_silence_seconds` of "
            "the proxy"
        )
        return self.refusal


def _too_large(limit: int) -> BodyTooLarge:
    return BodyTooLarge(
        f"the request body is over {limit} bytes; raise `server.max_body_bytes` of the proxy if it is "
        "meant to be"
    )
