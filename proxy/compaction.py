"""
Make one compaction: decide, have the notes written, in steps where they must be.

A compaction is made once for all requests that wait for it, and counts as failed when
the last of them has gone.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from proxy.asked import Trigger
from proxy.board import Board
from proxy.config import ContextConfig
from proxy.core.notes import Reason
from proxy.core.plan import Compact, before_prefill, has_rested, last_turn_start
from proxy.core.rewrite import Rewrite
from proxy.core.rewrite import backoff_turns as turns_after
from proxy.deciding import decide, is_worth_it, newest, next_step
from proxy.events import emit, log_fault
from proxy.looking import Look, Looking, Terms
from proxy.metrics import Metrics
from proxy.notes_views import NotesViews
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
        self._views = NotesViews(looking, trim_chars=config.trim_chars)
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
        if not await asyncio.to_thread(is_worth_it, terms, look):
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
            decision = await asyncio.to_thread(decide, terms, look)
            if not isinstance(decision, Compact):
                return None
            # A prefill comes back with what the model added to it.
            noted = await self._views.upto(terms, look, before_prefill(conversation))
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

    async def _make(self, terms: Terms, past: Past, look: Look) -> Made:
        made = Made(rewrite=look.rewrite)
        whole = look.conversation
        try:
            while (upto := await asyncio.to_thread(next_step, terms, look)) is not None:
                part = await self._views.part(terms, look, upto)
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
            decision = await asyncio.to_thread(decide, terms, look, forced=made.compacted)
            if isinstance(decision, Compact):
                noted = await self._views.before_newest(terms, look)
                if noted.total > terms.notes_room:
                    return made
                # A newest turn that cannot fit beside any notes is trimmed afterwards.
                fixed = look.measured.sizes.fixed
                can_fit = fixed + newest(look) + terms.policy.notes_max <= terms.budget.limit
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

    async def _refused(self, terms: Terms, past: Past, made: Made, look: Look, refused: Refused) -> Made:
        """A failure, unless it teaches that the server was started again with a smaller window."""
        model, known = look.conversation.model, terms.found.window
        if refused.overflow is not None and known is not None:
            found = await self._windows.learn(model, refused.overflow, terms.asked.headers, None)
            if found.window is not None and found.window < known:
                return replace(made, is_outdated=True)
        status = refused.status if refused.reason is Reason.HTTP_ERROR else 0
        return await self._gave_up(terms, past, made, look, refused.reason, status=status)

    async def _gave_up(
        self, terms: Terms, past: Past, made: Made, look: Look, reason: Reason, *, status: int = 0
    ) -> Made:
        conversation = terms.asked.parsed.conversation
        failure = await self._rewrites.keep_failure(terms.digests, conversation, past.failure)
        self._board.failed(
            terms.conversation_id, model=conversation.model, tokens=look.total, reason=reason.value
        )
        emit(
            "context.compaction_failed",
            level=logging.INFO if reason is Reason.ABANDONED else logging.WARNING,
            conversation=terms.conversation_id,
            model=conversation.model,
            reason=reason.value,
            retry_after_turns=turns_after(failure.attempts),
            **({"status": status} if status else {}),
        )
        self._metrics.failed.labels(self._metrics.model(conversation.model), reason.value).inc()
        return replace(made, failed=True)
