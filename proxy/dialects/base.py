"""
What every wire format has to say to the rest of the proxy.

A dialect reads a request into a `Conversation`, renders a view back into a body, writes
the notes request, and reads an answer's usage and the notes. It decides nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from proxy.core.messages import Conversation, View
from proxy.dialects.known import Known


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """
    A request that was understood.

    Attributes:
        conversation: What the core works on.
        body: The dialect's own reading of the body; opaque to others.
        outside: The prompt fields outside the messages (tools, system), as bytes, for
            recognising a prompt that was counted before.
    """

    conversation: Conversation
    body: Any
    outside: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens as the upstream reports them; `cached` is None where it does not say."""

    prompt: int
    completion: int
    cached: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NotesFormat:
    """
    How a notes request differs from the request that it extends.

    Attributes:
        instruction: Appended inside the last message where it is a tool or user
            message, else a user message more.
        limit: Most tokens of the answer, notes and reasoning together.
        reasoning: How many of them are meant for reasoning.
        forbid_tools: Whether `tool_choice` "none" leaves the prompt alone on this upstream.
        limit_field: The output limit's name where the request has none itself.
    """

    instruction: str
    limit: int
    reasoning: int = 0
    forbid_tools: bool
    limit_field: str = "max_tokens"


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """
    What one event of an answer adds.

    Attributes:
        text: Visible text.
        reasoning: Whether it carried reasoning.
        called: Whether it began or went on with a tool call.
        finish: The finish reason in the dialect's neutral words: "stop", "length",
            "tool", or empty.
        error: An error object inside a 200, as JSON text; empty for none.
    """

    text: str = ""
    reasoning: bool = False
    called: bool = False
    finish: str = ""
    error: str = ""


class Waiting(Protocol):
    """What a stream says while its answer is not there yet, and how it goes on. For one request."""

    @property
    def renamed(self) -> tuple[str, str] | None:
        """The id that was announced and the upstream's own, where they differ."""
        ...

    def beat(self) -> bytes:
        """A heartbeat; no client takes it for an answer."""
        ...

    def relay(self, chunk: bytes) -> bytes:
        """What to send for the next *chunk* of the upstream's stream."""
        ...

    def end(self) -> bytes:
        """What is left to send once the upstream's stream has ended."""
        ...


class Dialect(Protocol):
    """One wire format. Nothing in `core/` knows its name."""

    @property
    def name(self) -> str:
        """A short word for metrics, and for keeping digests apart."""
        ...

    @property
    def endpoint(self) -> str:
        """The path below `/v1`, such as `/chat/completions`."""
        ...

    def parse(self, raw: bytes, known: Known | None = None) -> Parsed:
        """
        Args:
            raw: The body.
            known: What the same caller sent before; it is not read again.

        Raises:
            NotUnderstood: If the body is not of this dialect.
        """
        ...

    def render(self, parsed: Parsed, view: View) -> bytes:
        """
        The body with *view* for its messages; every other byte of a field as it came.

        Raises:
            NotUnderstood: If a message that has to change cannot be written again.
        """
        ...

    def render_notes(self, parsed: Parsed, view: View, how: NotesFormat) -> bytes:
        """The notes request over *view*, streamed; raises as `render` does."""
        ...

    def render_prewarm(self, parsed: Parsed, view: View) -> bytes:
        """The request over *view* for one token, not streamed; raises as `render` does."""
        ...

    def message_bytes(self, view: View) -> Sequence[bytes]:
        """For every message of *view*, the bytes that stand for it in the body."""
        ...

    def read_usage(self, head: bytes, tail: bytes, *, is_stream: bool) -> Usage | None:
        """
        Usage of an answer, None where there is none, or it is nonsense.

        Args:
            head: The first bytes of a stream; some formats say the prompt's size there.
            tail: Its last bytes, or a whole JSON body.
            is_stream: Whether it is a stream.
        """
        ...

    def read_event(self, data: bytes) -> Piece:
        """What the data of one SSE event of an answer says; nonsense reads as empty."""
        ...

    def read_whole(self, body: bytes) -> Piece:
        """The same for an answer that came without streaming."""
        ...

    def count_answer(self, tokens: int) -> bytes:
        """An answer to the question how large a prompt is."""
        ...

    def error(self, status: int, code: str, message: str) -> bytes:
        """An error body in this format."""
        ...

    def error_event(self, status: int, code: str, message: str) -> bytes:
        """The same as the last bytes of a stream that has begun."""
        ...

    def waiting(self, key: str) -> Waiting:
        """What one stream says while it waits; *key* is 32 hexadecimal digits of its own."""
        ...
