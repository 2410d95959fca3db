"""
What does a stream say while its answer is not there yet, and how does it go on from that?

A heartbeat that no client takes for an answer needs nothing afterwards. Responses are
announced by an event with an id, and SDKs refuse a stream in which that id changes: what
the upstream sends later gets the id that was announced.
"""

import re

from proxy.dialects.slices import dump
from proxy.dialects.sse import split_event
from proxy.dialects.values import read_json, string

# Ids that were announced by us, so that they are known when a client comes back with one.
ANNOUNCED = re.compile(rb"resp_waited_[0-9a-f]{32}")
# A first event that is longer than this is passed on as it is.
_MOST_FIRST_BYTES = 1024 * 1024


class Plain:
    """Says the same every time; the upstream's stream goes on as it is."""

    renamed: tuple[str, str] | None = None

    def __init__(self, beat: bytes) -> None:
        self._beat = beat

    def beat(self) -> bytes:
        """See `Waiting.beat`."""
        return self._beat

    def relay(self, chunk: bytes) -> bytes:
        """See `Waiting.relay`."""
        return chunk

    def end(self) -> bytes:
        """See `Waiting.end`."""
        return b""


class Announced:
    """
    `response.created` once, then `response.in_progress`: clients that time a stream out count
    events only.

    Args:
        key: 32 hexadecimal digits that no other stream has.
    """

    def __init__(self, key: str) -> None:
        self.renamed: tuple[str, str] | None = None
        self._id = f"resp_waited_{key}"
        self._sent = 0
        self._first: bytes | None = b""
        self._theirs = b""
        self._held = b""

    def beat(self) -> bytes:
        """See `Waiting.beat`."""
        kind = "response.in_progress" if self._sent else "response.created"
        event = {"type": kind, "sequence_number": self._sent, "response": response(self._id, "in_progress")}
        self._sent += 1
        return sse_event(event)

    def relay(self, chunk: bytes) -> bytes:
        """The upstream's own `response.created` is not repeated, and its id is replaced."""
        if not self._sent:
            return chunk
        if self._first is None:
            return self._with_id(chunk)
        self._first += chunk
        # An event ends with a line; a long one in small pieces is not searched again for each.
        may_end = b"\n" in chunk or b"\r" in chunk
        before, event, rest = split_event(self._first) if may_end else (b"", b"", b"")
        if not event and len(self._first) <= _MOST_FIRST_BYTES:
            return b""
        self._first = None
        is_created = self._read(event)
        return before + self._with_id((b"" if is_created else event) + rest)

    def end(self) -> bytes:
        """See `Waiting.end`."""
        left = (self._first or b"") + self._held
        self._first, self._held = None, b""
        return left

    def _read(self, event: bytes) -> bool:
        """Learn the upstream's id from its first event; whether that is `response.created`."""
        data = b"".join(line[5:] for line in event.splitlines() if line.startswith(b"data:"))
        value = read_json(data)
        said = value.get("response") if isinstance(value, dict) else None
        theirs = string(said.get("id")) if isinstance(said, dict) else ""
        if theirs:
            self._theirs = dump(theirs).encode()
            self.renamed = self._id, theirs
        return isinstance(value, dict) and value.get("type") == "response.created"

    def _with_id(self, chunk: bytes) -> bytes:
        if not self._theirs:
            return chunk
        data = (self._held + chunk).replace(self._theirs, dump(self._id).encode())
        # The id may be cut by the end of a chunk: what may be its beginning waits for the next.
        begun = next((n for n in range(len(self._theirs) - 1, 0, -1) if data.endswith(self._theirs[:n])), 0)
        self._held = data[len(data) - begun :]
        return data[: len(data) - begun]


def response(response_id: str, status: str, error: dict[str, str] | None = None) -> dict[str, object]:
    """A response of which nothing is known yet, with every field that SDKs ask for."""
    return {
        "id": response_id,
        "object": "response",
        "created_at": 0,
        "status": status,
        "error": error,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": "",
        "output": [],
        "parallel_tool_calls": True,
        "temperature": None,
        "tool_choice": "auto",
        "tools": [],
        "top_p": None,
        "usage": None,
    }


def sse_event(value: dict[str, object]) -> bytes:
    """*value* as an event that is named by its type."""
    return f"event: {value['type']}\ndata: {dump(value)}\n\n".encode()
