"""
Small histories for tests of what a compaction keeps: a brief, calls and results, and whoever speaks between.

Each adds to a list of wire messages; `until_compacted` goes on reading until the proxy compacts.
"""

import json
from collections.abc import Sequence
from typing import Any

from tests.support.answers import Answer
from tests.support.prompts import text_of
from tests.support.proxied import Proxied, Walked
from tests.support.scripted import ScriptedUpstream

NOTES_MARKER = "[From the harness, not from the user."
# Enough for a compaction after a few turns in a window of 4096.
PAGE = "the value of this row was read and kept as it stood\n" * 25
_MOST_STEPS = 40

Messages = list[dict[str, Any]]


def noting_upstream(*notes: str, window: int = 4096) -> ScriptedUpstream:
    """An upstream whose answers to requests for notes are *notes* in turn, the last one from then on."""

    def script(request: Any) -> Answer | None:
        if not upstream.is_notes(request):
            return None
        return Answer(text=notes[min(len(upstream.notes), len(notes)) - 1])

    upstream = ScriptedUpstream(window=window, script=script, notes_marker=NOTES_MARKER)
    return upstream


def call(messages: Messages, name: str, arguments: dict[str, Any], result: str) -> None:
    """The assistant calls a tool, and it answers."""
    call_id = f"call_{len(messages)}"
    function = {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)}
    messages += [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": call_id, "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": call_id, "content": result},
    ]


def say(messages: Messages, text: str) -> None:
    """The assistant says that it is done, and the user says *text*."""
    messages += [{"role": "assistant", "content": "That is done."}, {"role": "user", "content": text}]


async def until_compacted(proxy: Proxied, messages: Messages, tools: Sequence[str] = ()) -> Walked:
    """Read page after page until the proxy compacts; the request that it did so for."""
    for _ in range(_MOST_STEPS):
        call(messages, "read", {"path": f"pages/p{len(messages)}.txt"}, PAGE)
        # Escaped, so that half a character can be sent as well.
        walk = await proxy.send(json.dumps(body(messages, tools)).encode())
        if walk.outcome == "compacted":
            return walk
    raise AssertionError("nothing was compacted")


def body(messages: Messages, tools: Sequence[str] = ()) -> dict[str, Any]:
    """A request with *messages* and tools of those names."""
    offered = [{"type": "function", "function": {"name": name, "parameters": {}}} for name in tools]
    return {"messages": list(messages), "model": "m"} | ({"tools": offered} if offered else {})


def block_of(walk: Walked) -> str:
    """The block as it stands in the brief's last user message, to the message's end."""
    brief = walk.messages[: next(i for i, m in enumerate(walk.messages) if m["role"] == "assistant")]
    text = text_of([m for m in brief if m["role"] == "user"][-1])
    return text[text.index("<record-") :]


def notes_asked(upstream: ScriptedUpstream) -> list[str]:
    """The instruction of each request for notes, in order."""
    last = [text_of(request.messages[-1]) for request in upstream.notes]
    return [text[text.index(NOTES_MARKER) :] for text in last]
