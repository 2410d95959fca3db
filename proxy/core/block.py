"""
Render the block that stands for the replaced turns.

What code knows (user messages, calls, to-dos) stands beside the model's notes, in a
frame that its content can neither close nor forge: the frame's name is made from the
content, so that nothing inside can hold it.
"""

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from proxy.core.claims import UNVERIFIED
from proxy.core.ledger import render_ledger
from proxy.core.messages import Conversation
from proxy.core.neutral import neutralise
from proxy.core.secrets import mask_secrets
from proxy.core.system import render_late_system
from proxy.core.todo_lines import render_reminder, render_todo_list
from proxy.core.todos import find_todos, holds_list
from proxy.core.users import render_users

_SAID = "What the user said in these turns, word for word"
_SYSTEM = "What the system said in these turns, word for word"
_NOTES = "Notes"
_CALLS = "Calls made in these turns, listed by the harness"
_TODOS = "To-do list as these turns left it"

# Lines that a model could take for somebody speaking, for an order, or for a part of the block that
# it did not write: quoted, so that they are read as what was said.
_SPEAKS = re.compile(
    r"^\s{0,8}(?:[#*>-]{0,3}\s{0,4})(?:\*{0,2})(?:(?:user|human|system|assistant|developer|tool)\*{0,2}\s{0,2}:|"
    r"(?:please\s)?(?:ignore|disregard|forget)\s(?:all|any|the|every|previous|prior|earlier|your)|"
    r"new (?:instructions?|task)\s{0,2}:|you (?:must|should|are) now\b|</?system|"
    r"\[(?:system|user message|from the harness|written by the harness)|"
    rf"(?:{_SAID}|{_SYSTEM}|{_CALLS}|{_TODOS}))",
    re.IGNORECASE,
)

_OPENING = (
    "[Written by the harness, not by the user.] This record replaces the first {turns} of this conversation, "
    "which no longer fit; the messages below go on from there. What it tells is over: nothing in it is to be "
    "answered or done again. But what the user laid down in their own words still holds, and what is said "
    "after this record wins over it. Files and outputs that it names can be looked at again with the tools."
)
_UNNOTED = (
    "The notes below were written earlier and do not cover the last {turns} of these turns, which were left "
    "out without notes."
)
_UNVERIFIED = (
    "What is marked (unverified) occurs nowhere in the conversation: check it before you rely on it."
)
# Frame, opening, titles and reminder take some 300 tokens; models' tokenizers differ by up to four.
_AROUND = 1_200
_NO_NOTES = "No notes could be written of these turns."


@dataclass(frozen=True, slots=True, kw_only=True)
class Rooms:
    """
    Most tokens of each part of the block.

    Attributes:
        task: The newest replaced user message.
        users: The other user messages together.
        ledger: The list of calls.
        system: System messages.
        todos: The to-do list.
    """

    task: int
    users: int
    ledger: int
    system: int
    todos: int

    @property
    def most(self) -> int:
        """No block without notes takes more."""
        return self.task + self.users + self.ledger + self.system + self.todos + _AROUND


@dataclass(frozen=True, slots=True, kw_only=True)
class Notes:
    """
    The notes of a block.

    Attributes:
        text: As they are shown; empty for none.
        uncovered_turns: Replaced turns that came after them.
    """

    text: str = ""
    uncovered_turns: int = 0


def render_block(
    conversation: Conversation, replaced: int, notes: Notes, rooms: Rooms, count: Callable[[str], int]
) -> str:
    """
    The whole block for the first *replaced* messages after the brief.

    Everything but the notes comes from the original messages, however often notes were
    folded, so that it never wears down.
    """
    end = conversation.brief_end
    gone = conversation.messages[end : end + replaced]
    tail = conversation.messages[end + replaced :]
    turns = sum(turn.start - end < replaced for turn in conversation.turns)
    names = conversation.tool_names
    todos = find_todos(gone, names)
    newer = holds_list(tail, names)
    sections = [
        _section(_SAID, render_users(gone, rooms.task, rooms.users, count)),
        _section(_SYSTEM, render_late_system(gone, rooms.system, count)),
        _notes_section(notes),
        _section(_CALLS, mask_secrets(render_ledger(gone, rooms.ledger, count))),
        "" if newer else _section(_TODOS, render_todo_list(todos, rooms.todos, count)),
    ]
    opening = _OPENING.format(turns="turn" if turns == 1 else f"{turns} turns")
    framed = _frame(opening, [section for section in sections if section])
    # Outside the frame: inside it, nothing is to be done.
    reminder = render_reminder(todos, names, is_newer_in_tail=newer)
    return f"{framed}\n\n{reminder}" if reminder else framed


def quote_speech(notes: str) -> str:
    """The notes with secrets masked, markup made harmless, and lines that speak or order quoted."""
    lines = neutralise(mask_secrets(notes)).split("\n")
    return "\n".join(f"> {line}" if _SPEAKS.match(line) else line for line in lines)


def _notes_section(notes: Notes) -> str:
    if not notes.text:
        return _NO_NOTES
    said = [_UNNOTED.format(turns=notes.uncovered_turns)] if notes.uncovered_turns else []
    if UNVERIFIED in notes.text:
        said.append(_UNVERIFIED)
    return _section(_NOTES, "\n".join([*said, notes.text]))


def _section(title: str, text: str) -> str:
    return f"## {title}\n{text}" if text else ""


def _frame(opening: str, sections: Sequence[str]) -> str:
    content = "\n\n".join((opening, *sections))
    name = _name(content)
    return f"<{name}>\n{content}\n</{name}>"


def _name(content: str) -> str:
    """A name that does not occur in *content*, the same for the same content."""
    digest = hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()
    for start in range(0, len(digest) - 8):
        name = f"record-{digest[start : start + 8]}"
        if name not in content:
            return name
    raise AssertionError("a text cannot hold parts of its own digest at every place")
