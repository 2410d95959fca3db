"""
What is logged, counted and shown of a compaction?

One way of telling for notes that were made while a request waited, and for those that
were made ahead of it.
"""

from typing import Any

from proxy.board import Board
from proxy.core.rewrite import Rewrite
from proxy.events import emit
from proxy.looking import Look, Terms
from proxy.metrics import Metrics


class Telling:
    """Tells of compactions. For one event loop."""

    def __init__(self, metrics: Metrics, board: Board) -> None:
        self._metrics = metrics
        self._board = board

    def notes(self, look: Look, *, tokens: int, seconds: float, flags: list[str]) -> None:
        """Notes of so many *tokens* were written in *seconds*, and go into a block."""
        metrics = self._metrics
        model = metrics.model(look.conversation.model)
        metrics.notes_seconds.labels(model).observe(seconds)
        metrics.notes_tokens.labels(model).inc(tokens)
        for flag in flags:
            metrics.notes_flagged.labels(model, flag).inc()

    def compacted(
        self, terms: Terms, look: Look, after: Look, rewrite: Rewrite, *, seconds: float, **more: Any
    ) -> None:
        """
        The history of *look* is shown as *rewrite* has it from now on.

        Args:
            terms: Of the request that it was done for.
            look: Before.
            after: After.
            rewrite: As it is stored.
            seconds: That the request waited for it.
            more: Further fields of the event.
        """
        conversation = look.conversation
        model = self._metrics.model(conversation.model)
        folded = bool(look.rewrite and look.rewrite.notes)
        end = conversation.brief_end
        gone = conversation.messages[end : end + rewrite.replaced]
        turns = sum(turn.start < end + rewrite.replaced for turn in conversation.turns)
        self._board.compacted(
            terms.conversation_id,
            model=conversation.model,
            before=look.total,
            after=after.total,
            turns=turns,
            seconds=seconds,
            trigger=terms.trigger.value,
        )
        emit(
            "context.compacted",
            conversation=terms.conversation_id,
            model=conversation.model,
            trigger=terms.trigger.value,
            tokens_before=look.total,
            tokens_after=after.total,
            seconds=round(seconds, 3),
            replaced_from=end,
            replaced_to=end + rewrite.replaced,
            turns=turns,
            calls=sum(len(message.calls) for message in gone),
            folded=folded,
            **more,
        )
        metrics = self._metrics
        metrics.compacted.labels(model, terms.trigger.value, str(folded).lower()).inc()
        metrics.tokens_before.labels(model).observe(look.total)
        metrics.tokens_after.labels(model).observe(after.total)
