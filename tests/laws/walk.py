"""
Walk requests as the proxy does, with the real core, store entries and dialect, but without a server.

Notes come from a fake writer, and a token is a quarter of a text's characters: what is
tested is arithmetic.
"""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from proxy.core.block import Notes, Rooms, quote_speech, render_block
from proxy.core.budget import Budget
from proxy.core.digests import chain
from proxy.core.mask import mask
from proxy.core.messages import Conversation, View
from proxy.core.plan import (
    Compact,
    Policy,
    Sizes,
    before_newest,
    before_prefill,
    cuts_within,
    has_rested,
    last_turn_start,
    next_turn_end,
    plan,
    prefix,
    step,
)
from proxy.core.rewrite import Rewrite
from proxy.core.splice import splice
from proxy.core.trim import aim_of, trim
from proxy.dialects.base import Parsed
from proxy.dialects.chat_completions import CHAT_COMPLETIONS
from proxy.rewrites import Rewrites
from proxy.stores.base import Store
from proxy.stores.memory import MemoryStore

T = TypeVar("T")

KEEP_CHARS = 600
TRIM_TO = 0.75
# What the instruction takes beside the notes.
INSTRUCTION = 20


def tokens(text: str) -> int:
    """A token in four characters; nothing for nothing."""
    return (len(text) + 3) // 4


def measure(conversation: Conversation, rewrite: Rewrite | None) -> Sizes:
    """The sizes of a view, counted anew: what `Sizes` promises, in the plainest form."""
    messages = conversation.messages
    end = conversation.brief_end
    cuts = {(cut.at, cut.text): cut.put for cut in rewrite.cuts} if rewrite else {}
    replaced = rewrite.replaced if rewrite else 0

    def size(at: int) -> int:
        texts = messages[end + at].texts
        return 4 + sum(tokens(cuts.get((at, i), text.text)) for i, text in enumerate(texts))

    whole = tuple(4 + sum(tokens(text.text) for text in message.texts) for message in messages)
    shown = tuple(0 if at < replaced else size(at) for at in range(len(messages) - end))
    return Sizes(
        fixed=sum(whole[:end]) + sum(map(tokens, conversation.fixed_texts)),
        block=tokens(rewrite.block) if rewrite and replaced else 0,
        shown=shown,
        whole=whole[end:],
    )


def finish(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that waits for nothing."""
    try:
        work.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise AssertionError("it waited")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """
    One request as it went upstream.

    Attributes:
        parsed: What the client sent.
        view: What was sent instead.
        body: The bytes that were sent.
        rewrite: How the view was made.
        before: How the history was shown as it came in.
        compacted: Notes were made.
        masked: Old results were cut instead.
        trimmed: Texts were cut.
        size: Tokens of what was sent.
    """

    parsed: Parsed
    view: View
    body: bytes
    rewrite: Rewrite | None
    before: Rewrite | None
    compacted: bool
    masked: bool
    trimmed: bool
    size: int

    @property
    def rewritten(self) -> bool:
        """Whether the view may differ from the one before it."""
        return self.compacted or self.masked or self.trimmed

    @property
    def pieces(self) -> list[bytes]:
        """Its messages, as bytes."""
        return list(CHAT_COMPLETIONS.message_bytes(self.view))


def write_notes(conversation: Conversation, before: Rewrite | None) -> str:
    """Notes that say over what they were written."""
    older = f"\nBefore: {before.notes[:60]}" if before and before.notes else ""
    return quote_speech(f"Looked at {len(conversation.messages)} messages; all is well.{older}")


class Walker:
    """A proxy with one budget and one store."""

    def __init__(
        self,
        limit: int,
        *,
        compact_at: float = 0.6,
        store: Store | None = None,
        notes: Callable[[Conversation, Rewrite | None], str | None] = write_notes,
        seed: bytes = b"scope",
        mask_first: bool = False,
    ) -> None:
        self._budget = Budget(window=limit + limit // 8, reserve=limit // 8, compact_at=compact_at)
        self.budget = self._budget
        notes_max = max(16, limit // 10)
        self.policy = Policy(notes_max=notes_max)
        share = self.budget.limit
        self.rooms = Rooms(
            task=int(0.15 * share),
            users=share // 10,
            ledger=share // 20,
            system=share // 10,
            todos=share // 20,
        )
        self.notes_room = self.budget.window - notes_max - INSTRUCTION
        self.store = store or MemoryStore(b"s" * 32)
        self._rewrites = Rewrites(self.store)
        self._write = notes
        self._seed = seed
        self._mask_first = mask_first

    def send(self, raw: bytes) -> Sent:
        """What goes upstream for a request, and how it was made."""
        parsed = CHAT_COMPLETIONS.parse(raw)
        conversation = parsed.conversation
        digests = chain(self._seed, conversation)
        before = finish(self._rewrites.find(digests, conversation)).rewrite
        rewrite = before
        self.budget = self._budget.with_room_for_turns(measure(conversation, rewrite).fixed)
        masked: Rewrite | None = None
        if self.budget.is_over(measure(conversation, rewrite).total):
            masked = self._masked(conversation, digests, rewrite)
            rewrite = masked or self._compact(conversation, digests, rewrite)
        compacted = masked is None and rewrite != before
        trimmed = False
        sizes = measure(conversation, rewrite)
        if not self.budget.fits(sizes.total):
            cut = self.trim(conversation, rewrite, sizes)
            if cut is not None:
                trimmed = True
                rewrite = finish(self._rewrites.keep(digests, conversation, cut))
        view = splice(conversation, rewrite)
        body = raw if rewrite is None else CHAT_COMPLETIONS.render(parsed, view)
        return Sent(
            parsed=parsed,
            view=view,
            body=body,
            rewrite=rewrite,
            before=before,
            compacted=compacted,
            masked=masked is not None,
            trimmed=trimmed,
            size=measure(conversation, rewrite).total,
        )

    def trim(
        self, conversation: Conversation, rewrite: Rewrite | None, sizes: Sizes, limit: int | None = None
    ) -> Rewrite | None:
        """The view cut down, to *limit* where there is one; None where it cannot be."""
        cut = trim(
            conversation,
            rewrite,
            sizes,
            aim=limit or aim_of(conversation, sizes, self.budget, share=TRIM_TO),
            limit=limit or self.budget.limit,
            keep_chars=KEEP_CHARS,
            count=tokens,
            block=lambda replaced: self.block(conversation, rewrite, replaced),
        )
        if cut is None:
            return None
        assert cut.size == measure(conversation, cut.rewrite).total, "a trim's size agrees with a recount"
        return cut.rewrite

    def block(self, conversation: Conversation, rewrite: Rewrite | None, replaced: int) -> str:
        """The block without new notes."""
        covered = rewrite.replaced if rewrite and rewrite.notes else 0
        starts = [turn.start - conversation.brief_end for turn in conversation.turns]
        uncovered = sum(covered <= start < replaced for start in starts)
        notes = Notes(text=rewrite.notes if rewrite else "", uncovered_turns=uncovered)
        return render_block(conversation, replaced, notes, self.rooms, tokens)

    def _masked(
        self, conversation: Conversation, digests: tuple[bytes, ...], rewrite: Rewrite | None
    ) -> Rewrite | None:
        if not self._mask_first or not has_rested(conversation, rewrite):
            return None
        sizes = measure(conversation, rewrite)
        made = mask(conversation, rewrite, sizes, self.budget, policy=self.policy, count=tokens)
        if made is None:
            return None
        assert made.size == measure(conversation, made.rewrite).total, "a mask's size agrees with a recount"
        return finish(self._rewrites.keep(digests, conversation, made.rewrite))

    def _compact(
        self, conversation: Conversation, digests: tuple[bytes, ...], rewrite: Rewrite | None
    ) -> Rewrite | None:
        def kept(replaced: int) -> int:
            return tokens(render_block(conversation, replaced, Notes(), self.rooms, tokens))

        if not has_rested(conversation, rewrite):
            return rewrite
        # A history that arrives whole: in steps over what notes can be made over.
        while _before(measure(conversation, rewrite), conversation) > self.notes_room:
            upto = step(
                conversation,
                rewrite,
                measure(conversation, rewrite),
                self.budget,
                policy=self.policy,
                kept=kept,
                room=self.notes_room,
            )
            if upto is None:
                return rewrite
            part = prefix(conversation, upto)
            shown = cuts_within(rewrite, upto)
            sizes = measure(part, shown)
            if sizes.total > self.notes_room and self.trim(part, shown, sizes, self.notes_room) is None:
                return rewrite
            replaced = last_turn_start(conversation, upto)
            made = self._note(conversation, part, digests, rewrite, replaced=replaced, size=sizes.total)
            if made is None:
                return rewrite
            if rewrite and made.replaced <= rewrite.replaced:
                return rewrite
            rewrite = made
        sizes = measure(conversation, rewrite)
        if not self.budget.is_over(sizes.total):
            return rewrite
        room = self.notes_room
        decision = plan(conversation, rewrite, sizes, self.budget, policy=self.policy, kept=kept, room=room)
        if isinstance(decision, Compact):
            made = self._note(
                conversation,
                prefix(conversation, before_newest(conversation)),
                digests,
                rewrite,
                replaced=decision.replaced,
                size=_before(sizes, conversation),
                seen=before_prefill(conversation),
            )
            return made or rewrite
        return rewrite

    def _note(
        self,
        whole: Conversation,
        conversation: Conversation,
        digests: tuple[bytes, ...],
        rewrite: Rewrite | None,
        *,
        replaced: int,
        size: int,
        seen: int | None = None,
    ) -> Rewrite | None:
        written = self._write(conversation, rewrite)
        if written is None:
            return None
        upto = len(conversation.messages) - conversation.brief_end
        made = Rewrite(
            seen=seen or upto,
            replaced=replaced,
            block=render_block(whole, replaced, Notes(text=written), self.rooms, tokens),
            notes=written,
            folds=(rewrite.folds + bool(rewrite.notes)) if rewrite else 0,
            compacted_at=seen or next_turn_end(whole, upto),
        )
        if measure(conversation, made).total >= size:
            return None
        return finish(self._rewrites.keep(digests, whole, made))


def _before(sizes: Sizes, conversation: Conversation) -> int:
    """Tokens of a view without its newest turn."""
    return sizes.total - sum(sizes.shown[before_newest(conversation) :])
