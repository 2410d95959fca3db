"""
Follow conversations from request to request, for the metrics alone.

What cannot be told from one request: how many conversations are under way, whether a
prompt extends the one before it, and whether a run was saved for the first time. Keeps
digests, no content, and forgets what has been silent.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import StrEnum

from proxy.core.rewrite import Rewrite

# An agent may work on one tool call for minutes; after an hour nobody expects it back.
ACTIVE_SECONDS = 3600.0
# About 3 MB when full.
MOST_CONVERSATIONS = 10_000


# The model, since each has a cache of its own, and the conversation's short id.
Key = tuple[str, str]


class Cause(StrEnum):
    """Why a prompt does not extend the one before it."""

    COMPACTION = "compaction"
    MASK = "mask"
    TRIM = "trim"
    CLIENT = "client"


@dataclass(slots=True)
class _Known:
    asked_at: float
    prompt: bytes = b""
    rewrite: int = 0
    is_saved: bool = False


class Conversations:
    """
    The conversations of the last hour. For one event loop.

    Args:
        now: Seconds, monotonic.
        most: How many are told apart; the longest silent are forgotten first.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic, *, most: int = MOST_CONVERSATIONS) -> None:
        self._now = now
        self._most = most
        self._known: OrderedDict[Key, _Known] = OrderedDict()

    def sent(self, conversation: Key, prefixes: Collection[bytes], rewrite: Rewrite | None) -> Cause | None:
        """
        A prompt is about to be sent; says why it does not extend the last one of its conversation.

        Args:
            conversation: Which one.
            prefixes: What stands for each prefix of the prompt, the whole one last.
            rewrite: How its history is shown.

        None where it does, and where there was none in the last hour.
        """
        known = self._touch(conversation)
        before, shown = known.prompt, known.rewrite
        known.prompt = list(prefixes)[-1] if prefixes else b""
        # A block can be long, and only whether it is another one matters.
        known.rewrite = hash(rewrite)
        if not before or before in prefixes:
            return None
        if rewrite is None or known.rewrite == shown:
            return Cause.CLIENT
        if rewrite.is_mask:
            return Cause.MASK
        return Cause.TRIM if rewrite.is_trim else Cause.COMPACTION

    def saved(self, conversation: Key) -> bool:
        """An answer came that would not have come without the proxy; True for the first in a conversation."""
        known = self._touch(conversation)
        is_first = not known.is_saved
        known.is_saved = True
        return is_first

    def count(self) -> int:
        """Conversations with a request in the last hour."""
        self._forget()
        return len(self._known)

    def _touch(self, conversation: Key) -> _Known:
        known = self._known.setdefault(conversation, _Known(asked_at=0.0))
        known.asked_at = self._now()
        self._known.move_to_end(conversation)
        self._forget()
        return known

    def _forget(self) -> None:
        oldest_kept = self._now() - ACTIVE_SECONDS
        while self._known:
            conversation, known = next(iter(self._known.items()))
            if known.asked_at >= oldest_kept and len(self._known) <= self._most:
                return
            del self._known[conversation]
