"""
Have notes written over a view, and make them into a rewrite that is stored.

The notes are asked for once more where the answer was a tool call, a copy, a little too long, or named
what never occurred; then what there is is used, flagged, or refused with a reason.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from proxy.asked import Trigger
from proxy.config import ContextConfig
from proxy.core.block import Notes, quote_speech, render_block
from proxy.core.claims import are_many, lacks_references, mark_unverified, unsupported
from proxy.core.evidence import evidence_of, spoken_texts
from proxy.core.language import detect_language
from proxy.core.notes import RETRY_COPY, Flag, Reason, Rejected, instruct
from proxy.core.overflow import Overflow
from proxy.core.plan import before_prefill, next_turn_end
from proxy.core.rewrite import Rewrite
from proxy.core.said import said_by_user
from proxy.dialects.base import NotesFormat, Usage
from proxy.discovery import ServerKind
from proxy.errors import NotUnderstood
from proxy.events import emit
from proxy.looking import Look, Looking, Terms
from proxy.metrics import Metrics
from proxy.notes_call import NotesAnswer, ask_for_notes
from proxy.rewrites import Rewrites
from proxy.telling import Telling
from proxy.turnstile import Turnstile
from proxy.upstream import Upstream

# A compaction that gains less than this share of the budget is not worth the rewrite.
_LEAST_GAIN = 0.02
_RETRY_CLAIMS = (
    "The last attempt named things that do not occur in the conversation: {claims}. Write the record again "
    "without them; name only what occurs above, exactly as it is written there."
)


@dataclass(frozen=True, slots=True)
class Refused:
    """
    There are no notes.

    Attributes:
        reason: Why.
        overflow: What that teaches of the window, if anything.
        status: HTTP status of the answer, 0 where there was none.
    """

    reason: Reason
    overflow: Overflow | None = None
    status: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written:
    notes: str
    flags: tuple[Flag, ...]
    unsupported: int
    usage: Usage | None


class Noting:
    """Writes notes. For one event loop."""

    def __init__(
        self,
        config: ContextConfig,
        *,
        upstream: Upstream,
        rewrites: Rewrites,
        looking: Looking,
        metrics: Metrics,
        turnstile: Turnstile,
        telling: Telling,
    ) -> None:
        self._turnstile = turnstile
        self._telling = telling
        self._config = config
        self._upstream = upstream
        self._rewrites = rewrites
        self._looking = looking
        self._metrics = metrics

    async def compact(
        self, terms: Terms, look: Look, replaced: int, *, is_step: bool, whole: Look | None = None
    ) -> Rewrite | Refused:
        """
        Replace the first *replaced* messages after the brief by notes over the view of *look*.

        Returns the rewrite that is stored now, or why there is none. A step may leave a
        view that is still over the budget; what follows it brings it down. *whole* is the view
        that it is made for, where *look* leaves out the newest turn, and whose history it is
        stored under: that applies where it goes on, and nowhere else.
        """
        started = time.monotonic()
        shown = whole or look
        conversation = shown.conversation
        end = conversation.brief_end
        written = await self._write(terms, look, replaced)
        if isinstance(written, Refused):
            return written
        block = await asyncio.to_thread(
            render_block, conversation, replaced, Notes(text=written.notes), terms.rooms, terms.count
        )
        before = look.rewrite or Rewrite(seen=0)
        # A prefill comes back with what the model added to it: under it nothing would be found again.
        seen = before_prefill(conversation) if whole else len(conversation.messages) - end
        rests_from = next_turn_end(terms.asked.parsed.conversation, seen) if is_step and not whole else seen
        rewrite = Rewrite(
            seen=seen,
            replaced=replaced,
            block=block,
            notes=written.notes,
            folds=before.folds + bool(before.notes),
            compacted_at=rests_from,
        )
        after = await self._looking.look(terms.asked, conversation, rewrite, terms.found, terms.budget)
        if after.total > shown.total - _LEAST_GAIN * terms.budget.limit:
            return Refused(Reason.NO_GAIN)
        if not is_step and not terms.budget.fits(after.total):
            return Refused(Reason.STILL_OVER)
        is_ahead = terms.trigger is Trigger.AHEAD
        keep = self._rewrites.keep_ahead if is_ahead else self._rewrites.keep
        rewrite = await keep(terms.digests, conversation, rewrite)
        seconds = time.monotonic() - started
        self._tell(terms, shown, after, rewrite=rewrite, written=written, seconds=seconds)
        return rewrite

    async def _write(self, terms: Terms, look: Look, replaced: int) -> _Written | Refused:
        """Notes as they go into the block, after at most one correction."""
        conversation = look.conversation
        messages = conversation.messages[: conversation.brief_end + replaced]
        evidence = evidence_of(conversation, look.rewrite)
        answer = await self._ask(terms, look, "")
        invented = await _invented(answer, evidence)
        correction = _correction(answer, invented)
        if correction:
            again = await self._ask(terms, look, correction)
            still = await _invented(again, evidence)
            if _is_better(again, still, answer, invented):
                answer, invented = again, still
        verdict = answer.verdict
        if isinstance(verdict, Rejected):
            return Refused(verdict.reason, answer.overflow, answer.status)
        flags = list(verdict.flags)
        notes = quote_speech(verdict.notes)
        if invented:
            model = self._metrics.model(conversation.model)
            self._metrics.notes_unsupported.labels(model).inc(len(invented))
            flags.append(Flag.UNVERIFIED)
            notes = mark_unverified(notes, invented)
        if await asyncio.to_thread(lacks_references, verdict.notes, spoken_texts(messages)):
            flags.append(Flag.NO_REFERENCES)
        return _Written(notes=notes, flags=tuple(flags), unsupported=len(invented), usage=answer.usage)

    async def _ask(self, terms: Terms, look: Look, correction: str) -> NotesAnswer:
        asked, conversation = terms.asked, look.conversation
        notes_max = terms.policy.notes_max
        allowance = terms.allowance_for(look.total)
        # Not what a tool wrote in the user's name: that is in English, whoever works there.
        users = [said for message in conversation.messages if (said := said_by_user(message))]
        how = NotesFormat(
            instruction=instruct(
                self._config.notes_instruction,
                language=detect_language(users),
                notes_max=notes_max,
                correction=correction,
            ),
            limit=notes_max + allowance,
            reasoning=allowance,
            forbid_tools=terms.found.keeps_tools_with_none,
            limit_field="max_completion_tokens" if terms.found.kind is ServerKind.OPENAI else "max_tokens",
        )
        try:
            body = asked.dialect.render_notes(asked.parsed, look.view, how)
        except NotUnderstood:
            return NotesAnswer(verdict=Rejected(Reason.NOT_RENDERED))
        replaced = conversation.messages[conversation.brief_end :]
        for gate in self._gates(terms):
            async with gate(), self._turnstile.notes.one():
                answer = await ask_for_notes(
                    self._upstream,
                    asked.dialect,
                    url=asked.url,
                    headers=[*asked.headers, ("content-type", "application/json")],
                    body=body,
                    room=notes_max,
                    limit=how.limit,
                    count=terms.count,
                    sources=[text for text in spoken_texts(replaced) if text],
                    earlier=look.rewrite.notes if look.rewrite else "",
                    instruction=how.instruction,
                    idle_timeout_seconds=self._config.notes_idle_timeout_seconds,
                )
            if answer.overflow is None or not answer.overflow.pool_full:
                break
        if answer.usage:
            self._metrics.noted(self._metrics.model(conversation.model), answer.usage)
        return answer

    def _gates(self, terms: Terms) -> tuple[Callable[[], AbstractAsyncContextManager[None]], ...]:
        """How the request passes; the next is tried where others filled a shared pool together with it."""
        if terms.gate is not None:
            return (terms.gate,)
        return (self._turnstile.alone,) if terms.found.slots == 1 else (nullcontext, self._turnstile.alone)

    def _tell(
        self,
        terms: Terms,
        look: Look,
        after: Look,
        *,
        rewrite: Rewrite,
        written: _Written,
        seconds: float,
    ) -> None:
        usage = written.usage
        notes: dict[str, Any] = {
            "notes_tokens": terms.count(written.notes),
            "notes_cached_tokens": usage.cached if usage else None,
            "notes_prompt_tokens": usage.prompt if usage else None,
            "flags": [flag.value for flag in written.flags],
            "unsupported": written.unsupported,
        }
        flags = [flag.value for flag in written.flags]
        self._telling.notes(look, tokens=terms.count(written.notes), seconds=seconds, flags=flags)
        if terms.trigger is not Trigger.AHEAD:
            self._telling.compacted(terms, look, after, rewrite, seconds=seconds, **notes)
            return
        emit(
            "context.noted_ahead",
            conversation=terms.conversation_id,
            model=look.conversation.model,
            tokens_before=look.total,
            tokens_after=after.total,
            seconds=round(seconds, 3),
            **notes,
        )


def _correction(answer: NotesAnswer, invented: Sequence[str]) -> str:
    """What to say to the model once more; empty where the answer will do, or nothing would help."""
    verdict = answer.verdict
    if isinstance(verdict, Rejected):
        return verdict.retry
    if Flag.COPIED in verdict.flags:
        return RETRY_COPY
    return _RETRY_CLAIMS.format(claims=", ".join(invented[:10])) if are_many(invented, verdict.notes) else ""


async def _invented(answer: NotesAnswer, evidence: Sequence[str]) -> tuple[str, ...]:
    if isinstance(answer.verdict, Rejected):
        return ()
    return await asyncio.to_thread(unsupported, answer.verdict.notes, evidence)


def _is_better(again: NotesAnswer, still: Sequence[str], first: NotesAnswer, invented: Sequence[str]) -> bool:
    if isinstance(first.verdict, Rejected):
        return True
    if isinstance(again.verdict, Rejected):
        return False
    return Flag.COPIED in first.verdict.flags or len(still) <= len(invented)
