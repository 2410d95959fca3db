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
from proxy.core.tools import Act, act_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Todo:
    """
    One item.

    Attributes:
        id: As its agent numbers it; empty where the list has no ids.
        text: Word for word.
        state: The agent's own word for it; empty where it has none.
    """

    id: str = ""
    text: str
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
# Calls that change single items, by the plain name of the tool or of its action.
_ADDS = frozenset({"taskcreate", "createtask", "addtasks", "addtodo", "add", "create"})
_CHANGES = frozenset({"taskupdate", "updatetask", "updatetasks", "update", "toggle", "complete", "done"})
_REMOVES = frozenset({"taskdelete", "deletetask", "removetask", "delete", "remove"})
_CLEARS = frozenset({"clear", "cleartodos"})
_READS = frozenset({"read", "list", "get", "view"})
# "- [x] done", "2. [ ] open", "[-] begun", "[in_progress] begun": lists that are one text.
_BOX = re.compile(
    r"^[ \t]{0,20}(?:[-*+] {1,4}|\d{1,4}[.)] {1,4})?\[(?P<state>[^\]\n]{0,20})\] {1,4}(?P<text>\S.*)$",
    re.MULTILINE,
)
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
    items: list[Todo] | None = None
    index = 0
    for step in read_steps(messages):
        if step.deed.act is not Act.TODO or step.outcome.status is Status.FAILED:
            continue
        changed = _after(items or [], step)
        if changed is not None:
            items, index = changed, step.message_index
    return None if items is None else Todos(items=tuple(items), message_index=index)


def holds_list(messages: Sequence[Message], tool_names: Sequence[str]) -> bool:
    """
    Whether a call of *messages* carries or shows a whole list.

    A call that changes a single item does not: without the list before it, it says nothing of the others.
    """
    return has_todo_tool(tool_names) and any(
        step.deed.act is Act.TODO
        and step.outcome.status is not Status.FAILED
        and not _changes_single(step)
        and _after([], step) is not None
        for step in read_steps(messages)
    )


def _after(items: list[Todo], step: Step) -> list[Todo] | None:
    """*items* after the call of *step*; None where it does not change them."""
    arguments = step.deed.arguments
    verbs, word = _verbs(step)
    given = _given(arguments)
    if verbs & _CLEARS:
        return []
    if verbs & _REMOVES:
        gone = {item.id for item in given} or {_first(arguments, _IDS)}
        return [item for item in items if item.id not in gone]
    if verbs & _ADDS:
        return items + [
            replace(item, id=item.id or _made_id(step, len(items) + n)) for n, item in enumerate(given, 1)
        ]
    if verbs & _CHANGES or arguments.get("merge") is True:
        return _updated(
            items, given or [Todo(id=_first(arguments, _IDS), text="")], toggles="toggle" in verbs
        )
    if word in _READS or not given:
        return _told(step)
    return given


def _verbs(step: Step) -> tuple[set[str], str]:
    """What the call does, by the plain names of its tool and of its action; and the action's alone."""
    arguments = step.deed.arguments
    action = arguments.get("action") or arguments.get("operation") or arguments.get("command")
    word = plain(action) if isinstance(action, str) else ""
    return {plain(step.deed.name.rsplit("__", 1)[-1]), word}, word


def _changes_single(step: Step) -> bool:
    verbs, _ = _verbs(step)
    return bool(verbs & (_ADDS | _CHANGES | _REMOVES)) or step.deed.arguments.get("merge") is True


def _told(step: Step) -> list[Todo] | None:
    """The list that a reading call was shown, in Claude Code's form `#1 [pending] text`, or as boxes."""
    numbered = re.findall(r"^#(\w{1,20})\.? \[(\w{1,30})\] (\S.*)$", step.result, re.MULTILINE)
    if numbered:
        return [Todo(id=number, text=text.strip(), state=state) for number, state, text in numbered]
    return _boxes(step.result) or None


def _updated(items: list[Todo], given: Sequence[Todo], *, toggles: bool) -> list[Todo]:
    changed = {item.id: item for item in items if item.id}
    for new in given:
        old = changed.get(new.id)
        if old is None:
            if new.text:
                changed[new.id or f"+{len(changed)}"] = new
            continue
        state = new.state or old.state
        if toggles and not new.state:
            state = "pending" if old.state == "completed" else "completed"
        changed[new.id] = Todo(id=new.id, text=new.text or old.text, state=state)
    # Claude Code deletes by a state.
    return [item for item in changed.values() if item.state not in ("deleted", "removed")]


def _given(arguments: Mapping[str, object]) -> list[Todo]:
    """The items that a call carries: a list, a text with boxes, or its own arguments as one item."""
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
            return [item for part in value if (item := _item(part))]
    one = _item(dict(arguments))
    return [one] if one else []


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


def _made_id(step: Step, ordinal: int) -> str:
    match = _MADE.search(step.result[:500])
    return (match["id"] or match["json"]) if match else str(ordinal)


def _first(values: Mapping[str, object], names: Sequence[str]) -> str:
    return next(_texts(values, names), "")


def _texts(values: Mapping[str, object], names: Sequence[str]) -> Iterator[str]:
    for name in names:
        value = values.get(name)
        if isinstance(value, str) and value:
            yield value
        elif isinstance(value, int) and not isinstance(value, bool):
            yield str(value)
