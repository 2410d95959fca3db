"""
Read server-sent events from bytes that are cut anywhere.

Only what the proxy itself has to understand is read: a relayed stream passes as bytes.
Line ends may be LF, CRLF or CR; a field may stand without the space; several `data`
lines make one event; the last event may lack its blank line.
"""

import re
from dataclasses import dataclass

# An event that never ends is no event: what is over this is dropped.
MAX_EVENT_BYTES = 4 * 1024 * 1024

_LINE_END = re.compile(rb"\r\n|\n|\r")
_BLANK_LINE = re.compile(rb"(?>\r\n|\n|\r){2}")


@dataclass(frozen=True, slots=True)
class Event:
    """
    One event; `name` is empty where the stream names none.

    `error:` fields, which old llama.cpp servers send, read as data of an event of that
    name.
    """

    name: bytes
    data: bytes


class Events:
    """A reader that is fed chunks and gives back the events they complete."""

    def __init__(self) -> None:
        # The line that has no end yet, as it came: it is put together and searched only once, since
        # one of a megabyte in small pieces would else take half a minute.
        self._pieces: list[bytes] = []
        self._waiting = 0
        self._name = b""
        self._data: list[bytes] = []
        self._size = 0

    @property
    def is_in_event(self) -> bool:
        """Whether an event has begun: a field, or a line that may become one."""
        begins = self._pieces[0] if self._pieces else b""
        return bool(self._data or self._name) or not (begins == b"" or begins.startswith(b":"))

    def feed(self, chunk: bytes) -> list[Event]:
        """Events that end in *chunk*."""
        found: list[Event] = []
        ends_in_cr = bool(self._pieces) and self._pieces[-1].endswith(b"\r")
        if not ends_in_cr and b"\n" not in chunk and b"\r" not in chunk:
            self._wait_for_more(chunk)
            return found
        text = b"".join((*self._pieces, chunk))
        self._pieces, self._waiting = [], 0
        lines = _LINE_END.split(text)
        # A CR at the very end may be the first half of a CRLF.
        rest = lines.pop()
        if text.endswith(b"\r") and lines:
            rest = lines.pop() + b"\r"
        self._wait_for_more(rest)
        for line in lines:
            self._line(line, found)
        return found

    def end(self) -> list[Event]:
        """The last event, where the stream ended without its blank line."""
        found: list[Event] = []
        for line in (b"".join(self._pieces).rstrip(b"\r"), b""):
            self._line(line, found)
        self._pieces, self._waiting = [], 0
        return found

    def _wait_for_more(self, piece: bytes) -> None:
        if piece:
            self._pieces.append(piece)
            self._waiting += len(piece)
        if self._waiting > MAX_EVENT_BYTES:
            self._pieces, self._waiting = [], 0

    def _line(self, line: bytes, found: list[Event]) -> None:
        if not line:
            if self._data or self._name:
                found.append(Event(self._name, b"\n".join(self._data)))
            self._name, self._data, self._size = b"", [], 0
            return
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field in (b"data", b"error"):
            self._size += len(value)
            if self._size > MAX_EVENT_BYTES:
                self._data.clear()
                return
            self._data.append(value)
            if field == b"error":
                self._name = field
        elif field == b"event":
            self._name = value


def split_first(stream: bytes) -> tuple[bytes, bytes]:
    """The bytes of the first event with its blank line, and the rest; all is rest where none ends."""
    end = _BLANK_LINE.search(stream)
    return (stream[: end.end()], stream[end.end() :]) if end else (b"", stream)


def split_event(stream: bytes) -> tuple[bytes, bytes, bytes]:
    """
    What stands before the first event that has data, its bytes with its blank line, and the rest.

    All is rest where no such event ends.
    """
    start = 0
    while start < len(stream):
        event, rest = split_first(stream[start:])
        if not event:
            break
        if any(found.data for found in Events().feed(event)):
            return stream[:start], event, rest
        start += len(event)
    return b"", b"", stream


def last_data(tail: bytes, most: int = 8) -> list[bytes]:
    """The data of up to *most* events at the end of *tail*, which may begin in the middle of one."""
    datas = _datas(last_events(tail, most + _WITHOUT_DATA))
    return (datas if len(datas) >= most else _datas(tail))[-most:]


# Comments, and the end mark, that may stand among the last events; else all are read.
_WITHOUT_DATA = 2


def last_events(tail: bytes, most: int) -> bytes:
    """The end of *tail* with so many events, from one's blank line on; all of it where it has fewer."""
    blank_lines = (b"\n\n", b"\r\n\r\n", b"\r\r") if b"\r" in tail else (b"\n\n",)
    start = len(tail)
    for _ in range(most + 1):
        start = max(tail.rfind(blank, 0, start) for blank in blank_lines)
        if start < 0:
            return tail
    return tail[start:]


def _datas(stream: bytes) -> list[bytes]:
    reader = Events()
    events = reader.feed(stream) + reader.end()
    return [event.data for event in events if event.data and event.data != b"[DONE]"]
