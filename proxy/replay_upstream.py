"""
Stand in for a model server while a session is replayed: no network, no model.

It writes notes of an assumed size, and follows what a server with one slot would have in
its cache, by the longest common beginning of two prompts. Both are assumptions, and are
called so wherever their numbers are shown.
"""

import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from proxy.core.splice import splice
from proxy.dialects.anthropic_messages import ANTHROPIC_MESSAGES
from proxy.dialects.base import Dialect
from proxy.dialects.chat_completions import CHAT_COMPLETIONS
from proxy.dialects.responses import RESPONSES
from proxy.errors import NotUnderstood
from proxy.upstream import Headers, Upstream
from proxy.upstream_response import Response

_URL = "http://replayed.invalid"
_NOT_FOUND = 404
_ANSWERS: dict[str, Callable[[str], object]] = {
    CHAT_COMPLETIONS.endpoint: lambda text: {
        "choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}]
    },
    RESPONSES.endpoint: lambda text: {
        "status": "completed",
        "output": [{"type": "message", "content": [{"type": "output_text", "text": text}]}],
    },
    ANTHROPIC_MESSAGES.endpoint: lambda text: {
        "content": [{"type": "text", "text": text}],
        "stop_reason": "end_turn",
    },
}
_LINE = "Assumed line {line} of record {record}, in place of what a model would have noted of these turns."


@dataclass(frozen=True, slots=True)
class Seen:
    """A prompt in characters: its whole length, and what of it was not in the cache."""

    chars: int
    new: int


class Cache:
    """
    What a server with one slot has processed last.

    Attributes:
        last_turn: The last prompt that was no notes request.
    """

    def __init__(self) -> None:
        self._last = b""
        self.last_turn = b""

    def take(self, prompt: bytes, *, is_turn: bool = False) -> Seen:
        """Process *prompt*, as `prompt_of` has it."""
        new = len(prompt) - _common(self._last, prompt)
        self._last = prompt
        if is_turn:
            self.last_turn = prompt
        return Seen(len(prompt), new)


class AssumedServer(Upstream):
    """
    Answers discovery like a llama.cpp with one slot, and notes requests with filler.

    Args:
        window: What it says that it holds.
        dialect: Of the notes requests.
        notes_tokens: Size of a set of notes; None for as long as a request allows.
        allowance: What of a request's output limit is meant for reasoning.
        count: Tokens of a text.
        cache: Takes the prompts of notes requests.

    Attributes:
        notes: The prompts of the notes requests so far.
    """

    def __init__(
        self,
        *,
        window: int,
        dialect: Dialect,
        notes_tokens: int | None,
        allowance: int,
        count: Callable[[str], int],
        cache: Cache,
    ) -> None:
        super().__init__(url=_URL)
        self._window = window
        self._dialect = dialect
        self._notes_tokens = notes_tokens
        self._allowance = allowance
        self._count = count
        self._cache = cache
        self.notes: list[Seen] = []

    async def send(
        self,
        method: str,
        url: str,
        *,
        headers: Headers = (),
        body: bytes | AsyncIterator[bytes] = b"",
        idle_timeout_seconds: float | None = None,
        even_if_down: bool = False,
    ) -> Response:
        """One request of the compactor; nothing goes anywhere."""
        path = url.removeprefix(_URL)
        if path == "/props":
            return _json({"default_generation_settings": {"n_ctx": self._window}, "total_slots": 1})
        if path != f"/v1{self._dialect.endpoint}" or not isinstance(body, bytes):
            return _json({"error": {"code": _NOT_FOUND}}, _NOT_FOUND)
        self.notes.append(self._cache.take(prompt_of(self._dialect, body)))
        return _json(_ANSWERS[self._dialect.endpoint](self._filler(self._size(body))))

    def _size(self, body: bytes) -> int:
        """Tokens of the notes that a request gets: a model keeps to its limit."""
        limit = self._dialect.parse(body).conversation.output_limit or 0
        room = max(0, limit - self._allowance)
        return room if self._notes_tokens is None else min(room, self._notes_tokens)

    def _filler(self, size: int) -> str:
        lines: list[str] = []
        while True:
            line = _LINE.format(line=len(lines) + 1, record=len(self.notes))
            size -= self._count(line) + 1
            if lines and size < 0:
                return "\n".join(lines)
            lines.append(line)


def prompt_of(dialect: Dialect, body: bytes) -> bytes:
    """What of a body becomes the prompt: the tools, then each message."""
    try:
        parsed = dialect.parse(body)
    except NotUnderstood:
        return body
    # Not all that stands outside: `tool_choice` changes no prompt of a server that keeps its tools.
    outside = (text.encode("utf-8", "surrogatepass") for text in parsed.conversation.fixed_texts)
    return b"\0".join((*outside, *dialect.message_bytes(splice(parsed.conversation, None))))


def _common(a: bytes, b: bytes) -> int:
    """Length of the longest common beginning, found by halving: comparing slices is fast."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


class _Made(Response):
    """An answer that came from no network."""

    def __init__(self, status: int, body: bytes) -> None:
        self.status = status
        self.headers = [(b"content-type", b"application/json")]
        self._body = body

    async def chunks(self) -> AsyncIterator[bytes]:
        """All of it."""
        yield self._body

    async def close(self) -> None:
        """There is nothing to let go."""


def _json(value: object, status: int = 200) -> Response:
    return _Made(status, json.dumps(value).encode())
