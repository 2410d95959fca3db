"""
What does every text of a view say by now, and what does the whole take?

The state of one trim as it goes, with running sums, so that a history of thousands of
messages costs no more than one look at each. What is cut, and how far, `trim` decides.

Every quantity is in tokens unless its name says otherwise.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import pairwise

from proxy.core.cutting import cut_arguments, cut_middle, label
from proxy.core.messages import Conversation, Cut, Kind, Message, Role
from proxy.core.pairs import pair
from proxy.core.plan import Sizes, before_prefill
from proxy.core.rewrite import Rewrite


class CutView:
    """
    A view that is being cut. Positions count from the brief's end; a text is named by the
    position of its message and its index there.

    Attributes:
        messages: All messages after the brief.
        starts: Where the turns begin.
        newest: Where the newest turn begins.
        replaced: How many messages are left out.
        fixed: Tools and brief, without the block.
        block_size: The block.
        size: The whole view.
        newest_size: The newest turn.
        touched: Messages that are shown shorter than before, or not at all.
    """

    def __init__(
        self,
        conversation: Conversation,
        rewrite: Rewrite | None,
        sizes: Sizes,
        count: Callable[[str], int],
    ) -> None:
        self.messages = conversation.messages[conversation.brief_end :]
        self.starts = [turn.start - conversation.brief_end for turn in conversation.turns]
        self.newest = self.starts[-1] if self.starts else len(self.messages)
        self._before = rewrite or Rewrite(seen=0)
        self.replaced = self._before.replaced
        self.fixed = sizes.fixed
        self.block_size = sizes.block
        self.size = sizes.total
        self.newest_size = sum(sizes.shown[self.newest :])
        self.touched: set[int] = set()
        self._before_prefill = before_prefill(conversation)
        self._block = self._before.block
        self._shown = list(sizes.shown)
        self._cuts = {(cut.at, cut.text): cut.put for cut in self._before.cuts}
        self._count = count
        self._labels: dict[tuple[int, int], str] | None = None

    def texts(self, places: Iterable[int], kinds: tuple[Kind, ...]) -> Iterator[tuple[int, int]]:
        """The texts of some *kinds* in the messages at *places*."""
        for at in places:
            for i, text in enumerate(self.messages[at].texts):
                if text.kind in kinds:
                    yield at, i

    def is_users(self, at: int, text: int) -> bool:
        """Whether a person or the client's system wrote it."""
        message = self.messages[at]
        return message.role is not Role.ASSISTANT and message.texts[text].kind is Kind.SAID

    def now(self, at: int, text: int) -> str:
        """What a text says by now."""
        return self._cuts.get((at, text), self.messages[at].texts[text].text)

    def now_size(self, at: int, text: int) -> int:
        """What that takes."""
        return self._count(self.now(at, text))

    def shown_size(self, at: int) -> int:
        """What a message takes as it is shown."""
        return self._shown[at]

    def gain(self, at: int, text: int, keep_chars: int) -> tuple[int, str] | None:
        """What cutting a text to *keep_chars* would free, and what would stand there; None for nothing."""
        # Always from the original: a second cut must not count the marker of the first.
        put = self._shorter(at, text, keep_chars)
        if put is None or len(put) >= len(self.now(at, text)):
            return None
        # A marker can take more than the blank space it stands for.
        freed = self.now_size(at, text) - self._count(put)
        return (freed, put) if freed > 0 else None

    def cut(self, at: int, text: int, keep_chars: int) -> bool:
        """Cut a text to about *keep_chars* of its original; False where that frees nothing."""
        found = self.gain(at, text, keep_chars)
        return found is not None and self._show(at, text, *found)

    def put(self, at: int, text: int, put: str) -> bool:
        """Let *put* stand in a text's place; False where that frees nothing."""
        freed = self.now_size(at, text) - self._count(put)
        return freed > 0 and self._show(at, text, freed, put)

    def _show(self, at: int, text: int, freed: int, put: str) -> bool:
        # Sizes are rounded one by one: a message is not believed to take less than nothing.
        freed = min(freed, self._shown[at])
        self._shown[at] -= freed
        self.size -= freed
        if at >= self.newest:
            self.newest_size -= freed
        self._cuts[at, text] = put
        self.touched.add(at)
        return True

    def fewest_left_out(self, room: int) -> int:
        """How far the oldest turns have to go, so that the rest takes at most *room*; never the newest."""
        rest = self.size - self.fixed - self.block_size
        for before, start in pairwise([self.replaced, *(s for s in self.starts if s > self.replaced)]):
            rest -= sum(self._shown[before:start])
            if rest <= room:
                return start
        return self.newest

    def size_without(self, upto: int, block: str) -> int:
        """What the view would take with *block* for the first *upto* messages."""
        return self.fixed + self._count(block) + sum(self._shown[upto:])

    def leave_out(self, upto: int, block: str) -> None:
        """Let *block* stand for the first *upto* messages."""
        self.size = self.size_without(upto, block)
        self.touched |= set(range(self.replaced, upto))
        self.replaced = upto
        self._block = block
        self.block_size = self._count(block)

    def rewrite(self) -> Rewrite:
        """How the history is shown now."""
        kept = tuple(
            Cut(at=at, text=text, put=put)
            for (at, text), put in sorted(self._cuts.items())
            if at >= self.replaced
        )
        return replace(
            self._before,
            seen=self._seen(),
            replaced=self.replaced,
            block=self._block,
            cuts=kept,
            is_trim=True,
            is_mask=False,
        )

    def _seen(self) -> int:
        """
        How many messages the trim depends on.

        Not on a prefill: its message comes back with what the model added to it, and the
        trim must still be found.
        """
        before = max(self._before_prefill, self._before.seen)
        return before if all(at < before for at, _ in self._cuts) else len(self.messages)

    def _shorter(self, at: int, text: int, keep_chars: int) -> str | None:
        original = self.messages[at].texts[text]
        if original.kind is Kind.SEALED:
            return None
        if original.kind is Kind.ARGUMENTS:
            return cut_arguments(original.text, keep_chars, "an argument")
        if original.kind is Kind.RESULT:
            called = self._label(at, text)
            return cut_middle(original.text, keep_chars, f"the result of {called}" if called else "a result")
        return cut_middle(original.text, keep_chars, "this text")

    def _label(self, at: int, text: int) -> str | None:
        """The call that a result answers, in a few words; None where it answers none."""
        if self._labels is None:
            self._labels = _labels(self.messages)
        return self._labels.get((at, self.messages[at].texts[text].of))


def _labels(messages: tuple[Message, ...]) -> dict[tuple[int, int], str]:
    """For every answer, by its message and its index there, the call that it answers."""
    return {
        made.answer: label(made.call.name, made.call.arguments)
        for made in pair(messages)
        if made.answer is not None
    }
