"""
Grow sessions of an agent with tools, the same one for the same name.

Every text carries a mark of its session and turn, so that a test can tell from any body
whose words are in it; the scripted model's notes name the marks that it was shown.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from proxy.config import NOTES_INSTRUCTION
from tests.support.answers import Answer
from tests.support.recorded import Recorded
from tests.support.scripted import ScriptedUpstream

MARK = re.compile(r"mark-[a-z]+-\d+")
# What every notes instruction begins with.
NOTES_MARKER = NOTES_INSTRUCTION[:40]


def _tool(name: str, *parameters: str) -> dict[str, Any]:
    schema = {"type": "object", "properties": {p: {"type": "string"} for p in parameters}}
    function = {"name": name, "description": f"{name}, as usual", "parameters": schema}
    return {"type": "function", "function": function}


TOOLS = [_tool("read_file", "path"), _tool("run_command", "command"), _tool("write_file", "path", "content")]
SYSTEM = "You are a careful coding agent. Work with the tools, one small step after the other."


@dataclass(slots=True, kw_only=True)
class AgentSession:
    """
    A history that grows by one turn at a time.

    Attributes:
        name: Lower-case letters; stands in every mark.
        task: What the user asked for; several sessions may share it.
        has_tools: Whether calls and results are real ones, or plain text as with agents without tools.
        result_words: How long a result is.
        messages: The history so far; ends as a request would.
        members: Further members of each body.
    """

    name: str
    task: str = "Port the shop to the new tax rules. Never touch the folder legacy."
    has_tools: bool = True
    result_words: int = 60
    messages: list[dict[str, Any]] = field(default_factory=list)
    members: dict[str, Any] = field(default_factory=dict)
    turns: int = 0

    def __post_init__(self) -> None:
        if not self.messages:
            self.messages = [
                {"role": "system", "content": SYSTEM},
                {"role": "user", "content": self.task},
            ]

    def body(self, **members: Any) -> dict[str, Any]:
        """The request for the next turn."""
        body: dict[str, Any] = {"messages": list(self.messages), "model": "scripted"}
        if self.has_tools:
            body["tools"] = TOOLS
        return body | self.members | members

    def step(self, turns: int = 1) -> "AgentSession":
        """The model answered and its calls were carried out, so many times."""
        for _ in range(turns):
            self.messages += self._turn(self.turns)
            self.turns += 1
        return self

    def fork(self, name: str, *, keep: int | None = None) -> "AgentSession":
        """Another session with the first *keep* messages of this one (all where None)."""
        kept = self.messages if keep is None else self.messages[:keep]
        return AgentSession(
            name=name,
            task=self.task,
            has_tools=self.has_tools,
            result_words=self.result_words,
            messages=list(kept),
            members=dict(self.members),
            turns=self.turns,
        )

    def _turn(self, number: int) -> list[dict[str, Any]]:
        mark = f"mark-{self.name}-{number}"
        name, arguments = _CALLS[number % len(_CALLS)](self.name, number)
        result = f"{mark} " + " ".join(
            _WORDS[(number * 7 + i * i) % len(_WORDS)] for i in range(self.result_words)
        )
        said = f"Step {number} ({mark}): I look at the next part."
        if not self.has_tools:
            return [
                {"role": "assistant", "content": f"{said}\n{name} {json.dumps(arguments)}"},
                {"role": "user", "content": f"Observation:\n{result}"},
            ]
        call_id = f"call_{self.name}_{number}"
        call = {
            "id": call_id,
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(arguments)},
        }
        return [
            {"role": "assistant", "content": said, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call_id, "content": result},
        ]


_CALLS: tuple[Callable[[str, int], tuple[str, dict[str, str]]], ...] = (
    lambda name, i: ("read_file", {"path": f"src/{name}/part{i}.py"}),
    lambda name, i: ("run_command", {"command": f"pytest tests/{name}/test_part{i}.py -q"}),
    lambda name, i: ("write_file", {"path": f"src/{name}/part{i}.py", "content": f"RATE = {i}\n"}),
)
_WORDS = [
    "tax", "rate", "table", "order", "line", "total", "sum", "customer", "address", "invoice", "date",
    "round", "half", "even", "country", "export", "import", "check", "value", "test", "field", "column",
    "index", "query", "limit", "offset", "store", "cart", "price", "net", "gross"
]  # fmt: skip


def marks(body: bytes | str) -> set[str]:
    """Every mark in a text."""
    return set(MARK.findall(body.decode() if isinstance(body, bytes) else body))


def names(body: bytes | str) -> set[str]:
    """The sessions whose marks are in a text."""
    return {mark.split("-")[1] for mark in marks(body)}


def naming_marks(upstream: ScriptedUpstream) -> Callable[[Recorded], Answer | None]:
    """A model whose notes name the marks that it was shown, in order: the newest thirty."""

    def script(request: Recorded) -> Answer | None:
        if not upstream.is_notes(request):
            return None
        seen = list(dict.fromkeys(MARK.findall(json.dumps(request.messages))))
        return Answer(text="The agent went through these, one after the other: " + ", ".join(seen[-30:]))

    return script


def remembering_upstream(**members: Any) -> ScriptedUpstream:
    """A scripted upstream with such a model, for sessions with and without tools."""
    upstream = ScriptedUpstream(notes_marker=NOTES_MARKER, **members)
    upstream.script = naming_marks(upstream)
    return upstream
