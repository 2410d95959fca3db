"""
What became of notes that were begun ahead of need, and when may it be tried again?

Notes that no request has used are remembered until one does, or none can any more; those that
were aborted, so that an agent whose tools are quicker than notes does not pay for half a set
on every turn. Both by digests alone, bounded, and only while the process lives.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from proxy.core.messages import Conversation
from proxy.core.plan import turns_since
from proxy.core.rewrite import Rewrite
from proxy.events import emit
from proxy.metrics import Metrics
from proxy.metrics_ahead import Fate

REST_TURNS_AFTER_ABORT = 3
# About 100 bytes each.
MOST_REMEMBERED = 1000
# An agent may work on one tool call for minutes; after an hour nobody expects it back.
_EXPECTED_BACK_SECONDS = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ready:
    """Notes that no request has used yet."""

    conversation: str
    model: str
    seen: int
    made_at: float


class Fates:
    """
    For one event loop. A *history* is the digest of the messages that the notes saw.

    Args:
        metrics: Counts them.
        now: Seconds, monotonic.
    """

    def __init__(self, metrics: Metrics, now: Callable[[], float] = time.monotonic) -> None:
        self._metrics = metrics
        self._now = now
        self._aborted: OrderedDict[bytes, None] = OrderedDict()
        self._ready: OrderedDict[bytes, _Ready] = OrderedDict()

    def made(self, history: bytes, rewrite: Rewrite, *, conversation: str, model: str) -> None:
        """They are stored as *rewrite*, and wait for a request."""
        self._ready[history] = _Ready(
            conversation=conversation, model=model, seen=rewrite.seen, made_at=self._now()
        )

    def used(self, history: bytes, model: str) -> None:
        """A request uses them."""
        self._ready.pop(history, None)
        self._count(model, Fate.USED)

    def failed(self, model: str) -> None:
        """They came to nothing."""
        self._count(model, Fate.FAILED)

    def aborted(self, history: bytes, *, conversation: str, model: str) -> None:
        """A request came that fits without them, and they were in its way."""
        self._aborted[history] = None
        if len(self._aborted) > MOST_REMEMBERED:
            self._aborted.popitem(last=False)
        self._wasted(conversation, model, Fate.ABORTED)

    def rests(self, conversation: Conversation, digests: Sequence[bytes]) -> bool:
        """Whether an attempt over what this history continues was aborted lately."""
        end = conversation.brief_end
        for at in range(len(conversation.messages), end, -1):
            if digests[at] in self._aborted:
                return turns_since(conversation, at - end) < REST_TURNS_AFTER_ABORT
        return False

    def forget(self, digests: Sequence[bytes], shown: Rewrite | None) -> None:
        """Count those that nobody will use any more, now that a history is *shown* so."""
        known, now = frozenset(digests), self._now()
        compacted_at = shown.compacted_at if shown else 0
        surplus = len(self._ready) - MOST_REMEMBERED
        for number, (history, ready) in enumerate(list(self._ready.items())):
            is_late = now - ready.made_at > _EXPECTED_BACK_SECONDS
            is_overtaken = history in known and ready.seen <= compacted_at
            if number < surplus or is_late or is_overtaken:
                del self._ready[history]
                self._wasted(ready.conversation, ready.model, Fate.UNUSED)

    def _wasted(self, conversation: str, model: str, fate: Fate) -> None:
        self._count(model, fate)
        emit("context.notes_wasted", conversation=conversation, model=model, why=fate.value)

    def _count(self, model: str, fate: Fate) -> None:
        self._metrics.notes_ahead.labels(self._metrics.model(model), fate.value).inc()
