"""
Get one set of notes from the upstream.

The answer is read as a stream, so that silence can be told from slowness, and so that
a tool call or an endless answer is broken off at once. Every fault is a value: the
caller goes on without notes.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from proxy.core.notes import Accepted, Reason, Rejected, judge, without_reasoning
from proxy.core.overflow import read_overflow
from proxy.dialects.base import Dialect, Piece, Usage
from proxy.dialects.sse import Events
from proxy.encodings import decoded
from proxy.errors import BadEncoding, BodyTooLarge, UpstreamStalled, UpstreamUnreachable
from proxy.upstream import Headers, Response, Upstream

# Text over the room by this much is not going to end: the server ignores its limit.
_FAR_OVER = 1.5
_OK = 200
_MOST_WHOLE_BYTES = 8 * 1024 * 1024
# Of the beginning and the end of a stream, for its usage.
HEAD_BYTES = 4 * 1024
_TAIL_BYTES = 16 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class NotesAnswer:
    """
    What came of a notes request.

    Attributes:
        verdict: Notes that may be used, or why there are none.
        usage: What the upstream reports of it, or None.
        status: HTTP status, 0 where there was none.
    """

    verdict: Accepted | Rejected
    usage: Usage | None = None
    status: int = 0


@dataclass(slots=True)
class _Heard:
    text: list[str]
    chars: int = 0
    reasoned: bool = False
    called: bool = False
    finish: str = ""
    error: str = ""

    def take(self, piece: Piece) -> None:
        if piece.text:
            self.text.append(piece.text)
            self.chars += len(piece.text)
        self.reasoned |= piece.reasoning
        self.called |= piece.called
        self.finish = piece.finish or self.finish
        self.error = piece.error or self.error


async def ask_for_notes(
    upstream: Upstream,
    dialect: Dialect,
    *,
    url: str,
    headers: Headers,
    body: bytes,
    room: int,
    count: Callable[[str], int],
    sources: Sequence[str],
    idle_timeout_seconds: float,
) -> NotesAnswer:
    """
    Send a notes request and judge the answer; never raises but for cancellation.

    Args:
        upstream: Where to send it.
        dialect: Reads the answer.
        url: As for the request that it extends.
        headers: The client's, for its credentials.
        body: The notes request.
        room: Most tokens of the notes.
        count: Tokens of a text.
        sources: Texts that the notes must not copy.
        idle_timeout_seconds: Longest silence.
    """
    try:
        response = await upstream.send(
            "POST", url, headers=headers, body=body, idle_timeout_seconds=idle_timeout_seconds
        )
    except UpstreamStalled:
        return NotesAnswer(verdict=Rejected(Reason.TIMEOUT))
    except UpstreamUnreachable:
        return NotesAnswer(verdict=Rejected(Reason.UNREACHABLE))
    try:
        return await _read(response, dialect, room, count, sources)
    except UpstreamStalled:
        return NotesAnswer(verdict=Rejected(Reason.TIMEOUT), status=response.status)
    except UpstreamUnreachable:
        return NotesAnswer(verdict=Rejected(Reason.UNREACHABLE), status=response.status)
    finally:
        # Also what ends the upstream's work where the answer was broken off.
        await response.close()


async def _read(
    response: Response,
    dialect: Dialect,
    room: int,
    count: Callable[[str], int],
    sources: Sequence[str],
) -> NotesAnswer:
    if response.status != _OK:
        refused = await _whole(response)
        is_overflow = read_overflow(response.status, refused) is not None
        reason = Reason.OVERFLOW if is_overflow else Reason.HTTP_ERROR
        return NotesAnswer(verdict=Rejected(reason), status=response.status)
    heard = _Heard([])
    usage: Usage | None = None
    broken_off = False
    if "event-stream" in response.header("content-type"):
        reader = Events()
        head, tail = b"", b""
        async for chunk in response.chunks():
            head = head if len(head) >= HEAD_BYTES else (head + chunk)[:HEAD_BYTES]
            tail = (tail + chunk)[-_TAIL_BYTES:]
            for event in reader.feed(chunk):
                heard.take(dialect.read_event(event.data))
            if heard.called or heard.error:
                broken_off = True
                break
            # Counting costs more than comparing: a token has at least one character.
            if heard.chars > room and _is_far_over(heard, room, count):
                broken_off = True
                break
        for event in reader.end():
            heard.take(dialect.read_event(event.data))
        usage = dialect.read_usage(head, tail, is_stream=True)
    else:
        whole = await _whole(response)
        heard.take(dialect.read_whole(whole))
        usage = dialect.read_usage(b"", whole, is_stream=False)
    if heard.error:
        is_overflow = read_overflow(response.status, heard.error.encode()) is not None
        reason = Reason.OVERFLOW if is_overflow else Reason.HTTP_ERROR
        return NotesAnswer(verdict=Rejected(reason), usage=usage, status=response.status)
    text = "".join(heard.text)
    # A stream that just ends was cut off somewhere: what it brought may do, as after a limit.
    cut = broken_off or heard.finish in ("length", "")
    verdict = await asyncio.to_thread(
        judge,
        text,
        reasoned=heard.reasoned,
        called=heard.called or heard.finish == "tool",
        cut=cut,
        room=room,
        count=count,
        sources=sources,
    )
    return NotesAnswer(verdict=verdict, usage=usage, status=response.status)


def _is_far_over(heard: _Heard, room: int, count: Callable[[str], int]) -> bool:
    text = "".join(heard.text)
    heard.text[:] = [text]
    return count(without_reasoning(text)) > _FAR_OVER * room


async def _whole(response: Response) -> bytes:
    raw = await response.read(_MOST_WHOLE_BYTES)
    try:
        return decoded(raw, response.header("content-encoding"), _MOST_WHOLE_BYTES)
    except (BadEncoding, BodyTooLarge):
        return raw
