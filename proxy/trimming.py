"""
Cut a view down to the budget where nothing else brought it there, and store the cut.

What is cut is decided by `core.trim`; here it is kept, so that it rests, and told.
"""

import logging
from dataclasses import replace
from itertools import pairwise
from statistics import median

from proxy.asked import Trigger
from proxy.board import Board
from proxy.config import ContextConfig
from proxy.core.block import Rooms
from proxy.core.budget import Budget
from proxy.core.plan import REST_TURNS
from proxy.core.trim import Trim, aim_of, trim
from proxy.deciding import block_of, newest
from proxy.events import emit
from proxy.looking import Look, Looking, Terms
from proxy.metrics import Metrics
from proxy.rewrites import Rewrites

# By so many of the last turns the size of those to come is guessed.
_RECENT_TURNS = 32
# Of what tools, brief and newest turn leave each part of a small block gets this share; the frame
# takes the rest.
_ROOMS_DIVISOR = 8
# Where tools and brief leave no more, an answer after an overflow gets this part of the window.
_LAST_RESERVE_DIVISOR = 16


class Trimming:
    """
    Trims views. For one event loop.

    Args:
        config: The table `[context]`.
        looking: Measures what comes of it.
        rewrites: Where it is kept.
        metrics: Counts it.
        board: Told of it.
    """

    def __init__(
        self,
        config: ContextConfig,
        *,
        looking: Looking,
        rewrites: Rewrites,
        metrics: Metrics,
        board: Board,
    ) -> None:
        self._config = config
        self._looking = looking
        self._rewrites = rewrites
        self._metrics = metrics
        self._board = board

    async def trim(self, terms: Terms, look: Look) -> Look | None:
        """The view cut down to the budget and stored; None where that cannot be."""
        conversation, budget = look.conversation, terms.budget
        model = self._metrics.model(conversation.model)
        trimmed = self._cut_at_last(terms, look, budget)
        is_held = terms.found.enforces_limit and conversation.output_limit is not None
        if trimmed is None and terms.trigger is Trigger.OVERFLOW and not is_held:
            # It was refused as it was: little room for an answer is better than none.
            budget = replace(budget, reserve=min(budget.reserve, budget.window // _LAST_RESERVE_DIVISOR))
            trimmed = self._cut_at_last(terms, look, budget)
        if trimmed is None:
            self._metrics.over_budget.labels(model).inc()
            emit(
                "context.over_budget",
                level=logging.WARNING,
                conversation=terms.conversation_id,
                model=conversation.model,
                tokens=look.total,
                budget=budget.limit,
                brief_and_tools=look.measured.sizes.fixed,
                why="tools, brief and newest turn leave nothing that may be cut; the upstream decides",
            )
            return None
        stored = await self._rewrites.keep(terms.digests, conversation, trimmed.rewrite)
        after = await self._looking.look(terms.asked, conversation, stored, terms.found, budget)
        if stored != trimmed.rewrite and not budget.fits(after.total):
            # What was stored first was made for a larger window.
            after = await self._looking.look(terms.asked, conversation, trimmed.rewrite, terms.found, budget)
        self._board.trimmed(
            terms.conversation_id,
            model=conversation.model,
            before=look.total,
            after=after.total,
            cut=", ".join(what.value for what in trimmed.what),
        )
        emit(
            "context.trimmed",
            conversation=terms.conversation_id,
            model=conversation.model,
            what=[what.value for what in trimmed.what],
            messages=trimmed.messages,
            tokens_before=look.total,
            tokens_after=after.total,
        )
        for what in trimmed.what:
            self._metrics.trimmed.labels(model, what.value).inc()
        self._metrics.trim_before.labels(model).observe(look.total)
        self._metrics.trim_after.labels(model).observe(after.total)
        return after

    def _cut_at_last(self, terms: Terms, look: Look, budget: Budget) -> Trim | None:
        """Cut, with a block that says less where with all that it says nothing fits, or no cut rests."""
        left = max(0, budget.limit - look.measured.sizes.fixed - newest(look))
        small, none = _rooms(left // _ROOMS_DIVISOR), _rooms(0)
        best: Trim | None = None
        for rooms, noted in ((terms.rooms, True), (small, True), (small, False), (none, False)):
            trimmed = self._cut(terms, look, budget, rooms, noted=noted)
            if trimmed is not None and (best is None or trimmed.size < best.size):
                best = trimmed
            # Notes are given up for what fits at all, not for rest.
            if best is not None and (noted is False or rooms is small or _rests(look, best, budget)):
                break
        return best

    def _cut(self, terms: Terms, look: Look, budget: Budget, rooms: Rooms, *, noted: bool) -> Trim | None:
        sizes = look.measured.sizes
        return trim(
            look.conversation,
            look.rewrite,
            sizes,
            aim=aim_of(look.conversation, sizes, budget, share=self._config.trim_to),
            limit=budget.limit,
            keep_chars=self._config.trim_chars,
            count=terms.count,
            block=lambda replaced: block_of(terms, look, replaced, rooms, noted=noted),
        )


def _rests(look: Look, trimmed: Trim, budget: Budget) -> bool:
    """Whether as many turns as should lie between two rewrites, of the usual size, fit after a cut."""
    conversation = look.conversation
    starts = [turn.start - conversation.brief_end for turn in conversation.turns]
    whole = look.measured.sizes.whole
    turns = [sum(whole[start:end]) for start, end in pairwise(starts)]
    return not turns or trimmed.size + REST_TURNS * median(turns[-_RECENT_TURNS:]) <= budget.limit


def _rooms(each: int) -> Rooms:
    return Rooms(task=each, users=each, ledger=each, system=each, todos=each)
