"""
Have notes written while the agent runs its tools, and keep them until a request needs them.

They run over the very request that was just answered, whose prompt the server still has,
and are stored where no request finds them by itself: one that is not over `compact_at`
goes on as it was. Nobody waits for this work, so it steps aside for any request, unless a
request has come that would have had to wait for notes anyway. What goes wrong here is
never anybody's error.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial

from proxy.ahead_attempt import Attempt
from proxy.ahead_fates import Fates
from proxy.asked import Prepared, Trigger
from proxy.board import Board
from proxy.compaction import Compaction, Made
from proxy.config import ContextConfig
from proxy.core.plan import before_prefill
from proxy.core.rewrite import Rewrite
from proxy.errors import NotUnderstood
from proxy.events import log_fault
from proxy.looking import Look, Looking, Terms
from proxy.metrics import Metrics
from proxy.prewarm import Prewarm
from proxy.rewrites import Past, Rewrites
from proxy.telling import Telling
from proxy.turnstile import Turnstile

# Each holds its request while it lasts; more than these a server does not work on anyway.
MOST_AT_ONCE = 32
# As for every compaction: one that gains less than this share of the budget is not worth it.
_LEAST_GAIN = 0.02

Again = Callable[[], Awaitable[tuple[Terms, Past, Look] | None]]
"""Looks once more at a request that was answered; None where that is not possible."""


class Ahead:
    """
    Works between answers and requests. For one event loop.

    Args:
        config: The table `[context]`; with `mode` "inline" nothing is ever done here.
        compaction: Decides whether notes are worth it, and has them made.
        looking: Measures views.
        rewrites: Where they are kept.
        prewarm: Has the view processed that they lead to.
        turnstile: Keeps this work out of the way of requests.
        telling: Told of compactions.
        metrics: Counts what became of it.
        board: Told who waits.
        now: Seconds, monotonic.
    """

    def __init__(
        self,
        config: ContextConfig,
        *,
        compaction: Compaction,
        looking: Looking,
        rewrites: Rewrites,
        prewarm: Prewarm,
        turnstile: Turnstile,
        telling: Telling,
        metrics: Metrics,
        board: Board,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config
        self._compaction = compaction
        self._looking = looking
        self._rewrites = rewrites
        self._prewarm = prewarm
        self._turnstile = turnstile
        self._telling = telling
        self._metrics = metrics
        self._board = board
        self._now = now
        self._attempts: dict[bytes, Attempt] = {}
        self._fates = Fates(metrics, now)
        self._is_closing = False

    def is_due(self, prepared: Prepared, prompt: int) -> bool:
        """Whether there is work after an answer to *prompt* tokens, if it has called tools."""
        config = self._config
        is_on = config.mode == "ahead" and config.compact_at > 0 and bool(prepared.budget)
        return is_on and prompt > config.compact_ahead_at * prepared.budget

    def begin(self, prepared: Prepared, again: Again, completion: int) -> None:
        """
        The answer to a request, of *completion* tokens, has called tools.

        Args:
            prepared: As it went upstream.
            again: To look at it once more.
            completion: 0 where the upstream does not say.
        """
        is_known = prepared.history in self._attempts or not prepared.history
        if self._is_closing or is_known or len(self._attempts) >= MOST_AT_ONCE:
            return
        attempt = self._attempts[prepared.history] = Attempt(prepared=prepared, turnstile=self._turnstile)
        attempt.task = asyncio.create_task(self._run(attempt, again, completion))
        # Not inside the work: what is cancelled before it has begun would never get there.
        attempt.task.add_done_callback(lambda _: self._ended(attempt))

    async def use(
        self, terms: Terms, past: Past, look: Look, on_notes: Callable[[], None]
    ) -> tuple[Past, Made | None]:
        """
        A compaction for a request that is over `compact_at`, from notes that were made ahead.

        Waits for notes that are being written. Returns what is stored of the history by then, and
        None where there are no notes for it.
        """
        conversation, seconds = look.conversation, 0.0
        if self._config.mode != "ahead":
            return past, None
        attempt = self._attempt_of(terms.digests)
        if attempt is not None and not attempt.is_sent:
            # It would have to wait for a place first: nothing is won by waiting for it.
            attempt.step_aside()
        has_waited = attempt is not None and attempt.is_sent
        if attempt is not None and has_waited:
            started = self._now()
            await self._wait(attempt, terms, on_notes)
            seconds = self._now() - started
            past = await self._rewrites.find(terms.digests, conversation)
            if past.rewrite != look.rewrite:
                # Another request with this history has waited too, and was first.
                return past, Made(rewrite=past.rewrite, compacted=True)
        ready = await self._rewrites.find_ahead(terms.digests, conversation, past.rewrite)
        if ready is None:
            # Who has waited once goes without rather than wait for another set.
            return past, Made(rewrite=past.rewrite, failed=True) if has_waited else None
        # It applies to what continues this request, and rests from now on.
        upto = max(ready.seen, before_prefill(conversation))
        rewrite = replace(ready, seen=upto, compacted_at=upto)
        after = await self._looking.look(terms.asked, conversation, rewrite, terms.found, terms.budget)
        gain = look.total - after.total
        if not terms.budget.fits(after.total) or gain < _LEAST_GAIN * terms.budget.limit:
            return past, None
        rewrite = await self._rewrites.keep(terms.digests, conversation, rewrite)
        self._fates.used(terms.digests[conversation.brief_end + ready.seen], conversation.model)
        self._telling.compacted(
            replace(terms, trigger=Trigger.AHEAD),
            look,
            after,
            rewrite,
            seconds=seconds,
            notes_tokens=terms.count(rewrite.notes),
        )
        return past, Made(rewrite=rewrite, compacted=True)

    def step_aside(self, digests: Sequence[bytes]) -> None:
        """A request with this history is about to go upstream, where it needs its conversation's slot."""
        for attempt in list(self._attempts.values()):
            if attempt.prepared.history in digests:
                attempt.step_aside()

    async def until_idle(self) -> None:
        """Wait until no work is under way."""
        while self._attempts:
            tasks = [attempt.task for attempt in self._attempts.values() if attempt.task is not None]
            await asyncio.wait(tasks)
            # What is to be done at their end is done in the next turn of the loop.
            await asyncio.sleep(0)

    async def close(self) -> None:
        """End all work."""
        self._is_closing = True
        tasks = [attempt.task for attempt in self._attempts.values() if attempt.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, attempt: Attempt, again: Again, completion: int) -> None:
        try:
            begun = await again()
            if begun is None:
                return
            terms, past, look = begun
            if look.measured.key != attempt.prepared.key:
                # Something else was stored meanwhile: the server does not have this prompt.
                return
            self._fates.forget(terms.digests, past.rewrite)
            ready = await self._rewrites.find_ahead(terms.digests, look.conversation, past.rewrite)
            if ready is None and not self._fates.rests(look.conversation, terms.digests):
                ready = await self._note(attempt, terms, past, look)
            attempt.noted.set()
            if ready is not None and attempt.is_free and self._prewarm.is_due(terms, look, completion):
                await self._prewarm.run(terms, look, ready, partial(attempt.gate, terms.found.slots))
        except NotUnderstood:
            return
        except Exception:
            log_fault("ahead", self._metrics.faults.inc)

    def _ended(self, attempt: Attempt) -> None:
        attempt.noted.set()
        del self._attempts[attempt.prepared.history]

    async def _note(self, attempt: Attempt, terms: Terms, past: Past, look: Look) -> Rewrite | None:
        """Notes, stored but not in use."""
        budget, policy = terms.budget, terms.policy
        at = min(self._config.compact_ahead_at, budget.compact_at)
        if at <= budget.compact_to:
            return None

        sooner = replace(
            terms,
            trigger=Trigger.AHEAD,
            gate=partial(attempt.notes_gate, terms.found.slots),
            budget=replace(budget, compact_at=at),
            # The answer that was just given is a turn more.
            policy=replace(policy, keep_turns=max(1, policy.keep_turns - 1)),
        )
        model = look.conversation.model
        try:
            rewrite = await self._compaction.ahead(sooner, past, look)
        except asyncio.CancelledError:
            if attempt.is_sent and not self._is_closing:
                prepared = attempt.prepared
                self._fates.aborted(
                    prepared.history, conversation=prepared.conversation, model=prepared.model
                )
            raise
        if rewrite is None:
            if attempt.is_sent:
                self._fates.failed(model)
            return None
        history = terms.digests[look.conversation.brief_end + rewrite.seen]
        self._fates.made(history, rewrite, conversation=terms.conversation_id, model=model)
        return rewrite

    async def _wait(self, attempt: Attempt, terms: Terms, on_notes: Callable[[], None]) -> None:
        on_notes()
        named = terms.conversation_id, attempt.prepared.model
        self._board.noting(*named, begins=True)
        try:
            await attempt.until_noted()
        finally:
            self._board.noting(*named, begins=False)

    def _attempt_of(self, digests: Sequence[bytes]) -> Attempt | None:
        """The one over what this history continues, while there is something to wait for."""
        for attempt in self._attempts.values():
            if not attempt.noted.is_set() and attempt.prepared.history in digests:
                return attempt
        return None
