"""
Gather the texts that notes are held against.
"""

from collections.abc import Sequence

from proxy.core.messages import Conversation, Kind, Message
from proxy.core.rewrite import Rewrite


def evidence_of(conversation: Conversation, rewrite: Rewrite | None) -> list[str]:
    """
    Everything that notes can have a name from, tools and brief included.

    Of an earlier block only what code wrote: what earlier notes invented must not pass for
    proven because it stands there.
    """
    texts = [text.text for message in conversation.messages for text in message.texts]
    texts += [call.name for message in conversation.messages for call in message.calls]
    texts += [file.name for message in conversation.messages for file in message.attachments]
    texts += [*conversation.tool_names, *conversation.fixed_texts]
    if rewrite:
        texts.append(rewrite.block.replace(rewrite.notes, "") if rewrite.notes else rewrite.block)
    return texts


def spoken_texts(messages: Sequence[Message]) -> list[str]:
    """What was said, called with and answered in *messages*, without reasoning."""
    kinds = (Kind.SAID, Kind.RESULT, Kind.ARGUMENTS)
    return [text.text for message in messages for text in message.texts if text.kind in kinds]
