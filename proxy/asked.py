"""
What a client asked, and what goes upstream for it.

Values between the HTTP side (`exchange`) and the side that knows conversations
(`compactor`).
"""

from dataclasses import dataclass
from enum import StrEnum

from proxy.dialects.base import Dialect, Parsed


class Outcome(StrEnum):
    """What happened to a request's conversation; the values of the header `x-compaction`."""

    NONE = "none"
    REUSED = "reused"
    COMPACTED = "compacted"
    MASKED = "masked"
    TRIMMED = "trimmed"
    FAILED = "failed"


class Trigger(StrEnum):
    """What set a compaction off; label values."""

    THRESHOLD = "threshold"
    OVERFLOW = "overflow"
    RESUMED = "resumed"
    AHEAD = "ahead"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """
    A request for a completion that was understood.

    Attributes:
        dialect: Of the endpoint.
        parsed: The body.
        url: Where upstream it goes.
        headers: For requests of our own on its behalf: the client's, without those that
            describe the body.
        credentials: What tells the caller from others.
        plain: The body without its coding; None where it had none. Few servers undo one.
    """

    dialect: Dialect
    parsed: Parsed
    url: str
    headers: tuple[tuple[str, str], ...]
    credentials: tuple[str, ...]
    plain: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """
    What goes upstream.

    Attributes:
        body: None for the very bytes that came.
        outcome: What happened to the conversation.
        conversation: Short id of the conversation, for logs.
        model: As the request names it.
        tokens: The prompt; 0 where it was not measured.
        budget: What it may fill; 0 where that is not known.
        raw: The tokenizer's own estimate, for learning.
        attachments: Pictures and files in it.
        key: Stands for exactly this prompt; empty where it was not measured.
        history: Digest of the client's whole history; empty where it was not measured.
        compacted: Whether this request has had its one compaction.
        outgrown: Whether the client's own history would not have fitted the window.
    """

    body: bytes | None
    outcome: Outcome
    conversation: str = ""
    model: str = ""
    tokens: int = 0
    budget: int = 0
    raw: int = 0
    attachments: int = 0
    key: bytes = b""
    history: bytes = b""
    compacted: bool = False
    outgrown: bool = False
