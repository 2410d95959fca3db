"""
Have notes written over a view, and make them into a rewrite that is stored.

The notes are asked for once more where the answer was a tool call, a copy, or named what
never occurred; then what there is is used, flagged, or refused with a reason.
"""

import asyncio
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass

from proxy.board import Board
from proxy.config import ContextConfig
from proxy.core.block import Notes, quote_speech, render_block
from proxy.core.claims import lacks_references, mark_unverified, unsupported
from proxy.core.language import detect_language
from proxy.core.messages import Kind, Message, Role
from proxy.core.notes import RETRY_COPY, Accepted, Flag, Reason, Rejected, instruct
from proxy.core.rewrite import Rewrite
from proxy.dialects.base import NotesFormat, Usage
from proxy.discovery import ServerKind
from proxy.errors import NotUnderstood
from proxy.events import emit
from proxy.looking import Look, Looking, Terms
from proxy.metrics import Metrics
from proxy.notes_call import NotesAnswer, ask_for_notes
from proxy.rewrites import Rewrites
from proxy.sizing import Sizing
from proxy.turnstile import Turnstile
from proxy.upstream import Upstream

# A compaction that gains less than this share of the budget is not worth the rewrite.
_LEAST_GAIN = 0.02
# More unsupported claims than this, and more than this share of what the notes are long,
# are worth asking again.
_MANY_CLAIMS = 3
_RETRY_CLAIMS = (
    "The last attempt named things that do not occur in the conversation: {claims}. Write the record again "
    "without them; name only what occurs above, exactly as it is written there."
)


@dataclass(frozen=True, slots=True)
class Refused:
    """There are no notes."""

    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written:
    notes: str
    flags: tuple[Flag, ...]
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
        sizing: Sizing,
        metrics: Metrics,
        board: Board,
        turnstile: Turnstile,
    ) -> None:
        self._board = board
        self._turnstile = turnstile
        self._config = config
        self._upstream = upstream
        self._rewrites = rewrites
        self._looking = looking
        self._sizing = sizing
        self._metrics = metrics

    async def compact(self, terms: Terms, look: Look, replaced: int, *, is_step: bool) -> Rewrite | Refused:
        """
        Replace the first *replaced* messages after the brief by notes over the view of *look*.

        Returns the rewrite that is stored now, or why there is none. A step may leave a
        view that is still over the budget; what follows it brings it down.
        """
        started = time.monotonic()
        conversation = look.conversation
        count = self._sizing.counter(conversation.model)
        end = conversation.brief_end
        written = await self._write(terms, look, replaced)
        if isinstance(written, Refused):
            return written
        block = await asyncio.to_thread(
            render_block, conversation, replaced, Notes(text=written.notes), terms.rooms, count
        )
        before = look.rewrite or Rewrite(seen=0)
        seen = len(conversation.messages) - end
        rewrite = Rewrite(
            seen=seen,
            replaced=replaced,
            block=block,
            notes=written.notes,
            folds=before.folds + bool(before.notes),
            compacted_at=seen,
        )
        after = await self._looking.look(terms.asked, conversation, rewrite, terms.found, terms.budget)
        if after.total > look.total - _LEAST_GAIN * terms.budget.limit:
            return Refused(Reason.NO_GAIN)
        if not is_step and not terms.budget.fits(after.total):
            return Refused(Reason.STILL_OVER)
        rewrite = await self._rewrites.keep(terms.digests, conversation, rewrite)
        seconds = time.monotonic() - started
        self._tell(terms, look, after, rewrite=rewrite, written=written, seconds=seconds)
        return rewrite

    async def _write(self, terms: Terms, look: Look, replaced: int) -> _Written | Refused:
        """Notes as they go into the block, after at most one correction."""
        conversation = look.conversation
        messages = conversation.messages[: conversation.brief_end + replaced]
        evidence = [text.text for message in conversation.messages for text in message.texts]
        if look.rewrite and look.rewrite.notes:
            evidence.append(look.rewrite.notes)
        answer = await self._ask(terms, look, "")
        correction = await self._correction(answer, evidence)
        if correction:
            again = await self._ask(terms, look, correction)
            if isinstance(again.verdict, Accepted) or isinstance(answer.verdict, Rejected):
                answer = again
        verdict = answer.verdict
        if isinstance(verdict, Rejected):
            return Refused(verdict.reason)
        flags = list(verdict.flags)
        claims = await asyncio.to_thread(unsupported, verdict.notes, evidence)
        notes = quote_speech(verdict.notes)
        if claims:
            model = self._metrics.model(conversation.model)
            self._metrics.notes_unsupported.labels(model).inc(len(claims))
            flags.append(Flag.UNVERIFIED)
            notes = mark_unverified(notes, claims)
        if await asyncio.to_thread(lacks_references, verdict.notes, _texts(messages)):
            flags.append(Flag.NO_REFERENCES)
        return _Written(notes=notes, flags=tuple(flags), usage=answer.usage)

    async def _correction(self, answer: NotesAnswer, evidence: Sequence[str]) -> str:
        verdict = answer.verdict
        if isinstance(verdict, Rejected):
            return verdict.retry
        if Flag.COPIED in verdict.flags:
            return RETRY_COPY
        claims = await asyncio.to_thread(unsupported, verdict.notes, evidence)
        return _RETRY_CLAIMS.format(claims=", ".join(claims[:10])) if len(claims) > _MANY_CLAIMS else ""

    async def _ask(self, terms: Terms, look: Look, correction: str) -> NotesAnswer:
        asked, conversation = terms.asked, look.conversation
        notes_max = terms.policy.notes_max
        users = [m.said() for m in conversation.messages if m.role is Role.USER]
        how = NotesFormat(
            instruction=instruct(
                self._config.notes_instruction,
                language=detect_language(users),
                notes_max=notes_max,
                correction=correction,
            ),
            limit=notes_max + terms.allowance,
            forbid_tools=terms.found.keeps_tools_with_none,
            limit_field="max_completion_tokens" if terms.found.kind is ServerKind.OPENAI else "max_tokens",
        )
        try:
            body = asked.dialect.render_notes(asked.parsed, look.view, how)
        except NotUnderstood:
            return NotesAnswer(verdict=Rejected(Reason.NOT_RENDERED))
        replaced = conversation.messages[conversation.brief_end :]
        sources = [*_texts(replaced), look.rewrite.notes if look.rewrite else ""]
        is_single = terms.found.slots == 1
        async with self._turnstile.alone() if is_single else nullcontext():
            answer = await ask_for_notes(
                self._upstream,
                asked.dialect,
                url=asked.url,
                headers=[*asked.headers, ("content-type", "application/json")],
                body=body,
                room=notes_max,
                count=self._sizing.counter(conversation.model),
                sources=[source for source in sources if source],
                idle_timeout_seconds=self._config.notes_idle_timeout_seconds,
            )
        if answer.usage:
            self._metrics.noted(self._metrics.model(conversation.model), answer.usage)
        return answer

    def _tell(
        self,
        terms: Terms,
        look: Look,
        after: Look,
        *,
        rewrite: Rewrite,
        written: _Written,
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
        seconds: float,
    ) -> None:
        conversation = look.conversation
        model = self._metrics.model(conversation.model)
        usage = written.usage
        notes_tokens = self._sizing.counter(conversation.model)(written.notes)
        folded = bool(look.rewrite and look.rewrite.notes)
        end = conversation.brief_end
        gone = conversation.messages[end : end + rewrite.replaced]
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
            notes_tokens=notes_tokens,
            notes_cached_tokens=usage.cached if usage else None,
            notes_prompt_tokens=usage.prompt if usage else None,
            folded=folded,
            flags=[flag.value for flag in written.flags],
        )
        metrics = self._metrics
        metrics.compacted.labels(model, terms.trigger.value, str(folded).lower()).inc()
        metrics.tokens_before.labels(model).observe(look.total)
        metrics.tokens_after.labels(model).observe(after.total)
        metrics.notes_seconds.labels(model).observe(seconds)
        metrics.notes_tokens.labels(model).inc(notes_tokens)
        for flag in written.flags:
            metrics.notes_flagged.labels(model, flag.value).inc()


def _texts(messages: Sequence[Message]) -> list[str]:
    kinds = (Kind.SAID, Kind.RESULT, Kind.ARGUMENTS)
    return [text.text for message in messages for text in message.texts if text.kind in kinds]
