"""
Is a set of notes worth making for a view, and over how much of it?

`core.plan` decides; here its questions are put with the terms of a request. Listing what turns
did takes long for a long history: call these off the event loop.
"""

from collections.abc import Callable

from proxy.asked import Trigger
from proxy.core.block import Notes, Rooms, render_block
from proxy.core.plan import Compact, Decision, before_newest, plan, step
from proxy.looking import Look, Terms


def is_worth_it(terms: Terms, look: Look) -> bool:
    """Whether notes are to be made at all."""
    return next_step(terms, look) is not None or (
        look.total - newest(look) <= terms.notes_room and isinstance(decide(terms, look), Compact)
    )


def decide(terms: Terms, look: Look, *, forced: bool = False) -> Decision:
    """What one set of notes over the view is to replace; *forced* where it has to be brought down."""
    return plan(
        look.conversation,
        look.rewrite,
        look.measured.sizes,
        terms.budget,
        policy=terms.policy,
        kept=_kept(terms, look),
        room=terms.notes_room,
        forced=forced or terms.trigger is Trigger.OVERFLOW,
    )


def next_step(terms: Terms, look: Look) -> int | None:
    """
    How far the next step goes; None where one set of notes over all but the newest turn will do.

    It will not do where that does not fit with the notes.
    """
    if look.total - newest(look) <= terms.notes_room:
        return None
    if terms.budget.fits(look.total) and not isinstance(decide(terms, look), Compact):
        return None
    return step(
        look.conversation,
        look.rewrite,
        look.measured.sizes,
        terms.budget,
        policy=terms.policy,
        kept=_kept(terms, look),
        room=terms.notes_room,
        most_kept=terms.rooms.most,
    )


def block_of(
    terms: Terms, look: Look, replaced: int, rooms: Rooms | None = None, *, noted: bool = True
) -> str:
    """The block for *replaced* messages in *rooms*, with the notes that there are if *noted*, for a trim."""
    before = look.rewrite if noted else None
    conversation = look.conversation
    starts = [turn.start - conversation.brief_end for turn in conversation.turns]
    covered = before.replaced if before and before.notes else 0
    notes = Notes(
        text=before.notes if before else "",
        uncovered_turns=sum(covered <= start < replaced for start in starts),
    )
    return render_block(conversation, replaced, notes, rooms or terms.rooms, terms.count)


def newest(look: Look) -> int:
    """Tokens of the newest turn as it is shown; 0 without turns."""
    conversation = look.conversation
    return sum(look.measured.sizes.shown[before_newest(conversation) :]) if conversation.turns else 0


def _kept(terms: Terms, look: Look) -> Callable[[int], int]:
    """For a number of replaced messages the size of the block without notes."""
    count = terms.count
    return lambda replaced: count(render_block(look.conversation, replaced, Notes(), terms.rooms, count))
