"""
Play a coding agent's session that holds canaries of every kind, as the agent would send it.

A canary is something that must not be lost: a rule, a file that was read, a command and how
it failed. All of them but the newest user message are planted before the first fold, so that
each later fold makes them older. Between folds the agent reads on, each time another file.
"""

import json
from dataclasses import dataclass, field
from typing import Any

_TOOLS = ("read", "edit", "write", "bash", "grep", "webfetch", "todowrite", "todoread")
_LINE = "row {n:04d}: the importer keeps the field as it came and writes a note beside it\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Canary:
    """
    Something to be found again.

    Attributes:
        kind: Row of the table.
        marks: All of them must stand in the block, in one line where `in_line`, else anywhere.
        in_line: Whether they say something only together.
    """

    kind: str
    marks: tuple[str, ...]
    in_line: bool = False

    def is_in(self, text: str) -> bool:
        """Whether *text* still says it."""
        places = text.split("\n") if self.in_line else [text]
        return any(all(mark in place for mark in self.marks) for place in places)


@dataclass(slots=True)
class WorkSession:
    """
    The history of a client that never learns of a compaction.

    Attributes:
        page_lines: How much each file read brings.
        messages: Everything so far.
        canaries: What was planted.
    """

    page_lines: int
    messages: list[dict[str, Any]] = field(default_factory=list)
    canaries: list[Canary] = field(default_factory=list)
    _calls: int = 0
    _pages: int = 0

    def body(self) -> dict[str, Any]:
        """The request for the next answer."""
        tools = [
            {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}
            for name in _TOOLS
        ]
        return {"messages": list(self.messages), "model": "scripted", "tools": tools}

    def begin(self) -> None:
        """The brief."""
        self._plant("rule in the brief", "Never touch the folder vault-7731.")
        self.messages += [
            {"role": "system", "content": "You are a coding agent."},
            {"role": "user", "content": "Port the importer. Never touch the folder vault-7731."},
        ]

    def plant(self) -> None:
        """Every other canary that is planted once, in the order in which an agent would meet them."""
        self._todos()
        for n in range(3):
            path = f"src/module_{41 + n}/reader_{n}.py"
            self._plant("file read", f"reader_{n}.py", f"lines {100 + n}-{180 + n}", in_line=True)
            self._call("read", {"filePath": path, "offset": 100 + n, "limit": 81}, "text of it")
            rule = f"Use the prefix zx{n}9 in names, never another one."
            self._plant("rule in a middle user message", rule)
            self._say(rule)
        for n in range(3):
            self._plant("file edited", f"src/writer_{n}.py", "edited", in_line=True)
            edit = {"filePath": f"src/writer_{n}.py", "oldString": "a", "newString": "b"}
            self._call("edit", edit, "Edit applied successfully.")
            command, error = f"make check-{n}", f"ERROR: target check-{n} needs libfoo-{n}7"
            self._plant("command and its error", command, error, in_line=True)
            self._call("bash", {"command": command}, f"{error}\n\nExit code: 2")
        self._plant("search", "legacy_parse_93", in_line=True)
        self._call("grep", {"pattern": "legacy_parse_93", "path": "src"}, "src/a.py:1: legacy_parse_93")
        self._plant("page fetched", "https://docs.example/importer/4417", in_line=True)
        self._call("webfetch", {"url": "https://docs.example/importer/4417"}, "the page")
        for job in ("bash_5c1", "bash_9e4"):
            self._plant("id of an open job", job, in_line=True)
            serve = {"command": f"serve --name {job[-3:]}", "run_in_background": True}
            self._call("bash", serve, f"Command running in background with ID: {job}")
        for n in range(2):
            order = f"Mode {n}: answers go out in plain text from here on."
            self._plant("late system message", order)
            self.messages.append({"role": "system", "content": order})
            self._read_on()
        for n in range(2):
            said = f"I decided to keep table t_{n}83 as a view, since the importer reads it twice."
            self._plant("decision only spoken", f"t_{n}83")
            self._call("read", {"filePath": f"schema/t_{n}.sql"}, "text of it", said=said)

    def go_on(self, fold: int) -> Canary:
        """What the user asks for before the next fold; the canary in it counts for that fold alone."""
        rule = f"For part {fold}, keep the column order c{fold}51."
        self._say(f"Now part {fold} of the importer. {rule} Then go on as before.")
        return Canary(kind="rule in the newest user message", marks=(rule,))

    def step(self) -> None:
        """One more file is read."""
        self._read_on()

    def _todos(self) -> None:
        states = ("completed", "completed", "in_progress", "pending", "pending")
        todos = [{"content": f"port part {n} of q{n}77", "status": s} for n, s in enumerate(states)]
        for todo in todos:
            self._plant("to-do item and its state", f"[{todo['status']}] {todo['content']}", in_line=True)
        self._call("todowrite", {"todos": todos}, "Todos updated")

    def _read_on(self) -> None:
        self._pages += 1
        lines = "".join(_LINE.format(n=n) for n in range(self.page_lines))
        self._call("read", {"filePath": f"data/part_{self._pages}.csv"}, lines)

    def _plant(self, kind: str, *marks: str, in_line: bool = False) -> None:
        self.canaries.append(Canary(kind=kind, marks=marks, in_line=in_line))

    def _say(self, text: str) -> None:
        self.messages += [
            {"role": "assistant", "content": "That is done; what next?"},
            {"role": "user", "content": text},
        ]

    def _call(self, name: str, arguments: dict[str, Any], result: str, said: str = "") -> None:
        self._calls += 1
        call_id = f"call_{self._calls}"
        function = {"name": name, "arguments": json.dumps(arguments)}
        self.messages += [
            {
                "role": "assistant",
                "content": said or None,
                "tool_calls": [{"id": call_id, "type": "function", "function": function}],
            },
            {"role": "tool", "tool_call_id": call_id, "content": result},
        ]
