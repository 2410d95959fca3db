"""
Write the to-do list as the block shows it, and the reminder to go on with it.

Texts and states stay word for word. Where room is short, what is done becomes a count
first: an agent that does not see its open items starts over, one that does not see its
done items looks them up.

Room is in tokens of the `count` that is passed in.
"""

from bisect import bisect_right
from collections.abc import Sequence

from proxy.core.arguments import plain
from proxy.core.fitting import Count
from proxy.core.neutral import neutralise
from proxy.core.secrets import mask_secrets
from proxy.core.todos import Todo, Todos, has_todo_tool

_DONE = frozenset(
    {"completed", "complete", "done", "finished", "closed", "cancelled", "canceled", "skipped", "checked"}
)
_BEGUN = frozenset({"inprogress", "active", "doing", "started", "current", "running", "ongoing"})
# An item that tells a whole story is shortened before another one is left out.
_LONGEST_CHARS = 200
_READERS = ("todoread", "readtodos", "tasklist", "listtasks", "viewtasklist")

_REMINDER = """<system-reminder>
This reminder was written when the history above it was compacted, and is about that moment only. {state}
Unless you have done so since: {read}, bring it in line with what has been done, and go on with the work. \
Do not ask the user again what has already been answered, and do not mention this reminder.
</system-reminder>"""


def render_todo_list(todos: Todos | None, room: int, count: Count) -> str:
    """
    The items of *todos* in their order, in at most *room* tokens.

    Over that, done items become a count, long texts are shortened, and of the open items
    those begun stay longest, then the first in order. Empty without items, or where not
    even a count has room.
    """
    if todos is None or not todos.items:
        return ""
    whole = "\n".join(_line(item) for item in todos.items)
    if count(whole) <= room:
        return whole
    done = [item for item in todos.items if plain(item.state) in _DONE]
    open_items = [item for item in todos.items if plain(item.state) not in _DONE]
    ranked = sorted(
        range(len(open_items)), key=lambda index: (plain(open_items[index].state) not in _BEGUN, index)
    )
    for shortened in (False, True):
        lines = [_line(item, shortened=shortened) for item in open_items]
        text = _with_counts(lines, ranked, len(done))
        if count(text) <= room:
            return text
    # The first of all numbers of open items is that of none: a count of them may fit.
    fitting = bisect_right(
        range(len(ranked)), room, key=lambda kept: count(_with_counts(lines, ranked[:kept], len(done)))
    )
    return _with_counts(lines, ranked[: fitting - 1], len(done)) if fitting else ""


def render_reminder(todos: Todos | None, tool_names: Sequence[str], *, is_newer_in_tail: bool = False) -> str:
    """
    The envelope that tells an agent to go on with its list.

    Args:
        todos: What `find_todos` found in the replaced range.
        tool_names: The tools of the request.
        is_newer_in_tail: Whether the turns that are kept hold a newer list.

    Empty without a to-do tool, or where there is no list.
    """
    if not has_todo_tool(tool_names) or (not is_newer_in_tail and (todos is None or not todos.items)):
        return ""
    readers = [name for name in tool_names if plain(name) in _READERS]
    if is_newer_in_tail:
        state = "The newest to-do list is in one of the messages below."
    else:
        state = "The to-do list above is its last state in the compacted part."
    read = f"read the list once with `{readers[0]}`" if readers else "look at that list once"
    return _REMINDER.format(state=state, read=read)


def _line(item: Todo, *, shortened: bool = False) -> str:
    number = f"#{item.id} " if item.id else ""
    text = item.text
    if shortened and len(text) > _LONGEST_CHARS:
        text = text[:_LONGEST_CHARS].rstrip() + " …"
    return neutralise(mask_secrets(f"- {number}[{item.state or 'no state'}] {text}"))


def _with_counts(lines: Sequence[str], kept: Sequence[int], done: int) -> str:
    """The lines at *kept* in their order, after what is done and before what is left out, as counts."""
    said = [f"- {done} done, not listed"] if done else []
    said.extend(lines[index] for index in sorted(kept))
    if gone := len(lines) - len(kept):
        said.append(f"- {gone} more open, not listed")
    return "\n".join(said)
