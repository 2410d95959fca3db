"""
What the status page says of a conversation: the values, as they are shown and sent.

Sizes are in tokens, times in seconds since the epoch. Texts are short, and free of what
a terminal would obey; nothing here is content but `Story.block`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class What(StrEnum):
    """What changed a conversation, or failed to."""

    COMPACTED = "compacted"
    MASKED = "masked"
    TRIMMED = "trimmed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """
    One request as it went upstream.

    Attributes:
        number: Counted within its conversation, from 1.
        at: When it was prepared.
        turn: Turns of the client's history.
        tokens: The prompt; the upstream's own count once it has answered.
        budget: What the prompt may fill.
        outcome: As in the header `x-compaction`.
        cached: What of it the upstream had cached; None where it does not say.
        is_answered: Whether usage came back.
    """

    number: int
    at: float
    turn: int
    tokens: int
    budget: int
    outcome: str
    cached: int | None = None
    is_answered: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """
    A compaction, with notes or by masking, a trim, or notes that came to nothing.

    Attributes:
        number: Of the request that it was made for.
        at: When it was done.
        what: Which of them.
        before: The prompt before it.
        after: The prompt after it; as before it where it failed.
        turns: Replaced turns of a compaction.
        seconds: How long the notes, or the masking, took.
        why: What set it off, what was cut, or why it failed: words from enums.
    """

    number: int
    at: float
    what: What
    before: int = 0
    after: int = 0
    turns: int = 0
    seconds: float = 0.0
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """What was counted: of one conversation, or of all since the proxy started."""

    requests: int = 0
    compactions: int = 0
    masks: int = 0
    trims: int = 0
    failures: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0


class Counted:
    """`Totals` while they grow: far more often than somebody looks at them."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def add(self, more: Mapping[str, int]) -> None:
        """Count *more* of its members."""
        for name, count in more.items():
            self._counts[name] = self._counts.get(name, 0) + count

    def __getitem__(self, name: str) -> int:
        """One of them."""
        return self._counts.get(name, 0)

    def totals(self) -> Totals:
        """All of them, as they are now."""
        return Totals(**self._counts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """
    One line of the list.

    Attributes:
        id: Short id: the digest of the conversation's beginning.
        model: As requests name it.
        turns: Of the newest request's history.
        tokens: Its prompt.
        budget: What that may fill; 0 before the first was prepared.
        window: What the upstream holds.
        compact_at: Share of the budget; 0 for never.
        compact_to: Share of the budget.
        totals: Counted over all its requests.
        last: The newest change.
        last_outcome: Of the newest request.
        is_noting: Whether notes are being written now.
        first_at: When it was first seen.
        last_at: When anything was last heard of it.
    """

    id: str
    model: str
    turns: int = 0
    tokens: int = 0
    budget: int = 0
    window: int = 0
    compact_at: float = 0.0
    compact_to: float = 0.0
    totals: Totals = Totals()
    last: Change | None = None
    last_outcome: str = ""
    is_noting: bool = False
    first_at: float = 0.0
    last_at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """A conversation's time line, oldest first; `block` is None unless content is shown and there is one."""

    conversation: Summary
    requests: tuple[Request, ...]
    changes: tuple[Change, ...]
    block: str | None
