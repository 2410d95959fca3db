"""
The conversations that every dialect is held to, as chat completions messages.

Each has a row of its own because it broke something once, somewhere: parallel calls, ids that
come twice, a user who speaks beside results, reasoning that may not be parted from its call.
"""

import json
from typing import Any

import pytest

from tests.support.formats import FORMATS, Format

Messages = list[dict[str, Any]]

SYSTEM = {"role": "system", "content": "You are careful; «ünïcode» stays as it is."}
TASK = {"role": "user", "content": "Port the shop. Never touch the folder legacy."}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
TOOLS = [
    {
        "type": "function",
        "function": {"name": "read", "parameters": {"type": "object", "properties": {"path": {}}}},
    }
]


def calls(*ids: str, said: str = "", **members: Any) -> dict[str, Any]:
    """The assistant calls `read` once for each id."""
    made = [
        {
            "id": i,
            "type": "function",
            "function": {"name": "read", "arguments": json.dumps({"path": f"{i}.py"})},
        }
        for i in ids
    ]
    return {"role": "assistant", "content": said, "tool_calls": made} | members


def result(call_id: str, text: str = "") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": text or f"the file of {call_id}: x = 1"}


def says(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def loop(turns: int) -> Messages:
    """A call and its result, so many times."""
    return [m for i in range(turns) for m in (calls(f"c{i}", said=f"Step {i}."), result(f"c{i}"))]


TABLE: dict[str, Messages] = {
    "a tool loop": [SYSTEM, TASK, *loop(4)],
    "parallel calls": [TASK, calls("a", "b", "c"), result("a"), result("b"), result("c"), *loop(2)],
    "parallel results swapped": [TASK, calls("a", "b"), result("b"), result("a"), *loop(2)],
    "an id twice": [TASK, calls("x"), result("x", "first"), calls("x"), result("x", "second"), *loop(1)],
    "reasoning before its call": [
        TASK,
        calls("a", reasoning_content="The rate is in a.py.", signed="c2ln"),
        result("a"),
        calls("b", said="Now b.", reasoning_content="And in b.py.", signed="c2ln"),
        result("b"),
        *loop(1),
    ],
    "the user speaks beside a result": [TASK, calls("a"), result("a"), user("Use half-even."), *loop(2)],
    "the user speaks between turns": [TASK, *loop(2), says("Done."), user("And the tests?"), *loop(1)],
    "no tools at all": [SYSTEM, TASK, says("read a"), user("Observation: 1"), says("read b"), user("Two")],
    "a system message among the turns": [
        TASK,
        *loop(1),
        says("Done."),
        {"role": "system", "content": "Mode: review"},
        user("Go on."),
        *loop(1),
    ],
    "an image in the brief": [
        SYSTEM,
        {"role": "user", "content": [{"type": "text", "text": "What is it?"}, IMAGE]},
        *loop(2),
    ],
    "two users in the brief": [user("You work here: /src"), TASK, *loop(2)],
    "no user in the brief": [SYSTEM, *loop(3)],
    "a prefill": [TASK, *loop(2), says("The answer is")],
}

formats = pytest.mark.parametrize("format_", [pytest.param(f, id=f.name) for f in FORMATS])
conversations = pytest.mark.parametrize("messages", [pytest.param(m, id=name) for name, m in TABLE.items()])


def body_of(messages: Messages, **members: Any) -> dict[str, Any]:
    """The request with *messages*."""
    return {"messages": messages, "model": "m", "tools": TOOLS} | members


def others(format_: Format, body: bytes) -> dict[str, Any]:
    """Every field but the messages."""
    return {key: value for key, value in json.loads(body).items() if key != format_.field}
