"""
Render the user messages of the replaced range: word for word, in order, each once.

The newest is the task at hand and has room of its own. Of the others the oldest few come
first (they set the rules), then the newest (they change them). What is left out, or cut in
its middle, is said where it was.

Rooms are in tokens of the `count` that is passed in.
"""

from collections.abc import Sequence

from proxy.core.fitting import Count, fit
from proxy.core.messages import Message
from proxy.core.said import said_by_user

# The first two set task and rules; more would take the room of what changed them.
_OLDEST = 2
# One pasted log must not push out everything else that was said.
_LARGEST_SHARE = 4


def render_users(messages: Sequence[Message], task_room: int, room: int, count: Count) -> str:
    """
    What the user said in *messages*: the newest in *task_room* tokens, all others in *room*.

    Empty where the user said nothing, or where nothing has room. What the newest does
    not need of its room is not given to the others.
    """
    said = _distinct(messages)
    if not said:
        return ""
    last = len(said) - 1
    newest = fit(said[last], _head(last, len(said)), task_room, count)
    chosen = _choose(said[:last], len(said), room, count)
    while True:
        parts = _parts(chosen, last)
        text = "\n\n".join([*parts, newest] if newest else parts)
        if not newest and not chosen:
            return ""
        if count(text) <= max(task_room, 0) + max(room, 0):
            return text
        # Pieces that fit one by one can be a token too many together.
        if chosen:
            chosen.pop(max(chosen, key=lambda index: (index >= _OLDEST, -index)))
        else:
            return newest


def _distinct(messages: Sequence[Message]) -> list[str]:
    """What the user said, in order; of what was said twice, the last time."""
    newest_first = dict.fromkeys(text for text in map(said_by_user, reversed(messages)) if text)
    return [*reversed(newest_first)]


def _choose(said: Sequence[str], total: int, room: int, count: Count) -> dict[int, str]:
    """The messages that have room, by index, with their heads; cut where one takes too much."""
    whole = {index: f"{_head(index, total)}\n{text}" for index, text in enumerate(said)}
    if sum(count(text) + 2 for text in whole.values()) <= room:
        return whole
    left = room - 2 * count(_gap(total))  # one marker after the oldest, one among the newest
    indices = range(len(said))
    chosen: dict[int, str] = {}
    for index in (*indices[:_OLDEST], *reversed(indices[_OLDEST:])):
        piece = fit(said[index], _head(index, total), room // _LARGEST_SHARE - 2, count)
        size = count(piece) + 2
        if piece and size <= left:
            chosen[index] = piece
            left -= size
    return chosen


def _parts(chosen: dict[int, str], last: int) -> list[str]:
    parts: list[str] = []
    expected = 0
    for index in [*sorted(chosen), last]:
        if index > expected:
            parts.append(_gap(index - expected))
        if index < last:
            parts.append(chosen[index])
        expected = index + 1
    return parts


def _head(index: int, total: int) -> str:
    newest = ", the newest of these" if index == total - 1 and total > 1 else ""
    return f"[user message {index + 1} of {total}{newest}]"


def _gap(number: int) -> str:
    return f"[{number} user message{'s' if number > 1 else ''} left out here]"
