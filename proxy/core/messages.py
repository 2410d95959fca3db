"""
Name the parts of a conversation: brief, turns, and the view that goes upstream.

The wire objects stay untouched inside `Message.wire` and are opaque here; a dialect
makes messages from them and renders views back. What the core may change it says as
texts: one appended to a message, or one put in another's place.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import Any


class Role(StrEnum):
    """Who speaks. Developer messages are `SYSTEM`."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


# Looking a member up in its class takes longer than comparing.
_ASSISTANT = Role.ASSISTANT


class Kind(StrEnum):
    """What a text of a message is. `SEALED` is reasoning with a signature: it is never cut."""

    SAID = "said"
    RESULT = "result"
    ARGUMENTS = "arguments"
    REASONING = "reasoning"
    SEALED = "sealed"


@dataclass(frozen=True, slots=True)
class Text:
    """
    One string of a message, in the order in which the wire object has them.

    Attributes:
        kind: What it is.
        text: The string itself; for `ARGUMENTS` as it came, usually JSON.
        of: For `ARGUMENTS` the index in `Message.calls`, for `RESULT` that in
            `Message.answers`, else 0.
    """

    kind: Kind
    text: str
    of: int = 0


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call. `id` pairs it with its result; models repeat ids, so pairing is by position too."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """An image, audio clip or file inside a message."""

    kind: str
    name: str = ""
    media_type: str = ""
    size_bytes: int = 0


@dataclass(slots=True)
class Memo:
    """
    What was worked out of a message and may be wanted again: a history comes with every request.

    Nothing depends on it but the time that takes; each entry says what it was worked out for.

    Attributes:
        digest: Digest of the messages before it, ordinals of what it answers, and the digest after it.
        key: What stood for the prompt before it, and what stands for it with this message.
        tokens: Who counted it, and its size.
        shown: The message as a view has it where nothing changed.
    """

    digest: tuple[bytes, tuple[int, ...], bytes] | None = None
    key: tuple[bytes, bytes] | None = None
    tokens: tuple[object, int] | None = None
    shown: "Shown | None" = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """
    One message of a conversation.

    Attributes:
        role: Who speaks. A message that carries a tool's result is `TOOL`, whatever
            the wire calls it.
        wire: The object as it came, never changed; None for a message of our making.
        texts: Every string of its content, arguments and reasoning.
        calls: Tool calls, in order.
        answers: Ids of the calls that it answers, in order.
        attachments: What is not text.
        normal: Its normal form, for the digest; empty where identity ignores it.
        size_bytes: About the size of the wire object as JSON, for deciding where to count.
        joins: Whether it belongs to the message before it: no turn begins here. Some
            formats say one assistant message in several pieces.
        memo: What is known of it already; no part of the message.
    """

    role: Role
    wire: Any = None
    texts: tuple[Text, ...] = ()
    calls: tuple[Call, ...] = ()
    answers: tuple[str, ...] = ()
    attachments: tuple[Attachment, ...] = ()
    normal: bytes = b""
    size_bytes: int = 0
    joins: bool = False
    memo: Memo = field(default_factory=Memo, init=False, repr=False, compare=False)

    def said(self) -> str:
        """What it says, without arguments, results and reasoning."""
        return "\n".join(t.text for t in self.texts if t.kind is Kind.SAID)

    def result(self, answer: int) -> str:
        """The text of the result for the call `answers[answer]`."""
        return "\n".join(t.text for t in self.texts if t.kind is Kind.RESULT and t.of == answer)


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """An assistant message and everything up to the next one: `messages[start:end]`."""

    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """
    A request's messages with what stands around them.

    Attributes:
        messages: All of them, in order.
        brief_end: Index of the first assistant message; `len(messages)` without one.
        turns: The turns after the brief, without gaps.
        model: As the request names it; empty where it names none.
        tool_names: Names of the tools offered.
        output_limit: The request's own limit on output tokens, or None.
        stream: Whether the client asked for a stream.
        fixed_texts: Tools and other prompt fields outside the messages, as JSON text,
            for counting.
    """

    messages: tuple[Message, ...]
    brief_end: int
    turns: tuple[Turn, ...]
    model: str = ""
    tool_names: tuple[str, ...] = ()
    output_limit: int | None = None
    stream: bool = False
    fixed_texts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """In the message `at` places after the brief, `put` stands for the text of index `text`."""

    at: int
    text: int
    put: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """
    One message of a view.

    Attributes:
        message: The original, or one of our making.
        appended: Text added at its end; empty for none.
        cuts: What stands in the place of which of its texts, as (index, text).
    """

    message: Message
    appended: str = ""
    cuts: tuple[tuple[int, str], ...] = ()

    @property
    def is_word_for_word(self) -> bool:
        """Whether it goes upstream just as the client sent it."""
        return not self.appended and not self.cuts and self.message.wire is not None


View = tuple[Shown, ...]


def as_it_came(message: Message) -> Shown:
    """A message that is shown word for word."""
    memo = message.memo
    if memo.shown is None:
        memo.shown = Shown(message=message)
    return memo.shown


def has_reasoned(conversation: Conversation) -> bool:
    """Whether reasoning of the model stands in it; clients may leave it out."""
    kinds = (Kind.REASONING, Kind.SEALED)
    return any(text.kind in kinds for message in conversation.messages for text in message.texts)


def find_turns(messages: Sequence[Message]) -> tuple[int, tuple[Turn, ...]]:
    """
    The end of the brief, and the turns after it.

    A turn never begins between a call and its result. Pairs are found by position:
    a result answers the nearest call before it that has its id and no answer yet,
    because models repeat ids. Assistant messages that follow one another stay in one
    turn only where a later result would be parted from its call. A trailing assistant
    message without calls (a prefill) belongs to the turn before it.
    """
    starts = [i for i, m in enumerate(messages) if m.role is _ASSISTANT]
    if not starts:
        return len(messages), ()
    brief_end = starts[0]
    last = len(messages) - 1
    if len(starts) > 1 and starts[-1] == last and not messages[last].calls:
        starts.pop()
    joined = _joined(messages)
    kept = [s for s in starts if s == brief_end or (s not in joined and not messages[s].joins)]
    ends = [*kept[1:], len(messages)]
    return brief_end, tuple(map(_turn, kept, ends))


# A long history has hundreds, the same with every request; 1 MB when full.
@lru_cache(maxsize=8192)
def _turn(start: int, end: int) -> Turn:
    return Turn(start=start, end=end)


def _joined(messages: Sequence[Message]) -> set[int]:
    """Indices of assistant messages that stand between a call and its result."""
    open_calls: dict[str, list[int]] = {}
    # How many pairs begin, less those that end, at each message: a walk from call to result
    # for each of them would be quadratic where one message makes thousands of calls.
    changes: dict[int, int] = {}
    for i, message in enumerate(messages):
        for call in message.calls:
            open_calls.setdefault(call.id, []).append(i)
        for answered in message.answers:
            callers = open_calls.get(answered)
            # Of a pair that stands together nothing is between.
            if callers and (begun := callers.pop() + 1) != i:
                changes[begun] = changes.get(begun, 0) + 1
                changes[i] = changes.get(i, 0) - 1
    if not changes:
        return set()
    joined: set[int] = set()
    open_pairs = 0
    for i, message in enumerate(messages):
        open_pairs += changes.get(i, 0)
        if open_pairs > 0 and message.role is _ASSISTANT:
            joined.add(i)
    return joined
