"""
Messages as they were reported: odd, and all of them allowed.

`TALKS` has a brief and turns for each, `PREFILLS` what stands before and at the end of a request.
"""

from itertools import pairwise
from typing import Any

from tests.support.talks import Messages


def system(text: str, role: str = "system") -> dict[str, Any]:
    return {"role": role, "content": text}


def user(text: Any) -> dict[str, Any]:
    return {"role": "user", "content": text}


def asks(call_id: str, arguments: str = "{}", **members: Any) -> dict[str, Any]:
    function = {"name": "read", "arguments": arguments}
    return {
        "role": "assistant",
        **members,
        "tool_calls": [{"id": call_id, "type": "function", "function": function}],
    }


def result(call_id: str, content: Any, **members: Any) -> dict[str, Any]:
    return {"role": "tool", **members, "tool_call_id": call_id, "content": content}


def says(content: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content}


# For each case: the brief, then turns as they were reported.
GO = [user("Look at it.")]
TALKS = {
    "R01": ("null beside calls", GO, [asks("a7f", content=None), result("a7f", "17.5")]),
    "R03": ("an empty text beside calls", GO, [asks("1", content=""), result("1", "ok")]),
    "R04": ("an assistant with nothing to say", [user("a")], [says(""), user("b")]),
    "R06": (
        "a developer instead of a system",
        [system("Be brief.", "developer"), user("hi")],
        [says("ok"), user("b")],
    ),
    "R09": (
        "a system message in mid conversation",
        [system("A"), user("1"), system("There are these agents: one, two.")],
        [says("ok"), user("2"), system("Now there are three."), says("ok"), user("3")],
    ),
    "R11": ("two users in a row", [system("S"), user("a"), user("b")], [says("ok"), user("c")]),
    "R17": ("arguments that are half a JSON", GO, [asks("call_9", "{"), result("call_9", "e")]),
    "R18": (
        "a result as a list of parts",
        GO,
        [asks("c"), result("c", [{"type": "text", "text": '{"temp":20}'}])],
    ),
    "R25": (
        "one id for two calls",
        GO,
        [asks("functions.run:7"), result("functions.run:7", "1")] * 2,
    ),
    "R28": (
        "an empty id and no function",
        GO,
        [
            {"role": "assistant", "content": "..", "tool_calls": [{"id": "", "type": "function"}]},
            result("", "There is no such tool."),
        ],
    ),
    "R31": (
        "reasoning beside calls",
        GO,
        [asks("1", content="", reasoning_content="Four steps are left."), result("1", "ok")],
    ),
    "R56": ("a name on a result", GO, [asks("c", content=None), result("c", "ok", name="state_of")]),
}
PREFILLS = {
    "R12": ("an empty message to be continued", [user("x"), says("")]),
    "R14": ("two assistant messages at the end", [user("x"), says("a"), says("b")]),
    "R20": ("a message of parts to be continued", [user("x"), says([{"type": "text", "text": "It is"}])]),
}


def neighbours(messages: Messages) -> int:
    """How many pairs of users, or of assistants without calls, stand side by side."""
    return sum(
        a["role"] == b["role"] and a["role"] in ("user", "assistant") and not a.get("tool_calls")
        for a, b in pairwise(messages)
    )
