"""
From a request to what goes upstream for it.

It reads like the walk of one request: look up what is stored, measure the view, and
where it is too long replace turns by notes, or trim. Whatever fails here, a request
still goes upstream.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from proxy.ahead import Ahead
from proxy.asked import Asked, Outcome, Prepared, Trigger
from proxy.board import Board
from proxy.compaction import Compaction, Made
from proxy.compactor_lessons import Lessons, shrunk
from proxy.compactor_outgoing import Outgoing
from proxy.config import ContextConfig
from proxy.core.budget import Budget
from proxy.core.digests import chain, scope
from proxy.core.overflow import Overflow
from proxy.core.splice import splice
from proxy.dialects.base import Usage
from proxy.discovery import Found
from proxy.errors import NotUnderstood
from proxy.events import emit
from proxy.looking import Look, Looking, Terms, beside_fixed, budget_for
from proxy.masking import Masking
from proxy.metrics import Metrics
from proxy.noting import Noting
from proxy.prewarm import Prewarm
from proxy.rewrites import Past, Rewrites
from proxy.sizing import Sizing
from proxy.stores.base import Store
from proxy.telling import Telling
from proxy.tokenizer import count_for
from proxy.trimming import Trimming
from proxy.turnstile import Turnstile
from proxy.upstream import Upstream
from proxy.windows import Windows


@dataclass(frozen=True, slots=True, kw_only=True)
class _Begun:
    """What is known of a request before anything is decided."""

    found: Found
    budget: Budget
    digests: tuple[bytes, ...]
    past: Past
    look: Look


class Compactor:
    """
    Prepares requests. For one event loop.

    Args:
        config: The table `[context]`.
        upstream: Where notes are asked for.
        store: Never raises (`GuardedStore`).
        windows: What the upstream holds.
        sizing: Measures views.
        metrics: Counts what happens.
        turnstile: Keeps notes apart from other requests where the server has one slot.
        board: Told what becomes of each conversation.
    """

    def __init__(
        self,
        config: ContextConfig,
        *,
        upstream: Upstream,
        store: Store,
        windows: Windows,
        sizing: Sizing,
        metrics: Metrics,
        turnstile: Turnstile,
        board: Board,
    ) -> None:
        self._config = config
        self._store = store
        self._windows = windows
        self._rewrites = Rewrites(store)
        self._looking = Looking(config, upstream=upstream, sizing=sizing)
        telling = Telling(metrics, board)
        noting = Noting(
            config,
            upstream=upstream,
            rewrites=self._rewrites,
            looking=self._looking,
            metrics=metrics,
            turnstile=turnstile,
            telling=telling,
        )
        self._compaction = Compaction(
            config,
            looking=self._looking,
            noting=noting,
            rewrites=self._rewrites,
            windows=windows,
            metrics=metrics,
            board=board,
        )
        self._ahead = Ahead(
            config,
            compaction=self._compaction,
            looking=self._looking,
            rewrites=self._rewrites,
            prewarm=Prewarm(
                config, upstream=upstream, looking=self._looking, counts=sizing.counts, metrics=metrics
            ),
            turnstile=turnstile,
            telling=telling,
            metrics=metrics,
            board=board,
        )
        self._masking = Masking(
            config, looking=self._looking, rewrites=self._rewrites, metrics=metrics, board=board
        )
        self._lessons = Lessons(
            windows=windows, sizing=sizing, looking=self._looking, metrics=metrics, board=board
        )
        self._outgoing = Outgoing(metrics, board)
        self._trimming = Trimming(
            config,
            looking=self._looking,
            rewrites=self._rewrites,
            metrics=metrics,
            board=board,
        )

    async def prepare(
        self,
        asked: Asked,
        *,
        on_notes: Callable[[], None] = lambda: None,
        overflow: Overflow | None = None,
        may_compact: bool = True,
    ) -> Prepared:
        """
        What goes upstream for *asked*.

        Args:
            asked: The request.
            on_notes: Called when the request begins to wait for notes.
            overflow: The answer that it got when it went upstream before, if it did.
            may_compact: False where it had its one compaction already.
        """
        try:
            return await self._prepare(asked, on_notes, overflow, may_compact=may_compact)
        except NotUnderstood as error:
            # A message that would have to change cannot be written again: it goes as it came.
            emit("context.not_rendered", conversation="", why=str(error))
            return Prepared(body=None, outcome=Outcome.NONE, model=asked.parsed.conversation.model)

    async def _prepare(
        self,
        asked: Asked,
        on_notes: Callable[[], None],
        overflow: Overflow | None,
        *,
        may_compact: bool,
        is_again: bool = False,
    ) -> Prepared:
        begun = await self._begin(asked)
        if begun is None:
            return await self._without_budget(asked)
        conversation, found, budget = asked.parsed.conversation, begun.found, begun.budget
        digests, past, look = begun.digests, begun.past, begun.look
        if overflow is not None and budget.fits(look.total):
            budget = shrunk(budget, look.total)
        trigger = Trigger.OVERFLOW if overflow else Trigger.THRESHOLD
        terms = self._looking.terms(asked, digests, found, budget, trigger, look=look)
        made = Made(rewrite=past.rewrite)
        if may_compact and budget.compact_at and (overflow or budget.is_over(look.total)):
            masked = await self._masking.mask(terms, look)
            if masked is not None:
                self._ahead.step_aside(digests)
                return self._outgoing.prepared(terms, masked, made, is_masked=True)
            past, ready = await self._ahead.use(terms, past, look, on_notes)
            made = ready or await self._compaction.run(terms, past, look, on_notes)
            if made.is_outdated and not is_again:
                return await self._prepare(asked, on_notes, overflow, may_compact=may_compact, is_again=True)
            if made.rewrite != look.rewrite:
                look = await self._looking.look(asked, conversation, made.rewrite, found, budget)
        trimmed = None if budget.fits(look.total) else await self._trimming.trim(terms, look)
        self._ahead.step_aside(digests)
        return self._outgoing.prepared(terms, trimmed or look, made, is_trimmed=trimmed is not None)

    async def shown(self, asked: Asked) -> Prepared:
        """The view as it stands: what is stored applies, and nothing is rewritten for it."""
        begun = await self._begin(asked)
        model = asked.parsed.conversation.model
        if begun is None:
            return await self._without_budget(asked)
        is_rewritten = begun.look.rewrite is not None
        return Prepared(
            body=asked.dialect.render(asked.parsed, begun.look.view) if is_rewritten else None,
            outcome=Outcome.REUSED if is_rewritten else Outcome.NONE,
            model=model,
            tokens=begun.look.total,
            budget=begun.budget.limit,
        )

    async def _without_budget(self, asked: Asked) -> Prepared:
        """
        What is stored applies also where the window is not known: the view stays what it was.

        A server that is being started or overloaded says nothing of its window yet, and the whole
        history would neither fit nor be in its cache. Where the request's own limit leaves no
        budget, it goes as it came.
        """
        conversation = asked.parsed.conversation
        found = await self._windows.of(conversation.model, asked.headers)
        rewrite = None
        if found.window is None:
            seed = scope(self._store.secret, asked.dialect.name, asked.credentials)
            rewrite = (await self._rewrites.find(chain(seed, conversation), conversation)).rewrite
        if rewrite is None:
            return Prepared(body=None, outcome=Outcome.NONE, model=conversation.model)
        body = asked.dialect.render(asked.parsed, splice(conversation, rewrite))
        return Prepared(body=body, outcome=Outcome.REUSED, model=conversation.model)

    async def _begin(self, asked: Asked) -> _Begun | None:
        """What is known before anything is decided; None where no budget is known."""
        conversation = asked.parsed.conversation
        seed = scope(self._store.secret, asked.dialect.name, asked.credentials)
        count_for(seed)
        found = await self._windows.of(conversation.model, asked.headers)
        budget = budget_for(self._config, conversation, found)
        if budget is None:
            return None
        digests = chain(seed, conversation)
        past = await self._rewrites.find(digests, conversation)
        look = await self._looking.look(asked, conversation, past.rewrite, found, budget)
        budget = beside_fixed(budget, look, found)
        return _Begun(found=found, budget=budget, digests=digests, past=past, look=look)

    async def recover(
        self,
        asked: Asked,
        overflow: Overflow,
        before: Prepared,
        *,
        on_notes: Callable[[], None] = lambda: None,
    ) -> Prepared | None:
        """
        What to send instead of a request that did not fit; None where nothing else can be sent.

        The answer teaches the window and, where it tells it, the size of the prompt.
        """
        await self._lessons.of_overflow(asked, overflow, before)
        prepared = await self.prepare(
            asked, on_notes=on_notes, overflow=overflow, may_compact=not before.compacted
        )
        if prepared.body == before.body:
            return None
        return replace(prepared, compacted=before.compacted or prepared.compacted)

    def record(self, prepared: Prepared, usage: Usage) -> None:
        """What the upstream said of a request that was answered."""
        self._lessons.of_answer(prepared, usage)

    def answered(
        self, asked: Asked, prepared: Prepared, usage: Usage | None, has_called: Callable[[], bool]
    ) -> None:
        """The answer is out; *has_called* tells whether it called tools, which takes the agent some time."""
        prompt = usage.prompt if usage else prepared.tokens
        if self._ahead.is_due(prepared, prompt) and has_called():
            self._ahead.begin(prepared, lambda: self._again(asked), usage.completion if usage else 0)

    async def until_idle(self) -> None:
        """Wait until nothing is being made ahead of need."""
        await self._ahead.until_idle()

    async def close(self) -> None:
        """End what no request waits for."""
        await self._ahead.close()

    async def _again(self, asked: Asked) -> tuple[Terms, Past, Look] | None:
        """A request that was answered, as it stands now; None where nothing is to be made of it."""
        begun = await self._begin(asked)
        if begun is None:
            return None
        terms = self._looking.terms(
            asked, begun.digests, begun.found, begun.budget, Trigger.AHEAD, look=begun.look
        )
        if await self._masking.is_enough(terms, begun.look):
            return None
        return terms, begun.past, begun.look
