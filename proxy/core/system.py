"""
Keep what a client said as system in the middle of a conversation.

The brief's system messages stay where they are. A later one inside the replaced range
cannot: most templates refuse it or lose it anywhere but at the start. So the block carries it.

Room is in tokens of the `count` that is passed in.
"""

from collections.abc import Sequence

from proxy.core.fitting import Count, fit
from proxy.core.messages import Message, Role


def render_late_system(messages: Sequence[Message], room: int, count: Count) -> str:
    """
    The system and developer messages among *messages*, word for word, in order, each once.

    Where *room* is short the newest stay, since they say what holds now; the last that has
    room at all is cut in its middle, and a marker says how many are left out.
    """
    said = _distinct(messages)
    whole = [f"[system message {number} of {len(said)}]\n{text}" for number, text in enumerate(said, 1)]
    text = "\n\n".join(whole)
    if not said or count(text) <= room:
        return text
    kept: list[str] = []
    left = room - count(_gap(len(said))) - 2
    for index in reversed(range(len(said))):
        piece = fit(said[index], f"[system message {index + 1} of {len(said)}]", left - 2, count)
        if not piece:
            break
        kept.append(piece)
        left -= count(piece) + 2
        if piece != whole[index]:
            break
    # Pieces that fit one by one can be a token too many together.
    while kept:
        gone = len(said) - len(kept)
        text = "\n\n".join([*([_gap(gone)] if gone else []), *reversed(kept)])
        if count(text) <= room:
            return text
        kept.pop()
    return ""


def _distinct(messages: Sequence[Message]) -> list[str]:
    """What was said as system, in order; of what was said twice, the last time."""
    said = [message.said() for message in messages if message.role is Role.SYSTEM]
    newest_first = dict.fromkeys(text for text in reversed(said) if text.strip())
    return [*reversed(newest_first)]


def _gap(number: int) -> str:
    return f"[{number} system message{'s' if number > 1 else ''} left out here]"
