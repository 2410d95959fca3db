"""
Get one set of notes from the upstream.

The answer is read as a stream, so that silence can be told from slowness, and so that
a tool call or an endless answer is broken off at once. Every fault is a value: the
caller goes on without notes.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from proxy.core.notes import Accepted, Reason, Rejected, judge
from proxy.core.overflow import Overflow, read_overflow
from proxy.dialects.base import Dialect, Piece, Usage
from proxy.dialects.sse import Event, Events
from proxy.encodings import decoded
from proxy.errors import BadEncoding, BodyTooLarge, UpstreamStalled, UpstreamUnreachable
from proxy.upstream import Headers, Upstream
from proxy.upstream_response import Response

# An answer over its limit by this much is not going to end: the server ignores it. Tokens that
# are not seen are counted by events; few servers send more than one for each.
_FAR_OVER = 1.5
_MOST_EVENTS_PER_TOKEN = 8
# After the text has ended only its usage is still to come, and not every server closes.
_LAST_WORD_SECONDS = 2.0
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
        overflow: What it says of the window, where the request was too long for it.
    """

    verdict: Accepted | Rejected
    usage: Usage | None = None
    status: int = 0
    overflow: Overflow | None = None


@dataclass(slots=True)
class _Heard:
    text: list[str]
    chars: int = 0
    reasoned: bool = False
    called: bool = False
    finish: str = ""
    error: str = ""
    events: int = 0
    checked: int = 0
    is_done: bool = False
    is_endless: bool = False

    def take(self, piece: Piece) -> None:
        self.events += 1
        if piece.text:
            self.text.append(piece.text)
            self.chars += len(piece.text)
        self.reasoned |= piece.reasoning
        self.called |= piece.called
        self.finish = piece.finish or self.finish
        self.error = piece.error or self.error

    def hear(self, event: Event, dialect: Dialect) -> None:
        if event.data.strip() == b"[DONE]":
            # It ended by itself, even where it gave no reason.
            self.is_done, self.finish = True, self.finish or "stop"
            return
        self.take(dialect.read_event(event.data))
        if event.name == b"error" and not self.error:
            self.error = event.data.decode("utf-8", "replace") or "error"

    def goes_on(self, limit: int, count: Callable[[str], int]) -> bool:
        """Whether it has gone on far beyond what was asked for; sets `is_endless`."""
        self.is_endless = self.events > _MOST_EVENTS_PER_TOKEN * limit or self._is_long(limit, count)
        return self.is_endless

    def _is_long(self, limit: int, count: Callable[[str], int]) -> bool:
        # A token has at least one character, and counting everything at every event would
        # take ever longer.
        if self.chars <= max(limit, self.checked * _FAR_OVER):
            return False
        self.checked = self.chars
        self.text[:] = ["".join(self.text)]
        return count(self.text[0]) > _FAR_OVER * limit


async def ask_for_notes(
    upstream: Upstream,
    dialect: Dialect,
    *,
    url: str,
    headers: Headers,
    body: bytes,
    room: int,
    limit: int,
    count: Callable[[str], int],
    sources: Sequence[str],
    earlier: str = "",
    instruction: str = "",
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
        limit: Most tokens of the answer, reasoning included, as the request has it.
        count: Tokens of a text.
        sources: Texts that the notes must not copy.
        earlier: Notes that they fold; empty for none.
        instruction: What the model is asked, which the notes must not repeat.
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
        return await _read(
            response,
            dialect,
            room=room,
            limit=limit,
            count=count,
            sources=sources,
            earlier=earlier,
            instruction=instruction,
        )
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
    *,
    room: int,
    limit: int,
    count: Callable[[str], int],
    sources: Sequence[str],
    earlier: str,
    instruction: str,
) -> NotesAnswer:
    if response.status != _OK:
        return _refused(response.status, read_overflow(response.status, await _whole(response)))
    heard = _Heard([])
    usage: Usage | None
    if "event-stream" in response.header("content-type").lower():
        usage = await _listen(response, dialect, heard, limit, count)
    else:
        whole = await _whole(response)
        heard.take(dialect.read_whole(whole))
        usage = dialect.read_usage(b"", whole, is_stream=False)
    if heard.error:
        # It is the error by itself, as the body of a refusal would be.
        return _refused(response.status, read_overflow(400, heard.error.encode()), usage)
    text = "".join(heard.text)
    # A stream that just ends was cut off somewhere: what it brought may do, as after a limit.
    cut = heard.finish in ("length", "") and not heard.is_endless
    verdict = await asyncio.to_thread(
        judge,
        text,
        reasoned=heard.reasoned,
        called=heard.called or heard.finish == "tool",
        cut=cut,
        room=room,
        count=count,
        sources=sources,
        earlier=earlier,
        instruction=instruction,
        written=usage.completion if usage else 0,
    )
    return NotesAnswer(verdict=verdict, usage=usage, status=response.status)


def _refused(status: int, overflow: Overflow | None, usage: Usage | None = None) -> NotesAnswer:
    reason = Reason.OVERFLOW if overflow else Reason.HTTP_ERROR
    return NotesAnswer(verdict=Rejected(reason), usage=usage, status=status, overflow=overflow)


async def _listen(
    response: Response, dialect: Dialect, heard: _Heard, limit: int, count: Callable[[str], int]
) -> Usage | None:
    """Hear a stream as far as is needed; its usage, where it says so by then."""
    reader = Events()
    head, tail = b"", b""
    try:
        async with asyncio.timeout(None) as patience:
            async for chunk in response.chunks():
                head = head if len(head) >= HEAD_BYTES else (head + chunk)[:HEAD_BYTES]
                tail = (tail + chunk)[-_TAIL_BYTES:]
                for event in reader.feed(chunk):
                    heard.hear(event, dialect)
                if heard.called or heard.error or heard.is_done or heard.goes_on(limit, count):
                    break
                if heard.finish and patience.when() is None:
                    patience.reschedule(asyncio.get_running_loop().time() + _LAST_WORD_SECONDS)
    except (TimeoutError, UpstreamStalled, UpstreamUnreachable):
        if not heard.finish:
            raise
    for event in reader.end():
        heard.hear(event, dialect)
    return dialect.read_usage(head, tail, is_stream=True)


async def _whole(response: Response) -> bytes:
    raw = await response.read(_MOST_WHOLE_BYTES)
    try:
        return decoded(raw, response.header("content-encoding"), _MOST_WHOLE_BYTES)
    except (BadEncoding, BodyTooLarge):
        return raw
