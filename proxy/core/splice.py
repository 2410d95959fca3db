"""
Put the block in and leave the replaced turns out: from a history and a rewrite to a view.

The block goes inside the brief's last user message, so that no two user messages meet
and no system message moves; a brief without one gets a user message that carries it.
"""

from collections.abc import Sequence

from proxy.core.messages import Conversation, Kind, Message, Role, Shown, Text, View, as_it_came
from proxy.core.rewrite import Rewrite


def splice(conversation: Conversation, rewrite: Rewrite | None) -> View:
    """The messages as they go upstream; without a rewrite all of them, word for word."""
    messages = conversation.messages
    if rewrite is None:
        return tuple(map(as_it_came, messages))
    end = conversation.brief_end
    brief = _with_block(messages[:end], rewrite.block if rewrite.replaced else "")
    cuts: dict[int, list[tuple[int, str]]] = {}
    for cut in rewrite.cuts:
        cuts.setdefault(cut.at, []).append((cut.text, cut.put))
    rest = (
        Shown(message=message, cuts=tuple(cuts[at])) if at in cuts else as_it_came(message)
        for at, message in enumerate(messages[end + rewrite.replaced :], rewrite.replaced)
    )
    return (*brief, *rest)


def _with_block(brief: Sequence[Message], block: str) -> list[Shown]:
    shown = list(map(as_it_came, brief))
    if not block:
        return shown
    for i in range(len(brief) - 1, -1, -1):
        if brief[i].role is Role.USER:
            shown[i] = Shown(message=brief[i], appended=block)
            return shown
    shown.append(Shown(message=Message(role=Role.USER, texts=(Text(Kind.SAID, block),))))
    return shown


def view_index(conversation: Conversation, rewrite: Rewrite | None, at: int) -> int:
    """Where in the view the message stands that is *at* places after the brief."""
    if rewrite is None or not rewrite.replaced:
        return conversation.brief_end + at
    has_user = any(m.role is Role.USER for m in conversation.messages[: conversation.brief_end])
    return conversation.brief_end + (0 if has_user else 1) + at - rewrite.replaced
