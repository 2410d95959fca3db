"""
Read what the upstream answers.

Bytes as they come, whose end or fault is always told: that aiohttp says so in every case is
not to be relied on. What went wrong becomes one of two errors, with what to do about it.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

import aiohttp

from proxy.connecting import reason_of
from proxy.errors import UpstreamStalled, UpstreamUnreachable

# Answers to questions of our own are small; a server that sends more is not believed.
MAX_ANSWER_BYTES = 8 * 1024 * 1024


class Response:
    """A response whose body has not been read yet; `close` ends the upstream's work."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.status = response.status
        self.headers: list[tuple[bytes, bytes]] = [(k.lower(), v) for k, v in response.raw_headers]

    def header(self, name: str) -> str:
        """The value of a header, several joined by commas; empty where it is absent."""
        wanted = name.encode()
        return ", ".join([value.decode("latin-1") for key, value in self.headers if key == wanted])

    async def chunks(self) -> AsyncIterator[bytes]:
        """
        The body's bytes, each piece as it comes.

        Raises:
            UpstreamUnreachable: If the connection breaks in mid-body.
            UpstreamStalled: If it is silent for too long.
        """
        read = self._response.content.readany
        try:
            with _ended_with_its_connection(self._response):
                while chunk := await read():
                    yield chunk
        except (aiohttp.ClientError, OSError) as error:
            raise told(error, "in the middle of its answer") from error

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
        self._response.release()
        await self._response.wait_for_close()


def was_closed(error: Exception) -> bool:
    """Whether the upstream closed the connection before it answered."""
    if isinstance(error, aiohttp.ClientConnectorError):
        return False
    # It then quotes what it had read of the head: the upstream had begun to answer.
    if isinstance(error, aiohttp.ServerDisconnectedError) and not isinstance(error.message, str):
        return False
    return isinstance(error, aiohttp.ServerDisconnectedError | aiohttp.ClientOSError | ConnectionResetError)


def told(error: Exception, where: str) -> UpstreamUnreachable | UpstreamStalled:
    """What to tell a client of a fault of aiohttp's; *where* begins with "in" once an answer has begun."""
    if isinstance(error, aiohttp.SocketTimeoutError):
        return UpstreamStalled(
            f"the upstream {where} sent nothing for longer than `upstream.idle_timeout_seconds`; it may be "
            "overloaded, or processing a prompt that takes longer than this allows"
        )
    # aiohttp quotes the bytes that it could not read, and they may be of a conversation.
    is_garbled = isinstance(error, aiohttp.ClientResponseError | aiohttp.http_exceptions.HttpProcessingError)
    reason = "what it sent is no HTTP" if is_garbled else _reason(error)
    return UpstreamUnreachable(
        f"the upstream went away {where} ({reason}); start it again, or check `upstream.url`"
        if where.startswith("in ")
        else f"no answer from the upstream {where} ({reason}); is it running, and is `upstream.url` right?"
    )


@contextlib.contextmanager
def _ended_with_its_connection(response: aiohttp.ClientResponse) -> Iterator[None]:
    """
    See to it that nobody waits for more of a body whose connection is gone.

    Of a body that is no HTTP in its middle, aiohttp closes the connection and ends the
    timeout, but does not tell whoever reads: that would wait for ever.
    """
    content, connection = response.content, response.connection
    protocol = connection.protocol if connection is not None else None

    def end(_: object = None) -> None:
        if not content.is_eof() and content.exception() is None:
            content.set_exception(aiohttp.ClientPayloadError("what it sent is no HTTP"))

    closed = protocol.closed if protocol is not None else None
    if closed is None:
        end()
        yield
        return
    # A connection has many answers, and one future.
    closed.remove_done_callback(_retrieve)
    closed.add_done_callback(_retrieve)
    closed.add_done_callback(end)
    try:
        yield
    finally:
        closed.remove_done_callback(end)


def _retrieve(closed: asyncio.Future[None]) -> None:
    """Why a connection was closed is told to who reads from it; asyncio would log it as unseen."""
    if not closed.cancelled():
        closed.exception()


def _reason(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorError) and not isinstance(error, aiohttp.ClientSSLError):
        return reason_of(error)
    return str(error) or type(error).__name__
