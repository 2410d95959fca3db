"""
The last guard: cut long texts where a view would not fit otherwise.

A trim comes in one large step and is stored, so that it rests for many turns. The brief
is never trimmed. Order: old tool results, old reasoning, arguments and assistant texts,
whole oldest turns, and the newest turn's own texts. The newest turn comes before whole turns
where leaving those out could not make it fit: one huge result must not cost the history.

Every quantity is in tokens unless its name says otherwise.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from proxy.core.budget import Budget
from proxy.core.cut_view import CutView
from proxy.core.messages import Conversation, Kind, Role
from proxy.core.plan import Sizes
from proxy.core.rewrite import Rewrite

# What is left of a text of the newest turn at the least, in characters.
_LEAST_CHARS = 80
# About what a marker adds, in characters.
_MARKER_CHARS = 160
# A first guess at how far to cut may miss; each further one goes this much lower.
_LOWER = 0.75
# Turns for which a trim should rest where no notes are made, and the turns by which the
# size of those to come is guessed. More than the eight that are asked for: sizes vary.
_REST_TURNS = 12
_RECENT_TURNS = 32
# Of what tools, brief and newest turn leave this much stays filled: a trim that emptied the
# view would rest longest and remember nothing.
_LEAST_FILLED = 1 / 3


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


def aim_of(conversation: Conversation, sizes: Sizes, budget: Budget, *, share: float) -> int:
    """
    The size to trim a view to: *share* of the budget.

    Less where no notes are made and turns are so large that it would not rest for long.
    """
    aim = int(share * budget.limit)
    recent = conversation.turns[-_RECENT_TURNS:]
    if budget.compact_at or not recent:
        return aim
    grown = sum(sizes.whole[recent[0].start - conversation.brief_end :])
    return min(aim, max(0, budget.limit - _REST_TURNS * grown // len(recent)))


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

    Where tools, brief and newest turn leave less room than *aim* allows, a third of what they
    leave stays filled.

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
    view = CutView(conversation, rewrite, sizes, count)
    newest_least = _least_of_newest(view)
    if view.fixed + newest_least > limit:
        return None
    what: list[What] = []
    old = view.size - view.fixed - view.newest_size
    left_out = count(block(view.newest))
    floor = view.fixed + min(old, left_out) + newest_least
    aim = max(aim, min(limit, floor + int((limit - floor) * _LEAST_FILLED)))
    for kinds, named in (
        ((Kind.RESULT,), What.RESULTS),
        ((Kind.REASONING,), What.TEXTS),
        ((Kind.ARGUMENTS, Kind.SAID), What.TEXTS),
    ):
        if _cut_old(view, kinds, keep_chars, aim):
            what.append(named)
    if view.fixed + view.block_size + view.newest_size > aim:
        room = aim - view.fixed - view.block_size
        others = view.size - view.fixed - view.block_size - view.newest_size
        if _cut_newest(view, max(room - others, room // 2)):
            what.append(What.NEWEST)
    if view.size > aim and _leave_out(view, block, aim, left_out):
        what.append(What.TURNS)
    if _cut_newest(view, aim - (view.size - view.newest_size)):
        what.append(What.NEWEST)
    if not what or view.size > limit:
        return None
    return Trim(
        rewrite=view.rewrite(),
        what=tuple(dict.fromkeys(what)),
        messages=len(view.touched),
        size=view.size,
    )


def _cut_old(view: CutView, kinds: tuple[Kind, ...], keep_chars: int, aim: int) -> bool:
    """Cut what is older than the newest turn, oldest first, until the view is down to *aim*."""
    any_cut = False
    for at, text in view.texts(range(view.replaced, view.newest), kinds):
        if view.size <= aim:
            break
        # Some formats let a user speak beside a result.
        speaks = view.messages[at].role is Role.TOOL and view.is_users(at, text)
        if view.messages[at].role is not Role.USER and not speaks:
            any_cut |= view.cut(at, text, keep_chars)
    return any_cut


def _leave_out(view: CutView, block: Callable[[int], str], aim: int, least_block: int) -> bool:
    """Leave out the fewest whole oldest turns that bring the view down to *aim*, else what helps most."""
    fewest = view.fewest_left_out(aim - view.fixed - least_block)
    best: tuple[int, int, str] | None = None
    for upto in dict.fromkeys((fewest, view.newest)):
        rendered = block(upto)
        size = view.size_without(upto, rendered)
        if size < view.size and (best is None or size < best[0]):
            best = size, upto, rendered
        if size <= aim:
            break
    if best is None:
        return False
    view.leave_out(best[1], best[2])
    return True


def _cut_newest(view: CutView, room: int) -> bool:
    """Cut the longest texts of the newest turn to one length at which it takes *room*."""
    places = range(view.newest, len(view.messages))
    any_cut = False
    # Results can be had again; what a user wrote cannot, and is cut last of all.
    for kinds, users in (
        ((Kind.RESULT,), False),
        ((Kind.RESULT, Kind.ARGUMENTS, Kind.REASONING, Kind.SAID), False),
        (tuple(Kind), True),
    ):
        texts = [(at, text) for at, text in view.texts(places, kinds) if users or not view.is_users(at, text)]
        chars = _level(view, texts, room)
        while view.newest_size > room:
            for at, text in texts:
                any_cut |= view.cut(at, text, chars)
            if chars <= _LEAST_CHARS:
                break
            chars = max(_LEAST_CHARS, int(chars * _LOWER))
    return any_cut


def _level(view: CutView, texts: list[tuple[int, int]], room: int) -> int:
    """About how many characters of each text may stay."""
    sized = [(len(view.now(at, text)), view.now_size(at, text)) for at, text in texts]
    rest = room - (view.newest_size - sum(tokens for _, tokens in sized))
    per_char = sum(tokens for _, tokens in sized) / max(1, sum(chars for chars, _ in sized))
    left, level = rest / max(per_char, 1e-9), 0.0
    for i, (chars, _) in enumerate(sorted(sized)):
        level = left / (len(sized) - i)
        if chars > level:
            break
        left -= chars
    return max(_LEAST_CHARS, int(level) - _MARKER_CHARS)


def _least_of_newest(view: CutView) -> int:
    """The least that the newest turn can take."""
    least = view.newest_size
    for at, text in view.texts(range(view.newest, len(view.messages)), tuple(Kind)):
        found = view.gain(at, text, _LEAST_CHARS)
        least -= found[0] if found else 0
    return max(0, least)
