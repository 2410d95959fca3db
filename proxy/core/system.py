"""
Keep what a client said as system in the middle of a conversation.

The brief's system messages stay where they are. A later one inside the replaced range
cannot: most templates refuse it or lose it anywhere but at the start. So the block carries it.
"""

from collections.abc import Sequence

from proxy.core.messages import Kind, Message, Role


def render_late_system(messages: Sequence[Message]) -> str:
    """The system and developer messages among *messages*, word for word, in order, each once."""
    said: dict[str, None] = {}
    for message in messages:
        text = (
            "\n".join(t.text for t in message.texts if t.kind is Kind.SAID)
            if message.role is Role.SYSTEM
            else ""
        )
        if text.strip():
            said.pop(text, None)
            said[text] = None
    return "\n\n".join(
        f"[system message {number} of {len(said)}]\n{text}" for number, text in enumerate(said, 1)
    )
