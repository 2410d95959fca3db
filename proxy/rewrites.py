"""
Find and keep what is stored of a conversation: rewrites, and failed attempts.

Turns the store's bytes under digests into the core's values. Which digest a value
stands under is decided here.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from proxy.core.messages import Conversation
from proxy.core.plan import turns_since
from proxy.core.rewrite import (
    Failure,
    Rewrite,
    backoff_turns,
    failure_from_bytes,
    failure_to_bytes,
    from_bytes,
    to_bytes,
)
from proxy.stores.base import Shelf, Store

# Where `find` looks.
_LOOKED = (Shelf.SEEN, Shelf.TRIMMED, Shelf.RANGE, Shelf.FAILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """
    What is stored of a history.

    Attributes:
        rewrite: How its start is shown, or None.
        failure: The last failed attempt that no compaction has made up for, or None.
    """

    rewrite: Rewrite | None = None
    failure: Failure | None = None

    def retry_after_turns(self, conversation: Conversation) -> int:
        """Turns for which notes are not to be tried again; 0 where they may be."""
        if self.failure is None:
            return 0
        waited = turns_since(conversation, self.failure.seen)
        return max(0, backoff_turns(self.failure.attempts) - waited)


class Rewrites:
    """What the store holds, in the core's words. *digests* are those of `digests.chain`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def find(self, digests: Sequence[bytes], conversation: Conversation) -> Past:
        """
        The longest stored rewrite that this history continues, and the last failure.

        Where several stand at one place the one that replaces most is taken, and of
        those the trim, since it was made of the other.
        """
        after = digests[conversation.brief_end + 1 :]
        if not after:
            return Past()
        # At once: each question is a way to another thread and back.
        looked = await self._store.longest_on(_LOOKED, after)
        found: list[tuple[int, int, bool, Rewrite]] = []
        for shelf in (Shelf.SEEN, Shelf.TRIMMED):
            first = looked.get(shelf)
            rewrite = await self._longest(shelf, after, conversation, first) if first else None
            if rewrite:
                found.append((rewrite.seen, rewrite.replaced, rewrite.is_trim, rewrite))
        best = max(found, key=lambda entry: entry[:3])[3] if found else None
        entry = looked.get(Shelf.RANGE)
        ranged = from_bytes(entry[1]) if entry else None
        if (
            entry
            and ranged
            and _stands(after, entry[0], ranged.replaced)
            and (best is None or ranged.replaced > best.replaced)
        ):
            ranged = replace(ranged, seen=ranged.replaced, cuts=())
            best = ranged if _applies(ranged, conversation) else best
        failure = _failure(after, looked.get(Shelf.FAILED))
        if failure and best and best.compacted_at >= failure.seen:
            failure = None
        return Past(rewrite=best, failure=failure)

    async def keep(self, digests: Sequence[bytes], conversation: Conversation, rewrite: Rewrite) -> Rewrite:
        """
        Store *rewrite*, made over the first `seen` messages after the brief; returns the first that
        was stored for that history.

        Where the tail that a compaction saw held no tool call it is found by the
        replaced range alone too: clients without tools re-render their tail.
        """
        end = conversation.brief_end
        shelf = Shelf.TRIMMED if rewrite.is_trim else Shelf.SEEN
        value = to_bytes(rewrite)
        stored = from_bytes(await self._store.add(shelf, digests[end + rewrite.seen], value))
        tail = conversation.messages[end + rewrite.replaced : end + rewrite.seen]
        if not rewrite.is_trim and not any(message.calls or message.answers for message in tail):
            await self._store.add(Shelf.RANGE, digests[end + rewrite.replaced], value)
        whole = len(digests) - 1 - end
        if stored and stored.replaced < rewrite.replaced and rewrite.seen < whole:
            # A step came to where an older compaction had been made, and goes further: what is
            # true of a history is true of one that continues it.
            return await self.keep(digests, conversation, replace(rewrite, seen=whole))
        return stored if stored and _applies(stored, conversation) else rewrite

    async def find_ahead(
        self, digests: Sequence[bytes], conversation: Conversation, now: Rewrite | None
    ) -> Rewrite | None:
        """One made ahead of need over what this history continues, newer than what is in use *now*."""
        after = digests[conversation.brief_end + 1 :]
        first = await self._store.longest(Shelf.AHEAD, after)
        ahead = await self._longest(Shelf.AHEAD, after, conversation, first) if first else None
        if ahead is None or now is None:
            return ahead
        return ahead if ahead.replaced > now.replaced and ahead.seen > now.compacted_at else None

    async def keep_ahead(
        self, digests: Sequence[bytes], conversation: Conversation, rewrite: Rewrite
    ) -> Rewrite:
        """Store *rewrite* where no request finds it by itself; returns the first that was stored there."""
        at = digests[conversation.brief_end + rewrite.seen]
        stored = from_bytes(await self._store.add(Shelf.AHEAD, at, to_bytes(rewrite)))
        return stored if stored and _applies(stored, conversation) else rewrite

    async def keep_failure(
        self, digests: Sequence[bytes], conversation: Conversation, before: Failure | None
    ) -> Failure:
        """Store that notes over the whole history came to nothing, once more after *before*."""
        seen = len(conversation.messages) - conversation.brief_end
        failure = Failure(seen=seen, attempts=(before.attempts if before else 0) + 1)
        await self._store.add(Shelf.FAILED, digests[-1], failure_to_bytes(failure))
        return failure

    async def _longest(
        self,
        shelf: Shelf,
        after: Sequence[bytes],
        conversation: Conversation,
        first: tuple[int, bytes],
    ) -> Rewrite | None:
        """The longest that applies, from *first* down; where a result came late, a shorter one may."""
        entry: tuple[int, bytes] | None = first
        while entry is not None:
            rewrite = from_bytes(entry[1])
            if rewrite and _stands(after, entry[0], rewrite.seen) and _applies(rewrite, conversation):
                return rewrite
            entry = await self._store.longest(shelf, after[: entry[0]]) if entry[0] else None
        return None


def _failure(after: Sequence[bytes], entry: tuple[int, bytes] | None) -> Failure | None:
    failure = failure_from_bytes(entry[1]) if entry else None
    return failure if entry and failure and _stands(after, entry[0], failure.seen) else None


def _stands(after: Sequence[bytes], index: int, seen: int) -> bool:
    """Whether what was found at *index* is about the first *seen* messages: some have no own digest."""
    return 0 < seen <= len(after) and after[seen - 1] == after[index]


def _applies(rewrite: Rewrite, conversation: Conversation) -> bool:
    """
    Whether a turn of this history is left after the replaced ones, and begins there.

    A result that came late may have joined the turns on both sides: then its call must not be left out.
    """
    at = conversation.brief_end + rewrite.replaced
    if not rewrite.replaced:
        return at < len(conversation.messages)
    return any(turn.start == at for turn in conversation.turns)
