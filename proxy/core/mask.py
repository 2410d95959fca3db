"""
Compact without notes: cut old tool results to their lines in the ledger, where that is enough.

Only results that the model has answered long since are cut, all of them at once, so that
the rewrite rests. Calls, and what was said, stay word for word. Where what is left would
still be too long, nothing is cut: that is for notes.

Every quantity is in tokens unless its name says otherwise.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from proxy.core.budget import Budget
from proxy.core.cut_view import CutView
from proxy.core.ledger import result_lines
from proxy.core.messages import Conversation, Kind
from proxy.core.plan import PRESSING_GAIN, Policy, Sizes
from proxy.core.rewrite import Rewrite

# A view that is masked has to come down to this share of the budget: it is to rest as long as
# one whose old turns became notes.
MASKED_SHARE = 0.35
# Cutting less of a text than this is not worth a changed prompt. In characters.
_LEAST_CUT_CHARS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Mask:
    """
    Attributes:
        rewrite: How the history is shown from now on.
        messages: How many messages are shown shorter than before.
        size: Of the view that comes of it.
    """

    rewrite: Rewrite
    messages: int
    size: int


def mask(
    conversation: Conversation,
    rewrite: Rewrite | None,
    sizes: Sizes,
    budget: Budget,
    *,
    policy: Policy,
    count: Callable[[str], int],
) -> Mask | None:
    """
    A view with its old results masked; None where that does not bring it far enough down.

    As with notes, as many of the last turns are left alone as `policy` says, fewer where they
    do not fit, and always the newest: the model has not seen its results.

    Args:
        conversation: The client's history.
        rewrite: How it is shown now.
        sizes: Of that view.
        budget: What it may fill.
        policy: How much to keep, and what a rewrite has to gain.
        count: Size of a text.
    """
    aim = min(aim_of(budget), sizes.total - int(max(policy.min_gain, PRESSING_GAIN) * budget.limit))
    view = CutView(conversation, rewrite, sizes, count)
    if view.size - _most_freed(view) > aim:
        return None
    lines = result_lines(view.messages)
    masked = view.replaced
    for tail_turns in range(min(policy.keep_turns, len(view.starts) - 1), 0, -1):
        start = max(masked, view.starts[-tail_turns])
        _mask(view, range(masked, start), lines)
        masked = start
        if view.size <= aim:
            cut = view.rewrite()
            made = replace(cut, is_mask=True, compacted_at=cut.seen)
            return Mask(rewrite=made, messages=len(view.touched), size=view.size)
    return None


def aim_of(budget: Budget) -> int:
    """The size that a view has to come down to."""
    # Where compactions come early, the room between them is as large as what notes would leave.
    return int(min(MASKED_SHARE, (budget.compact_at + budget.compact_to) / 2) * budget.limit)


def _most_freed(view: CutView) -> int:
    """No less than all results before the newest turn take: where that is too little, none need be read."""
    # What a block stands for takes nothing itself.
    holding = {at for at, _ in view.texts(range(view.newest), (Kind.RESULT,))}
    return sum(view.shown_size(at) for at in holding)


def _mask(view: CutView, places: range, lines: dict[tuple[int, int], str]) -> None:
    named: set[tuple[int, int]] = set()
    for at, text in view.texts(places, (Kind.RESULT,)):
        original = view.messages[at].texts[text]
        answer = at, original.of
        if answer not in lines:
            continue
        marker = (
            f"[… {len(original.text):,} characters of this result were cut here to fit the context window …]"
        )
        # A result in several parts is named once.
        put = marker if answer in named else f"{marker}\n{lines[answer]}"
        if len(view.now(at, text)) - len(put) >= _LEAST_CUT_CHARS and view.put(at, text, put):
            named.add(answer)
