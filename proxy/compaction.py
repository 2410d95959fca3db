"""
Make one compaction: decide, have the notes written, in steps where they must be.

A compaction is made once for all requests that wait for it, and counts as failed when
the last of them has gone.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

from proxy.asked import Trigger
from proxy.board import Board
from proxy.config import ContextConfig
from proxy.core.block import Notes, render_block
from proxy.core.notes import Reason
from proxy.core.plan import (
    Compact,
    Decision,
    before_newest,
    before_prefill,
    cuts_within,
    has_rested,
    last_turn_start,
    plan,
    prefix,
    step,
)
from proxy.core.rewrite import Rewrite
from proxy.core.rewrite import backoff_turns as turns_after
from proxy.core.trim import trim
from proxy.events import emit, log_fault
from proxy.looking import Look, Looking, Terms
from proxy.metrics import Metrics
from proxy.noting import Noting, Refused
from proxy.rewrites import Past, Rewrites
from proxy.sharing import Shared
from proxy.windows import Windows


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """
    What came of it.

    Attributes:
        rewrite: How the history is shown now.
        compacted: Whether notes were made.
        failed: Whether notes were tried and came to nothing.
        is_outdated: The window is smaller than was known: it is all to be decided again.
    """

    rewrite: Rewrite | None
    compacted: bool = False
    failed: bool = False
    is_outdated: bool = False


class Compaction:
    """Makes compactions. For one event loop."""

    def __init__(
        self,
        config: ContextConfig,
        *,
        looking: Looking,
        noting: Noting,
        rewrites: Rewrites,
        windows: Windows,
        metrics: Metrics,
        board: Board,
    ) -> None:
        self._config = config
        self._looking = looking
        self._noting = noting
        self._rewrites = rewrites
        self._windows = windows
        self._metrics = metrics
        self._board = board
        self._making: Shared[Made] = Shared()

    async def run(
        self, terms: Terms, past: Past, look: Look, on_notes: Callable[[], None] = lambda: None
    ) -> Made:
        """Make notes where it is worth it and has not failed lately."""
        conversation = look.conversation
        # Steps follow one another without rest, but the first of them needs it like any compaction.
        rested = terms.trigger is Trigger.OVERFLOW or has_rested(conversation, look.rewrite)
        if not rested or past.retry_after_turns(conversation):
            return Made(rewrite=look.rewrite)
        # Long histories are listed and counted for it: off the event loop.
        if not await asyncio.to_thread(self._is_worth_it, terms, look):
            return Made(rewrite=look.rewrite)
        on_notes()
        key = (terms.digests[-1], terms.budget.limit, terms.trigger)
        named = terms.conversation_id, look.conversation.model
        self._board.noting(*named, begins=True)
        # Nothing can be sent meanwhile to a client that does not stream: its own patience must last.
        most = None if conversation.stream else self._config.notes_wait_seconds
        try:
            async with asyncio.timeout(most):
                return await self._making.run(key, lambda: self._make(terms, past, look))
        except TimeoutError:
            return Made(rewrite=look.rewrite, failed=True)
        finally:
            self._board.noting(*named, begins=False)

    async def ahead(self, terms: Terms, past: Past, look: Look) -> Rewrite | None:
        """
        A compaction that is stored but not in use; None where it is not worth it, or came to nothing.

        As a request could have one: in one step, if it has rested and not failed lately. Being
        cancelled is no failure.
        """
        conversation = look.conversation
        if not has_rested(conversation, look.rewrite) or past.retry_after_turns(conversation):
            return None
        made = Made(rewrite=look.rewrite)
        try:
            if look.total > terms.notes_room:
                return None
            decision = await asyncio.to_thread(self._decide, terms, look)
            if not isinstance(decision, Compact):
                return None
            # A prefill comes back with what the model added to it.
            noted = await self._upto(terms, look, before_prefill(conversation))
            rewrite = await self._noting.compact(terms, noted, decision.replaced, is_step=False)
            if isinstance(rewrite, Rewrite):
                return rewrite
            await self._refused(terms, past, made, look, rewrite)
        except TimeoutError:
            # There was no place at the upstream: nothing was tried.
            return None
        except Exception:
            log_fault("notes ahead", self._metrics.faults.inc)
            await self._gave_up(terms, past, made, look, Reason.FAULT)
        return None

    def block(self, terms: Terms, look: Look, replaced: int) -> str:
        """The block for *replaced* messages with the notes that there are, for a trim."""
        before = look.rewrite
        conversation = look.conversation
        starts = [turn.start - conversation.brief_end for turn in conversation.turns]
        covered = before.replaced if before and before.notes else 0
        notes = Notes(
            text=before.notes if before else "",
            uncovered_turns=sum(covered <= start < replaced for start in starts),
        )
        return render_block(conversation, replaced, notes, terms.rooms, terms.count)

    def _is_worth_it(self, terms: Terms, look: Look) -> bool:
        return self._next_step(terms, look) is not None or (
            look.total - _newest(look) <= terms.notes_room and isinstance(self._decide(terms, look), Compact)
        )

    def _kept(self, terms: Terms, look: Look) -> Callable[[int], int]:
        """For a number of replaced messages the size of the block without notes."""
        count = terms.count
        return lambda replaced: count(render_block(look.conversation, replaced, Notes(), terms.rooms, count))

    def _decide(self, terms: Terms, look: Look, *, forced: bool = False) -> Decision:
        return plan(
            look.conversation,
            look.rewrite,
            look.measured.sizes,
            terms.budget,
            policy=terms.policy,
            kept=self._kept(terms, look),
            room=terms.notes_room,
            forced=forced or terms.trigger is Trigger.OVERFLOW,
        )

    def _next_step(self, terms: Terms, look: Look) -> int | None:
        """
        How far the next step goes; None where one set of notes over all but the newest turn will do.

        It will not do where that does not fit with the notes.
        """
        if look.total - _newest(look) <= terms.notes_room:
            return None
        if terms.budget.fits(look.total) and not isinstance(self._decide(terms, look), Compact):
            return None
        return step(
            look.conversation,
            look.rewrite,
            look.measured.sizes,
            terms.budget,
            policy=terms.policy,
            kept=self._kept(terms, look),
            room=terms.notes_room,
            most_kept=terms.rooms.most,
        )

    async def _make(self, terms: Terms, past: Past, look: Look) -> Made:
        made = Made(rewrite=look.rewrite)
        whole = look.conversation
        try:
            while (upto := await asyncio.to_thread(self._next_step, terms, look)) is not None:
                part = await self._part(terms, look, upto)
                if part is None:
                    return made
                resumed = replace(terms, trigger=Trigger.RESUMED)
                rewrite = await self._noting.compact(
                    resumed, part, last_turn_start(whole, upto), is_step=True
                )
                if isinstance(rewrite, Refused):
                    return await self._refused(terms, past, made, look, rewrite)
                if look.rewrite and rewrite.replaced <= look.rewrite.replaced:
                    # An older compaction was stored here first: the same step would follow for ever.
                    return made
                made = Made(rewrite=rewrite, compacted=True)
                look = await self._looking.look(terms.asked, whole, rewrite, terms.found, terms.budget)
            # Steps and what follows them are one compaction, so that the next request finds a view
            # that rests.
            if made.compacted and terms.budget.will_rest(look.total):
                return made
            decision = await asyncio.to_thread(self._decide, terms, look, forced=made.compacted)
            if isinstance(decision, Compact):
                noted = await self._before_newest(terms, look)
                if noted.total > terms.notes_room:
                    return made
                # A newest turn that cannot fit beside any notes is trimmed afterwards.
                fixed, newest = look.measured.sizes.fixed, _newest(look)
                can_fit = fixed + newest + terms.policy.notes_max <= terms.budget.limit
                rewrite = await self._noting.compact(
                    terms, noted, decision.replaced, whole=look, is_step=not can_fit
                )
                if isinstance(rewrite, Refused):
                    return await self._refused(terms, past, made, look, rewrite)
                made = Made(rewrite=rewrite, compacted=True)
            return made
        except asyncio.CancelledError:
            await self._gave_up(terms, past, made, look, Reason.ABANDONED)
            raise
        except Exception:
            # A fault of ours that came again every turn would cost a set of notes every turn.
            log_fault("notes", self._metrics.faults.inc)
            return await self._gave_up(terms, past, made, look, Reason.FAULT)

    async def _before_newest(self, terms: Terms, look: Look) -> Look:
        """
        The view without the newest turn, which stays whatever comes of it.

        That is what the server was sent last, so that all of it is cached: notes over the newest
        turn as well would have it processed twice, for them and again behind the block.
        """
        return await self._upto(terms, look, before_newest(look.conversation))

    async def _upto(self, terms: Terms, look: Look, upto: int) -> Look:
        """The view of the first *upto* messages after the brief."""
        conversation = look.conversation
        if conversation.brief_end + upto == len(conversation.messages):
            return look
        part = prefix(conversation, upto)
        rewrite = cuts_within(look.rewrite, upto)
        return await self._looking.look(terms.asked, part, rewrite, terms.found, terms.budget)

    async def _part(self, terms: Terms, look: Look, upto: int) -> Look | None:
        """The view of the first *upto* messages after the brief, trimmed to what notes can be made over."""
        conversation = prefix(look.conversation, upto)
        asked, found, budget = terms.asked, terms.found, terms.budget
        rewrite = cuts_within(look.rewrite, upto)
        part = await self._looking.look(asked, conversation, rewrite, found, budget)
        if part.total <= terms.notes_room:
            return part
        trimmed = trim(
            conversation,
            rewrite,
            part.measured.sizes,
            aim=terms.notes_room,
            limit=terms.notes_room,
            keep_chars=self._config.trim_chars,
            count=terms.count,
            block=lambda replaced: self.block(terms, part, replaced),
        )
        if trimmed is None:
            return None
        return await self._looking.look(asked, conversation, trimmed.rewrite, found, budget)

    async def _refused(self, terms: Terms, past: Past, made: Made, look: Look, refused: Refused) -> Made:
        """A failure, unless it teaches that the server was started again with a smaller window."""
        model, known = look.conversation.model, terms.found.window
        if refused.overflow is not None and known is not None:
            found = await self._windows.learn(model, refused.overflow, terms.asked.headers, None)
            if found.window is not None and found.window < known:
                return replace(made, is_outdated=True)
        return await self._gave_up(terms, past, made, look, refused.reason)

    async def _gave_up(self, terms: Terms, past: Past, made: Made, look: Look, reason: Reason) -> Made:
        conversation = terms.asked.parsed.conversation
        failure = await self._rewrites.keep_failure(terms.digests, conversation, past.failure)
        self._board.failed(
            terms.conversation_id, model=conversation.model, tokens=look.total, reason=reason.value
        )
        emit(
            "context.compaction_failed",
            conversation=terms.conversation_id,
            model=conversation.model,
            reason=reason.value,
            retry_after_turns=turns_after(failure.attempts),
        )
        self._metrics.failed.labels(self._metrics.model(conversation.model), reason.value).inc()
        return replace(made, failed=True)


def _newest(look: Look) -> int:
    """Tokens of the newest turn as it is shown; 0 without turns."""
    conversation = look.conversation
    return sum(look.measured.sizes.shown[before_newest(conversation) :]) if conversation.turns else 0
