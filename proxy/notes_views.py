"""
Over which view are notes made?

Over what the server had last, or over the beginning of a history that is too long to be noted at once.
"""

from proxy.core.plan import before_newest, cuts_within, prefix
from proxy.core.trim import trim
from proxy.deciding import block_of
from proxy.looking import Look, Looking, Terms


class NotesViews:
    """
    Looks at parts of a history. For one event loop.

    Args:
        looking: Measures them.
        trim_chars: What stays of a long text where a part has to be trimmed.
    """

    def __init__(self, looking: Looking, *, trim_chars: int) -> None:
        self._looking = looking
        self._trim_chars = trim_chars

    async def before_newest(self, terms: Terms, look: Look) -> Look:
        """
        The view without the newest turn, which stays whatever comes of it.

        That is what the server was sent last, so that all of it is cached: notes over the newest
        turn as well would have it processed twice, for them and again behind the block.
        """
        return await self.upto(terms, look, before_newest(look.conversation))

    async def upto(self, terms: Terms, look: Look, upto: int) -> Look:
        """The view of the first *upto* messages after the brief."""
        conversation = look.conversation
        if conversation.brief_end + upto == len(conversation.messages):
            return look
        part = prefix(conversation, upto)
        rewrite = cuts_within(look.rewrite, upto)
        return await self._looking.look(terms.asked, part, rewrite, terms.found, terms.budget)

    async def part(self, terms: Terms, look: Look, upto: int) -> Look | None:
        """The view of the first *upto* messages after the brief, trimmed to what notes can be made over."""
        conversation = prefix(look.conversation, upto)
        asked, found, budget = terms.asked, terms.found, terms.budget
        rewrite = cuts_within(look.rewrite, upto)
        part = await self._looking.look(asked, conversation, rewrite, found, budget)
        if part.total <= terms.notes_room:
            return part
        trimmed = trim(
            conversation,
            rewrite,
            part.measured.sizes,
            aim=terms.notes_room,
            limit=terms.notes_room,
            keep_chars=self._trim_chars,
            count=terms.count,
            block=lambda replaced: block_of(terms, part, replaced),
        )
        if trimmed is None:
            return None
        return await self._looking.look(asked, conversation, trimmed.rewrite, found, budget)
