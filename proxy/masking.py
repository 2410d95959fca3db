"""
Mask old results in a view where that is enough, and store it: a compaction without a model call.

What is cut is decided by `core.mask`; here it is kept, so that it rests, and told.
"""

import asyncio
import time

from proxy.asked import Trigger
from proxy.board import Board
from proxy.config import ContextConfig
from proxy.core.mask import Mask, mask
from proxy.core.plan import has_rested
from proxy.events import emit
from proxy.looking import Look, Looking, Terms
from proxy.metrics import Metrics
from proxy.rewrites import Rewrites


class Masking:
    """
    Masks views. For one event loop.

    Args:
        config: The table `[context]`.
        looking: Measures what comes of it.
        rewrites: Where it is kept.
        metrics: Counts it.
        board: Told of it.
    """

    def __init__(
        self, config: ContextConfig, *, looking: Looking, rewrites: Rewrites, metrics: Metrics, board: Board
    ) -> None:
        self._config = config
        self._looking = looking
        self._rewrites = rewrites
        self._metrics = metrics
        self._board = board

    async def mask(self, terms: Terms, look: Look) -> Look | None:
        """The view masked and stored; None where notes are to be made instead, or nothing yet."""
        conversation, budget = look.conversation, terms.budget
        started = time.monotonic()
        made = await self._made(terms, look)
        if made is None:
            return None
        stored = await self._rewrites.keep(terms.digests, conversation, made.rewrite)
        after = await self._looking.look(terms.asked, conversation, stored, terms.found, budget)
        if stored != made.rewrite and budget.is_over(after.total):
            # What was stored first, for a larger window, would not rest.
            return None
        model = self._metrics.model(conversation.model)
        seconds = time.monotonic() - started
        self._board.masked(
            terms.conversation_id,
            model=conversation.model,
            before=look.total,
            after=after.total,
            seconds=seconds,
            trigger=terms.trigger.value,
        )
        emit(
            "context.masked",
            conversation=terms.conversation_id,
            model=conversation.model,
            trigger=terms.trigger.value,
            messages=made.messages,
            tokens_before=look.total,
            tokens_after=after.total,
            seconds=round(seconds, 3),
        )
        self._metrics.masked.labels(model, terms.trigger.value).inc()
        self._metrics.tokens_before.labels(model).observe(look.total)
        self._metrics.tokens_after.labels(model).observe(after.total)
        return after

    async def is_enough(self, terms: Terms, look: Look) -> bool:
        """Whether a mask would do for this view, so that nobody need write notes of it ahead of need."""
        return await self._made(terms, look) is not None

    async def _made(self, terms: Terms, look: Look) -> Mask | None:
        if self._config.strategy != "mask-first":
            return None
        if terms.trigger is not Trigger.OVERFLOW and not has_rested(look.conversation, look.rewrite):
            return None
        # Every result of a long history is read for it: off the event loop.
        return await asyncio.to_thread(
            mask,
            look.conversation,
            look.rewrite,
            look.measured.sizes,
            terms.budget,
            policy=terms.policy,
            count=terms.count,
        )
