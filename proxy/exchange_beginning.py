"""
Does the beginning of an answer say that the prompt is too long?

Only an answer whose head is not out yet can still be put right, so it is read as far as
tells: the first event of a stream, or the body of an error. What was read is kept, and relayed
with the rest; so are the places where it breaks off.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

from proxy.core.overflow import Overflow, read_overflow
from proxy.dialects.sse import Event, Events, split_first
from proxy.encodings import decoded
from proxy.errors import BadEncoding, BodyTooLarge, UpstreamStalled, UpstreamUnreachable
from proxy.relay import is_stream
from proxy.upstream_response import Response

# An error body that says "too long" is short; a longer one is relayed without a look.
_MOST_ERROR_BYTES = 256 * 1024
# Compressed behind a 200: an error is shorter than most answers.
_MOST_CODED_BYTES = 2 * 1024
# Of comments before the first event of a stream, and of that event: in the Responses format it
# repeats instructions and tools.
_MOST_PEEKED_BYTES = 1024 * 1024
MOST_WHOLE_BYTES = 8 * 1024 * 1024
# A stream that has told its error has nothing to add; some servers leave it open.
_REST_SECONDS = 2.0
OnComment = Callable[[bytes], Awaitable[None]]
_LIKE_AN_ERROR = b'{"error"'


@dataclass(slots=True)
class Beginning:
    """
    What was read of an answer.

    Attributes:
        held: The pieces, as they came.
        rest: Those that are still to come; raises where the answer breaks off.
        overflow: What it says of the prompt's length, or None.
    """

    held: list[bytes]
    rest: AsyncIterator[bytes]
    overflow: Overflow | None = None


def unread(response: Response) -> Beginning:
    """An answer that is not looked at."""
    return Beginning([], response.chunks())


async def read_beginning(response: Response, on_comment: OnComment | None) -> Beginning:
    """
    Read as far as tells.

    Args:
        response: Of which nothing was read yet.
        on_comment: Gets what comes before the first event of a stream, which shows that the
            upstream lives, at once; it is not held. None where the client asked for no stream.

    Raises:
        UpstreamUnreachable: If it breaks off before it has said anything.
        UpstreamStalled: If it falls silent before that.
    """
    beginning = unread(response)
    if response.status == 200 and is_stream(response):
        await _read_stream(response, beginning, on_comment)
        return beginning
    try:
        await _read_whole(response, beginning)
    except (UpstreamUnreachable, UpstreamStalled) as error:
        if response.status == 200:
            raise
        # An error that breaks off still has its status.
        beginning.rest = _breaking(error)
    return beginning


async def read_rest(beginning: Beginning) -> Beginning:
    """The same, read to its end, so that its connection can be let go; what does not come is left out."""
    held = list(beginning.held)
    size = sum(map(len, held))
    try:
        async with asyncio.timeout(_REST_SECONDS):
            async for chunk in beginning.rest:
                held.append(chunk)
                size += len(chunk)
                if size > _MOST_ERROR_BYTES:
                    break
    except (TimeoutError, UpstreamUnreachable, UpstreamStalled):
        pass
    return Beginning(held, _nothing(), beginning.overflow)


def plain(response: Response, body: bytes) -> bytes:
    """*body* without its coding; as it is where that cannot be undone."""
    try:
        return decoded(body, response.header("content-encoding"), MOST_WHOLE_BYTES)
    except (BadEncoding, BodyTooLarge):
        return body


async def _read_whole(response: Response, beginning: Beginning) -> None:
    size = 0
    async for chunk in beginning.rest:
        beginning.held.append(chunk)
        size += len(chunk)
        # A 200 is only looked into where it begins like an error.
        if response.status < 400 and not _may_be_error(response, beginning.held):
            return
        if size > _MOST_ERROR_BYTES:
            return
    beginning.overflow = read_overflow(response.status, plain(response, b"".join(beginning.held)))


def _may_be_error(response: Response, held: list[bytes]) -> bool:
    if response.header("content-encoding"):
        # How it begins cannot be seen; an answer that is this short is held for no time at all.
        length = response.header("content-length")
        return length.isdecimal() and int(length) <= _MOST_CODED_BYTES
    start = re.sub(rb"\s", b"", b"".join(held[:64])[:64])[: len(_LIKE_AN_ERROR)]
    return _LIKE_AN_ERROR.startswith(start)


async def _read_stream(response: Response, beginning: Beginning, on_comment: OnComment | None) -> None:
    if response.header("content-encoding"):
        return
    reader = Events()
    size = 0
    async for chunk in beginning.rest:
        size += len(chunk)
        events = _events_with_first(reader, chunk)
        is_whole = chunk.endswith((b"\n", b"\r"))
        is_comment = is_whole and not events and not reader.is_in_event
        if on_comment and is_comment and not beginning.held:
            await on_comment(chunk)
            continue
        beginning.held.append(chunk)
        said = [event for event in events if event.data]
        if said:
            beginning.overflow = _overflow_in(said[0].name, said[0].data)
            return
        if size > _MOST_PEEKED_BYTES:
            return
    for event in reader.end():
        beginning.overflow = beginning.overflow or _overflow_in(event.name, event.data)


def _events_with_first(reader: Events, chunk: bytes) -> list[Event]:
    """The events that end in *chunk*, but none behind the first with data: nobody asks for them."""
    first, rest = split_first(chunk)
    events = reader.feed(first) if first else []
    return events if any(event.data for event in events) else [*events, *reader.feed(rest)]


def _overflow_in(name: bytes, data: bytes) -> Overflow | None:
    """An overflow that the first event of a stream tells; ordinary chunks are not searched."""
    if name == b"error":
        # The data is the error itself, as the body of a refusal would be.
        return read_overflow(400, data)
    return read_overflow(200, data) if b'"error"' in data[:2000] or b'"code"' in data[:200] else None


async def _breaking(error: UpstreamUnreachable | UpstreamStalled) -> AsyncIterator[bytes]:
    raise error
    yield b""


async def _nothing() -> AsyncIterator[bytes]:
    return
    yield b""
