"""
The last guard: cut long texts where a view would not fit otherwise.

A trim comes in one large step and is stored, so that it rests for many turns. The brief
is never trimmed. Order: old tool results, old reasoning, arguments and assistant texts,
whole oldest turns, and the newest turn's own texts. The newest turn comes before whole turns
where leaving those out could not make it fit: one huge result must not cost the history.

Every quantity is in tokens unless its name says otherwise.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from proxy.core.cutting import cut_arguments, cut_middle, label
from proxy.core.messages import Conversation, Cut, Kind, Message, Role
from proxy.core.pairs import pair
from proxy.core.plan import Sizes
from proxy.core.rewrite import Rewrite

# What is left of a text of the newest turn at the least, in characters.
_LEAST_CHARS = 80
# About what a marker adds, in characters.
_MARKER_CHARS = 160
# A first guess at how far to cut may miss; each further one goes this much lower.
_LOWER = 0.75


class What(StrEnum):
    """What a trim cut; label values of its metric."""

    RESULTS = "results"
    TEXTS = "texts"
    TURNS = "turns"
    NEWEST = "newest"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trim:
    """
    Attributes:
        rewrite: How the history is shown from now on.
        what: What was cut, in the order in which it happened.
        messages: How many messages are shown shorter than before, or not at all.
        size: Of the view that comes of it.
    """

    rewrite: Rewrite
    what: tuple[What, ...]
    messages: int
    size: int


def trim(
    conversation: Conversation,
    rewrite: Rewrite | None,
    sizes: Sizes,
    *,
    aim: int,
    limit: int,
    keep_chars: int,
    count: Callable[[str], int],
    block: Callable[[int], str],
) -> Trim | None:
    """
    Bring a view down to *aim*, None where it cannot be brought under *limit*.

    Where tools and brief leave less room than *aim* allows, half of the room that they
    leave is freed, so that the next turns do not trim again.

    Args:
        conversation: The client's history.
        rewrite: How it is shown now.
        sizes: Of that view.
        aim: The size to reach.
        limit: The size that must not be passed.
        keep_chars: What stays of a long old text.
        count: Size of a text.
        block: The block for a number of replaced messages, without new notes.
    """
    work = _Work(conversation, rewrite, sizes, count)
    floor = work.floor(block)
    if floor > limit:
        return None
    aim = max(aim, floor + (limit - floor) // 2)
    newest = work.newest
    for kinds, what in (
        ((Kind.RESULT,), What.RESULTS),
        ((Kind.REASONING,), What.TEXTS),
        ((Kind.ARGUMENTS, Kind.SAID), What.TEXTS),
    ):
        work.cut_old(range(work.replaced, newest), kinds, keep_chars, aim, what)
    if work.size > aim:
        without_others = work.fixed + work.block_size + sum(work.shown[newest:])
        if without_others > aim:
            room = aim - work.fixed - work.block_size
            others = sum(work.shown[work.replaced : newest])
            work.cut_newest(max(room - others, room // 2))
    if work.size > aim and newest > work.replaced:
        work.leave_out(block, aim)
    if work.size > aim:
        work.cut_newest(aim - work.fixed - work.block_size)
    if not work.what or work.size > limit:
        return None
    return work.done()


class _Work:
    """One trim as it goes; nothing of it outlives the call."""

    def __init__(
        self,
        conversation: Conversation,
        rewrite: Rewrite | None,
        sizes: Sizes,
        count: Callable[[str], int],
    ) -> None:
        self.before = rewrite or Rewrite(seen=0)
        self.messages = conversation.messages[conversation.brief_end :]
        self.starts = [turn.start - conversation.brief_end for turn in conversation.turns]
        self.newest = self.starts[-1] if self.starts else len(self.messages)
        self.replaced = self.before.replaced
        self.block = self.before.block
        self.fixed = sizes.fixed
        self.block_size = sizes.block
        self.shown = list(sizes.shown)
        self.cuts = {(cut.at, cut.text): cut.put for cut in self.before.cuts}
        self.count = count
        self.what: list[What] = []
        self.touched: set[int] = set()
        self.labels = _labels(self.messages)

    @property
    def size(self) -> int:
        return self.fixed + self.block_size + sum(self.shown[self.replaced :])

    def floor(self, block: Callable[[int], str]) -> int:
        """The least that the view can take: everything old left out, the newest turn cut."""
        whole = sum(self.shown[self.newest :])
        least = whole
        for at, text in self._texts(range(self.newest, len(self.messages)), tuple(Kind)):
            now = self._now(at, text)
            put = self._shorter(at, text, now, _LEAST_CHARS)
            if put is not None:
                least -= max(0, self.count(now) - self.count(put))
        old = self.block_size + sum(self.shown[self.replaced : self.newest])
        left_out = self.count(block(self.newest)) if self.newest > self.replaced else self.block_size
        return self.fixed + min(old, left_out) + least

    def cut_old(self, places: range, kinds: tuple[Kind, ...], keep_chars: int, aim: int, what: What) -> None:
        """Oldest first, until the view is down to *aim*."""
        for at, text in self._texts(places, kinds):
            if self.size <= aim:
                return
            if self.messages[at].role is not Role.USER:
                self._cut(at, text, keep_chars, what)

    def cut_newest(self, room: int) -> None:
        """Cut the longest texts of the newest turn to one length at which it takes *room*."""
        places = range(self.newest, len(self.messages))
        # Results can be had again; what a user wrote cannot, and is cut last of all.
        for kinds, users in (
            ((Kind.RESULT,), False),
            ((Kind.RESULT, Kind.ARGUMENTS, Kind.REASONING, Kind.SAID), False),
            (tuple(Kind), True),
        ):
            texts = [
                (at, text) for at, text in self._texts(places, kinds) if users or not self._is_users(at, text)
            ]
            chars = self._level(texts, room)
            while sum(self.shown[self.newest :]) > room:
                for at, text in texts:
                    self._cut(at, text, chars, What.NEWEST)
                if chars <= _LEAST_CHARS:
                    break
                chars = max(_LEAST_CHARS, int(chars * _LOWER))

    def leave_out(self, block: Callable[[int], str], aim: int) -> None:
        """Leave out the fewest whole oldest turns that bring the view down to *aim*."""
        room = aim - self.fixed - self.count(block(self.newest))
        later = [start for start in self.starts if start > self.replaced]
        upto = next((s for s in later if sum(self.shown[s:]) <= room), self.newest)
        self.touched |= set(range(self.replaced, upto))
        self.replaced = upto
        self.block = block(upto)
        self.block_size = self.count(self.block)
        self.what.append(What.TURNS)

    def done(self) -> Trim:
        kept = tuple(
            Cut(at=at, text=text, put=put)
            for (at, text), put in sorted(self.cuts.items())
            if at >= self.replaced
        )
        return Trim(
            rewrite=replace(
                self.before,
                seen=len(self.messages),
                replaced=self.replaced,
                block=self.block,
                cuts=kept,
                is_trim=True,
            ),
            what=tuple(dict.fromkeys(self.what)),
            messages=len(self.touched),
            size=self.size,
        )

    def _texts(self, places: Iterable[int], kinds: tuple[Kind, ...]) -> Iterable[tuple[int, int]]:
        for at in places:
            for i, text in enumerate(self.messages[at].texts):
                if text.kind in kinds:
                    yield at, i

    def _is_users(self, at: int, text: int) -> bool:
        message = self.messages[at]
        return message.role is not Role.ASSISTANT and message.texts[text].kind is Kind.SAID

    def _now(self, at: int, text: int) -> str:
        return self.cuts.get((at, text), self.messages[at].texts[text].text)

    def _level(self, texts: list[tuple[int, int]], room: int) -> int:
        """About how many characters of each text may stay."""
        sized = [(len(self._now(at, text)), self.count(self._now(at, text))) for at, text in texts]
        rest = room - (sum(self.shown[self.newest :]) - sum(tokens for _, tokens in sized))
        if not sized or rest <= 0:
            return _LEAST_CHARS
        per_char = sum(tokens for _, tokens in sized) / max(1, sum(chars for chars, _ in sized))
        left, level = rest / max(per_char, 1e-9), 0.0
        for i, (chars, _) in enumerate(sorted(sized)):
            level = left / (len(sized) - i)
            if chars > level:
                break
            left -= chars
        return max(_LEAST_CHARS, int(level) - _MARKER_CHARS)

    def _cut(self, at: int, text: int, keep_chars: int, what: What) -> None:
        # Always from the original: a second cut must not count the marker of the first.
        now = self._now(at, text)
        put = self._shorter(at, text, self.messages[at].texts[text].text, keep_chars)
        if put is None or len(put) >= len(now):
            return
        self.shown[at] = max(0, self.shown[at] - self.count(now) + self.count(put))
        self.cuts[at, text] = put
        self.touched.add(at)
        self.what.append(what)

    def _shorter(self, at: int, text: int, now: str, keep_chars: int) -> str | None:
        kind = self.messages[at].texts[text].kind
        called = self.labels.get((at, text), "")
        if kind is Kind.ARGUMENTS:
            return cut_arguments(now, keep_chars, "an argument")
        if kind is Kind.RESULT:
            return cut_middle(now, keep_chars, f"the result of {called}" if called else "a result")
        return cut_middle(now, keep_chars, "this text")


def _labels(messages: tuple[Message, ...]) -> dict[tuple[int, int], str]:
    """For the texts that are results, the call they answer, in a few words."""
    by_result: dict[str, str] = {}
    for made in pair(messages):
        if made.result is not None:
            by_result.setdefault(made.result, label(made.call.name, made.call.arguments))
    return {
        (at, i): by_result.get(message.result(text.of), "")
        for at, message in enumerate(messages)
        for i, text in enumerate(message.texts)
        if text.kind is Kind.RESULT
    }
