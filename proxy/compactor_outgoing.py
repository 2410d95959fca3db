"""
What goes upstream for a request once its view is decided, and what is told of it?
"""

from proxy.asked import Outcome, Prepared
from proxy.board import Board
from proxy.compaction import Made
from proxy.errors import NotUnderstood
from proxy.events import emit
from proxy.looking import Look, Terms
from proxy.metrics import Metrics


class Outgoing:
    """Renders views. For one event loop."""

    def __init__(self, metrics: Metrics, board: Board) -> None:
        self._metrics = metrics
        self._board = board

    def prepared(
        self, terms: Terms, look: Look, made: Made, *, is_masked: bool = False, is_trimmed: bool = False
    ) -> Prepared:
        """The view of *look*, as the client's own body where it changes nothing."""
        body: bytes | None = None
        if look.rewrite is not None:
            try:
                body = terms.asked.dialect.render(terms.asked.parsed, look.view)
            except NotUnderstood as error:
                emit("context.not_rendered", conversation=terms.conversation_id, why=str(error))
        if is_masked:
            outcome = Outcome.MASKED
        elif made.compacted:
            outcome = Outcome.COMPACTED
        elif is_trimmed:
            outcome = Outcome.TRIMMED
        elif made.failed:
            outcome = Outcome.FAILED
        else:
            outcome = Outcome.NONE if body is None else Outcome.REUSED
        self._count(terms, look)
        self._board.prepared(
            terms.conversation_id,
            model=look.conversation.model,
            turns=len(look.conversation.turns),
            tokens=look.total,
            budget=terms.budget,
            outcome=outcome.value,
            block=look.rewrite.block if look.rewrite else "",
        )
        return Prepared(
            body=body,
            outcome=outcome,
            conversation=terms.conversation_id,
            model=look.conversation.model,
            tokens=look.total,
            budget=terms.budget.limit,
            raw=look.measured.raw,
            attachments=look.measured.attachments,
            key=look.measured.key,
            history=terms.digests[-1],
            compacted=made.compacted or made.failed,
            outgrown=look.measured.whole >= terms.budget.window,
        )

    def _count(self, terms: Terms, look: Look) -> None:
        """What can be told of a prompt that is about to be sent."""
        metrics, model = self._metrics, self._metrics.model(look.conversation.model)
        metrics.budget_share.labels(model).observe(look.total / terms.budget.limit)
        cause = metrics.conversations.sent((model, terms.conversation_id), look.measured.keys, look.rewrite)
        if cause:
            metrics.prefix_rewrites.labels(model, cause.value).inc()
