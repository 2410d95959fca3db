"""
Decide what to replace and what to keep.

Only whole turns are replaced, always from the first one, so that no call is parted from
its result. Every quantity is in tokens unless its name says otherwise.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum

from proxy.core.budget import Budget
from proxy.core.messages import Conversation, Role, Turn
from proxy.core.rewrite import Rewrite

# A rewrite costs the server's cached prompt and a set of notes. When the window is
# nearly full, less gain is worth that.
PRESSING_GAIN = 0.05
# The tail gets this share of the budget, even where tools and brief leave none.
_LEAST_TAIL_SHARE = 0.05
# Notes of few turns are short.
_NOTES_DIVISOR = 3
# Turns after a compaction in which there is no other, except after an overflow.
REST_TURNS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """
    Attributes:
        keep_turns: Most turns of the tail.
        min_gain: Share of the budget that a compaction has to gain.
        worth: How many times what the server has to process again a compaction has to gain, as
            long as there is time to wait for that.
        notes_max: Most tokens of a set of notes.
    """

    keep_turns: int = 3
    min_gain: float = 0.15
    worth: float = 0.0
    notes_max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """
    Sizes of a view's parts.

    Attributes:
        fixed: Tools and brief, without the block.
        block: The block in the brief; 0 for none.
        shown: For every message after the brief its size as it is shown; 0 for replaced ones.
        whole: The same, word for word.
    """

    fixed: int
    block: int
    shown: tuple[int, ...]
    whole: tuple[int, ...]

    @property
    def total(self) -> int:
        """The whole prompt."""
        return self.fixed + self.block + sum(self.shown)


class Why(StrEnum):
    """Why nothing is replaced."""

    FITS = "fits"
    ONE_TURN = "one_turn"
    TOO_SOON = "too_soon"
    NO_GAIN = "no_gain"


@dataclass(frozen=True, slots=True)
class Leave:
    """The view stays as it is."""

    why: Why


@dataclass(frozen=True, slots=True, kw_only=True)
class Compact:
    """
    The first `replaced` messages after the brief are to be replaced.

    Attributes:
        replaced: Where the tail begins, counted from the brief's end.
        tail_turns: Turns that stay.
    """

    replaced: int
    tail_turns: int


Decision = Leave | Compact


def turns_since(conversation: Conversation, at: int) -> int:
    """Turns that begin *at* messages after the brief or later."""
    return sum(turn.start - conversation.brief_end >= at for turn in conversation.turns)


def has_rested(conversation: Conversation, rewrite: Rewrite | None) -> bool:
    """Whether the last compaction, if there was one, is long enough ago for another."""
    if rewrite is None or not rewrite.compacted_at:
        return True
    return turns_since(conversation, rewrite.compacted_at) >= REST_TURNS


def plan(
    conversation: Conversation,
    rewrite: Rewrite | None,
    sizes: Sizes,
    budget: Budget,
    *,
    policy: Policy,
    kept: Callable[[int], int],
    room: int | None = None,
    forced: bool = False,
) -> Decision:
    """
    What to do with a view.

    Args:
        conversation: The client's history.
        rewrite: How it is shown now.
        sizes: Of that view.
        budget: What it may fill.
        policy: How much to keep.
        kept: For a number of replaced messages, the size of what the block keeps of
            them besides notes (user messages, ledger, frame).
        room: The longest view that notes can be made over; None for no limit.
        forced: After an overflow answer: the view does not fit, whatever its size says.
    """
    total = sizes.total
    if not forced and not budget.is_over(total):
        return Leave(Why.FITS)
    if len(conversation.turns) < 2:
        return Leave(Why.ONE_TURN)
    before = rewrite.replaced if rewrite else 0
    if not forced and not has_rested(conversation, rewrite):
        return Leave(Why.TOO_SOON)
    # Later the view might not be one that notes can be made over.
    pressing = forced or budget.is_pressing(total) or (room is not None and total > room)
    least = (PRESSING_GAIN if pressing else max(policy.min_gain, PRESSING_GAIN)) * budget.limit
    for tail_turns in range(min(policy.keep_turns, len(conversation.turns) - 1), 0, -1):
        replaced = conversation.turns[-tail_turns].start - conversation.brief_end
        if replaced <= before:
            continue
        keeps = kept(replaced)
        notes = min(policy.notes_max, sum(sizes.shown[before:replaced]) // _NOTES_DIVISOR + sizes.block)
        tail = sum(sizes.whole[replaced:])
        aim = budget.compact_to * budget.limit - sizes.fixed - keeps - policy.notes_max
        if tail_turns > 1 and tail > max(aim, _LEAST_TAIL_SHARE * budget.limit):
            continue
        # What the server has to process again: all that follows the brief but the newest turn.
        again = keeps + notes + sum(sizes.whole[replaced : before_newest(conversation)])
        worth = 0 if pressing else policy.worth * again
        if total - (sizes.fixed + keeps + notes + tail) >= max(least, worth):
            return Compact(replaced=replaced, tail_turns=tail_turns)
    return Leave(Why.NO_GAIN)


def step(
    conversation: Conversation,
    rewrite: Rewrite | None,
    sizes: Sizes,
    budget: Budget,
    *,
    policy: Policy,
    kept: Callable[[int], int],
    room: int,
    most_kept: int | None = None,
) -> int | None:
    """
    How far notes can be made where they cannot run over the whole view.

    Returns the number of messages after the brief of the longest prefix that ends with
    a turn and takes at most *room*; at least two turns that are not replaced yet, even
    if they are larger (they are trimmed for the notes), since the last one stays. None
    where fewer are left, or the replaced part would gain too little.

    The arguments are those of `plan`; *room* is the longest view that notes can be made over. Where even
    *most_kept*, the most that *kept* can say, leaves gain enough, *kept* is not asked.
    """
    before = rewrite.replaced if rewrite else 0
    ends = [
        turn.end - conversation.brief_end
        for turn in conversation.turns
        if turn.start - conversation.brief_end >= before
    ]
    if len(ends) < 2:
        return None
    upto = ends[1]
    total = sizes.fixed + sizes.block + sum(sizes.shown[before:upto])
    for end in ends[2:]:
        total += sum(sizes.shown[upto:end])
        if total > room:
            break
        upto = end
    replaced = last_turn_start(conversation, upto)
    gone = sizes.block + sum(sizes.shown[before:replaced])
    least = PRESSING_GAIN * budget.limit + min(policy.notes_max, gone // _NOTES_DIVISOR)
    # Of a history that arrives whole the block is long to make, and what a step gains is plain.
    is_plain = most_kept is not None and gone - most_kept >= least
    return upto if is_plain or gone - kept(replaced) >= least else None


def last_turn_start(conversation: Conversation, upto: int) -> int:
    """Where the last turn within the first *upto* messages after the brief begins, counted from it."""
    starts = [t.start - conversation.brief_end for t in conversation.turns]
    return max((s for s in starts if s < upto), default=0)


def before_prefill(conversation: Conversation) -> int:
    """How many messages stand after the brief and before a trailing message that is to be continued."""
    last = len(conversation.messages) - 1
    is_prefill = (
        bool(conversation.turns)
        and last > conversation.turns[-1].start
        and conversation.messages[last].role is Role.ASSISTANT
        and not conversation.messages[last].calls
    )
    return last + (not is_prefill) - conversation.brief_end


def before_newest(conversation: Conversation) -> int:
    """How many messages stand after the brief and before the newest turn; 0 without turns."""
    return conversation.turns[-1].start - conversation.brief_end if conversation.turns else 0


def cuts_within(rewrite: Rewrite | None, upto: int) -> Rewrite | None:
    """How the first *upto* messages after the brief are shown."""
    if rewrite is None or all(cut.at < upto for cut in rewrite.cuts):
        return rewrite
    return replace(rewrite, cuts=tuple(cut for cut in rewrite.cuts if cut.at < upto))


def next_turn_end(conversation: Conversation, at: int) -> int:
    """
    Where the turn after the first *at* messages after the brief ends; *at* where there is none.

    A step rests from there: the newest turn came with the request, though the step's notes
    have not seen it.
    """
    ends = (turn.end - conversation.brief_end for turn in conversation.turns)
    return next((end for end in ends if end > at), at)


def prefix(conversation: Conversation, upto: int) -> Conversation:
    """The conversation as it was after *upto* messages after the brief."""
    end = conversation.brief_end + upto
    return Conversation(
        messages=conversation.messages[:end],
        brief_end=conversation.brief_end,
        turns=tuple(
            Turn(start=turn.start, end=min(turn.end, end)) for turn in conversation.turns if turn.start < end
        ),
        model=conversation.model,
        tool_names=conversation.tool_names,
        output_limit=conversation.output_limit,
        stream=conversation.stream,
        fixed_texts=conversation.fixed_texts,
    )
