"""
Carry the agent's to-do list over a compaction.

The list is found in the calls of the replaced range: a whole list replaces the one before
it, calls that add or change single items are folded into it. Texts and states stay word for
word. Agents whose tools keep no list get nothing: no list, no reminder.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from proxy.core.arguments import plain
from proxy.core.messages import Message
from proxy.core.outcomes import Status
from proxy.core.steps import Step, read_steps
from proxy.core.tools import Act, act_of, bare_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Todo:
    """
    One item.

    Attributes:
        id: As its agent numbers it; empty where the list has no ids.
        text: Word for word; empty where a call names an item by its id alone.
        state: The agent's own word for it; empty where it has none.
    """

    id: str = ""
    text: str = ""
    state: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Todos:
    """
    The list as the range left it.

    Attributes:
        items: In the agent's order.
        message_index: Index of the message whose call changed it last.
    """

    items: tuple[Todo, ...]
    message_index: int


# Names under which a call carries the whole list, or items to add or change.
_LISTS = ("todos", "plan", "todolist", "tasks", "items", "steps", "list")
_TEXTS = ("content", "step", "text", "title", "subject", "name", "task", "todo", "description")
_STATES = ("status", "state")
_IDS = ("id", "taskid", "todoid")
_DONE = ("done", "completed", "checked")
_ACTIONS = ("action", "operation", "command")
# Calls that change single items, by the plain name of the tool or of its action.
_ADDS = frozenset({"taskcreate", "createtask", "addtasks", "addtodo", "add", "create"})
_CHANGES = frozenset({"taskupdate", "updatetask", "updatetasks", "update", "toggle", "complete", "done"})
_COMPLETES = frozenset({"complete", "done"})
_REMOVES = frozenset({"taskdelete", "deletetask", "removetask", "delete", "remove"})
_CLEARS = frozenset({"clear", "cleartodos"})
_READS = frozenset({"read", "list", "get", "view"})
# "- [x] done", "2. [ ] open", "[-] begun", "[in_progress] begun": lists that are one text.
_BOX = re.compile(
    r"^[ \t]{0,20}(?:[-*+] {1,4}|\d{1,4}[.)] {1,4})?\[(?P<state>[^\]\n]{0,20})\] {1,4}(?P<text>\S.*)$",
    re.MULTILINE,
)
# What a result says of each new item stands in about so many characters.
_MADE_CHARS = 500
# Claude Code: "Task #3 created successfully: …"; others: {"id": "3"}.
_MADE = re.compile(
    r"\btask\s{1,4}#?(?P<id>\d{1,9})\b|\"(?:task_?)?id\":\s{0,4}\"?(?P<json>[\w-]{1,64})", re.IGNORECASE
)


def has_todo_tool(tool_names: Sequence[str]) -> bool:
    """Whether one of the tools keeps a to-do list or a plan."""
    return any(act_of(name) is Act.TODO for name in tool_names)


def find_todos(messages: Sequence[Message], tool_names: Sequence[str]) -> Todos | None:
    """
    The newest list that the calls of *messages* made, changed by what followed it.

    None without a to-do tool among *tool_names*, or where no call made a list. A list that
    was cleared has no items.
    """
    if not has_todo_tool(tool_names):
        return None
    found: Todos | None = None
    for step in read_steps(messages):
        items = _after(found.items if found else (), step) if _counts(step) else None
        if items is not None:
            found = Todos(items=tuple(items), message_index=step.message_index)
    return found


def holds_list(messages: Sequence[Message], tool_names: Sequence[str]) -> bool:
    """
    Whether a call of *messages* carries or shows a whole list.

    A call that changes a single item does not: without the list before it, it says nothing of the others.
    """
    return has_todo_tool(tool_names) and any(
        _counts(step) and not _changes_single(step) and _whole(step) is not None
        for step in read_steps(messages)
    )


def _counts(step: Step) -> bool:
    return step.deed.act is Act.TODO and step.outcome.status is not Status.FAILED


def _after(items: Sequence[Todo], step: Step) -> list[Todo] | None:
    """*items* after the call of *step*; None where it does not change them."""
    if not _changes_single(step):
        return _whole(step)
    verbs, arguments = _verbs(step), step.deed.arguments
    given = _given(arguments) or []
    meant = given or [Todo(id=_first(arguments, _IDS))]
    if verbs & _REMOVES:
        gone = set(map(_key, meant))
        return [item for item in items if _key(item) not in gone]
    if verbs & _ADDS:
        made = _made_ids(step, len(items) + 1, len(given))
        return [*items, *(replace(item, id=item.id or made[n]) for n, item in enumerate(given))]
    return _updated(items, meant, verbs)


def _verbs(step: Step) -> set[str]:
    """What the call does, by the plain names of its tool and of its action."""
    return {bare_name(step.deed.name), plain(_first(step.deed.arguments, _ACTIONS))}


def _changes_single(step: Step) -> bool:
    verbs = _verbs(step)
    changes = verbs & (_ADDS | _CHANGES | _REMOVES) or step.deed.arguments.get("merge") is True
    return bool(changes) and not verbs & _CLEARS


def _whole(step: Step) -> list[Todo] | None:
    """The list that a call carries, empties or is shown; None where it does nothing of that."""
    verbs = _verbs(step)
    if verbs & _CLEARS:
        return []
    given = _given(step.deed.arguments)
    return _told(step) if given is None or verbs & _READS else given


def _told(step: Step) -> list[Todo] | None:
    """The list that a reading call was shown, in Claude Code's form `#1 [pending] text`, or as boxes."""
    numbered = re.findall(r"^#(\w{1,20})\.? \[(\w{1,30})\] (\S.*)$", step.result, re.MULTILINE)
    if numbered:
        return [Todo(id=number, text=text.strip(), state=state) for number, state, text in numbered]
    return _boxes(step.result) or None


def _updated(items: Sequence[Todo], meant: Sequence[Todo], verbs: set[str]) -> list[Todo]:
    changed = {_key(item): item for item in items}
    for new in meant:
        old = changed.get(_key(new))
        if old is not None:
            state = new.state or _state_after(old, verbs)
            changed[_key(new)] = replace(old, text=new.text or old.text, state=state)
        elif new.text:
            changed[_key(new)] = new
    # Claude Code deletes by a state.
    return [item for item in changed.values() if item.state not in ("deleted", "removed")]


def _key(item: Todo) -> tuple[bool, str]:
    """By what calls mean the same item: its id, or its text where it has none."""
    return bool(item.id), item.id or item.text


def _state_after(item: Todo, verbs: set[str]) -> str:
    if verbs & _COMPLETES:
        return "completed"
    if "toggle" in verbs:
        return "pending" if item.state == "completed" else "completed"
    return item.state


def _given(arguments: Mapping[str, object]) -> list[Todo] | None:
    """The items that a call carries, as a list, a text with boxes, or its own arguments; None for none."""
    for name in _LISTS:
        value = arguments.get(name)
        if isinstance(value, str):
            try:
                value = json.loads(value)
            except (ValueError, RecursionError):
                found = _boxes(str(value))
                if found:
                    return found
        if isinstance(value, list):
            items = [item for part in value if (item := _item(part))]
            # A list of what cannot be read is none that was emptied.
            return items if items or not value else None
    one = _item(dict(arguments))
    return [one] if one else None


def _item(value: object) -> Todo | None:
    if isinstance(value, str):
        return Todo(text=value.strip()) if value.strip() else None
    if not isinstance(value, dict):
        return None
    named = {plain(str(name)): inner for name, inner in value.items()}
    text, state = _first(named, _TEXTS), _first(named, _STATES)
    if not state and any(isinstance(named.get(name), bool) for name in _DONE):
        state = "completed" if any(named.get(name) is True for name in _DONE) else "pending"
    found = Todo(id=_first(named, _IDS), text=text.strip(), state=state)
    return found if found.text or (found.id and found.state) else None


def _boxes(text: str) -> list[Todo]:
    states = {
        "x": "completed",
        "X": "completed",
        " ": "pending",
        "": "pending",
        "-": "in_progress",
        "~": "in_progress",
    }
    return [
        Todo(text=box["text"].strip(), state=states.get(box["state"], box["state"]))
        for box in _BOX.finditer(text)
    ]


def _made_ids(step: Step, first: int, many: int) -> list[str]:
    """The ids of *many* new items: as the result says, else their places in the list, from *first* on."""
    found = _MADE.finditer(step.result[: _MADE_CHARS * many])
    said = list(dict.fromkeys(match["id"] or match["json"] for match in found))
    # What is said of one item may go on to others.
    said = said[:1] if many == 1 else said
    return said if len(said) == many else [str(first + n) for n in range(many)]


def _first(values: Mapping[str, object], names: Sequence[str]) -> str:
    return next(_texts(values, names), "")


def _texts(values: Mapping[str, object], names: Sequence[str]) -> Iterator[str]:
    for name in names:
        value = values.get(name)
        if isinstance(value, str) and value:
            yield value
        elif isinstance(value, int) and not isinstance(value, bool):
            yield str(value)
