"""
What is stored of a compaction or a trim: how the start of a history is shown.

A rewrite is complete in itself: the one that belongs to the longest matching history
says everything about the view up to there, so that nothing has to be put together from
several entries. Positions count from the end of the brief, whose system messages may
come and go.
"""

import json
from dataclasses import asdict, dataclass, fields

from proxy.core.messages import Cut


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    """
    How the first `seen` messages after the brief are shown.

    Attributes:
        seen: Messages after the brief that it was made over, the tail included.
        replaced: How many of them, from the first, `block` stands for.
        block: The text that stands for them, as it was rendered.
        notes: The notes inside the block; empty where none could be made.
        cuts: What was cut in messages that are still shown.
        folds: Sets of notes that were folded into `notes` before.
        is_trim: Whether the last change cut texts: a trim, or a mask.
        is_mask: Whether that was a mask, a compaction without notes.
        compacted_at: `seen` of the newest compaction in it; 0 for none.
    """

    seen: int
    replaced: int = 0
    block: str = ""
    notes: str = ""
    cuts: tuple[Cut, ...] = ()
    folds: int = 0
    is_trim: bool = False
    is_mask: bool = False
    compacted_at: int = 0


def to_bytes(rewrite: Rewrite) -> bytes:
    """JSON; lone surrogates survive as escapes."""
    return json.dumps(asdict(rewrite), separators=(",", ":")).encode()


def from_bytes(value: bytes) -> Rewrite | None:
    """The stored rewrite; None for what another version wrote that this one cannot read."""
    try:
        stored = json.loads(value)
        cuts = tuple(Cut(**cut) for cut in stored.pop("cuts"))
        rewrite = Rewrite(cuts=cuts, **stored)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    if not _has_types(rewrite) or not all(map(_has_types, cuts)):
        return None
    fits = all(rewrite.replaced <= cut.at < rewrite.seen and cut.text >= 0 for cut in cuts)
    return rewrite if fits and 0 <= rewrite.replaced <= rewrite.seen else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Notes that came to nothing after `seen` messages, for the `attempts`-th time in a row."""

    seen: int
    attempts: int


# Turns to wait after the first, second and every later failure in a row.
BACKOFF_TURNS = (3, 6, 12)


def backoff_turns(attempts: int) -> int:
    """Turns without another attempt after *attempts* failures in a row."""
    return BACKOFF_TURNS[min(attempts, len(BACKOFF_TURNS)) - 1] if attempts > 0 else 0


def failure_to_bytes(failure: Failure) -> bytes:
    """JSON."""
    return json.dumps(asdict(failure)).encode()


def failure_from_bytes(value: bytes) -> Failure | None:
    """The stored failure, or None."""
    try:
        failure = Failure(**json.loads(value))
    except (ValueError, TypeError, RecursionError):
        return None
    return failure if _has_types(failure) and failure.attempts > 0 else None


def _has_types(value: Rewrite | Cut | Failure) -> bool:
    """Whether every number, text and flag is one; JSON can put anything there, and true for 1."""
    plain = [field for field in fields(value) if field.type in (int, str, bool)]
    return all(type(getattr(value, field.name)) is field.type for field in plain)
