"""
Does an instruction inside the last tool message leave the prompt before it as it was?

Notes are asked for that way because then the server has nearly the whole prompt cached.
Whether it holds depends on the model's chat template, and llama.cpp renders it without
running the model.
"""

import json
from enum import StrEnum
from typing import Any

from proxy.discovery_answers import Ask, dict_of, parsed
from proxy.errors import ProxyError
from proxy.upstream import Headers

RESULT = "alpha bravo charlie delta"
INSTRUCTION = "Now write down what was done."

# A turn of an agent, as it is when notes are asked for.
REQUEST: dict[str, Any] = {
    "messages": [
        {"role": "system", "content": "You are a careful assistant that works with files."},
        {"role": "user", "content": "List the files in src and say what they are for."},
        {
            "role": "assistant",
            "content": "I will list them.",
            "tool_calls": [
                {
                    "id": "call_1",
                    "type": "function",
                    "function": {"name": "list_files", "arguments": '{"path": "src"}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": RESULT},
    ],
    "tools": [
        {
            "type": "function",
            "function": {
                "name": "list_files",
                "description": "List the files in a folder.",
                "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
            },
        }
    ],
}


class Prefix(StrEnum):
    """What a template does to the prompt before an instruction, in words for a person."""

    KEPT = "kept: asking for notes costs the server little more than the instruction's own tokens"
    CHANGED = (
        "NOT kept: this chat template renders what comes before differently, so each request for notes "
        "processes much of the prompt again"
    )
    INSTRUCTION_LOST = (
        "the instruction is LOST: this chat template does not show it, so notes asked for after a tool "
        "result will be of little use; try another template (--chat-template-file)"
    )
    RESULT_LOST = (
        "this chat template does not show tool results at all; the agent's tools will not work with it "
        "(try --jinja or another template)"
    )
    REFUSED = (
        "this chat template refuses a conversation with a tool call; the agent's tools will not work with "
        "it (try --jinja or another template)"
    )
    UNKNOWN = "not known: this server does not show how it renders a prompt"


async def check_prefix(ask: Ask, model: str, headers: Headers = ()) -> Prefix:
    """Render a turn with and without an instruction, and compare. Never raises."""
    before = dict(REQUEST, model=model)
    last = dict(before["messages"][-1])
    last["content"] += f"\n\n{INSTRUCTION}"
    after = dict(before, messages=[*before["messages"][:-1], last])
    prompts: list[str] = []
    for request in (before, after):
        try:
            answer = await ask("POST", "/apply-template", headers=headers, body=json.dumps(request).encode())
        except ProxyError:
            return Prefix.UNKNOWN
        prompt = dict_of(parsed(answer.body)).get("prompt")
        if answer.status in (401, 403, 404, 405, 501, 503):
            return Prefix.UNKNOWN
        if answer.status != 200:
            return Prefix.REFUSED
        if not isinstance(prompt, str):
            return Prefix.UNKNOWN
        prompts.append(prompt)
    return compare(*prompts)


def compare(before: str, after: str) -> Prefix:
    """What became of the prompt *before* the instruction came in."""
    end = before.rfind(RESULT)
    if end < 0:
        return Prefix.RESULT_LOST
    if INSTRUCTION not in after:
        return Prefix.INSTRUCTION_LOST
    return Prefix.KEPT if after.startswith(before[: end + len(RESULT)]) else Prefix.CHANGED
