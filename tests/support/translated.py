"""
Read a Responses or Messages body as the chat completions body that says the same.

So that a scripted upstream counts, caches and refuses all three formats by one set of rules.
"""

import json
from collections.abc import Iterator
from typing import Any

CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"


def format_of(path: str) -> str:
    """Which of the three *path* asks for a completion in; empty for none."""
    bare = "/" + path.partition("?")[0].strip("/")
    found = bare if bare.startswith("/v1") else f"/v1{bare}"
    return found if found in (CHAT, RESPONSES, MESSAGES) else ""


def as_chat(path: str, body: Any) -> dict[str, Any]:
    """The chat body of any request to *path*, or to what counts below it; empty for nonsense."""
    if not isinstance(body, dict):
        return {}
    if "/messages" in path:
        messages, limit = list(_of_messages(body)), body.get("max_tokens")
    elif "/responses" in path:
        messages, limit = list(_of_responses(body)), body.get("max_output_tokens")
    else:
        return body
    choice = body.get("tool_choice")
    return {
        "messages": messages,
        "tools": body.get("tools"),
        "tool_choice": choice.get("type") if isinstance(choice, dict) else choice,
        "max_tokens": limit,
        "model": body.get("model"),
        "stream": body.get("stream"),
    }


def _of_messages(body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if body.get("system"):
        yield {"role": "system", "content": _text(body["system"])}
    for message in body.get("messages") or []:
        content = message.get("content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
        results = [block for block in blocks if block["type"] == "tool_result"]
        for block in results:
            yield {"role": "tool", "tool_call_id": block["tool_use_id"], "content": _text(block["content"])}
        said = [block for block in blocks if block["type"] not in ("tool_result", "tool_use", "thinking")]
        if message["role"] != "assistant":
            if said:
                yield {"role": message["role"], "content": _text(said)}
            continue
        calls = [_call(b["id"], b["name"], json.dumps(b["input"])) for b in blocks if b["type"] == "tool_use"]
        thought = "".join(block["thinking"] for block in blocks if block["type"] == "thinking")
        yield {"role": "assistant", "content": _text(said), "reasoning_content": thought, "tool_calls": calls}


def _of_responses(body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if body.get("instructions"):
        yield {"role": "system", "content": body["instructions"]}
    items = body.get("input")
    output: dict[str, Any] = {}
    for item in [{"role": "user", "content": items}] if isinstance(items, str) else items or []:
        kind = item.get("type") or "message"
        is_answer = kind.endswith("_output")
        if is_answer or (kind == "message" and item["role"] != "assistant"):
            if output:
                yield output
            output = {}
            if is_answer:
                yield {"role": "tool", "tool_call_id": item["call_id"], "content": _text(item["output"])}
            else:
                yield {"role": item["role"], "content": _text(item["content"])}
            continue
        output = output or {"role": "assistant", "content": "", "reasoning_content": "", "tool_calls": []}
        if kind == "message":
            output["content"] += _text(item["content"])
        elif kind == "reasoning":
            output["reasoning_content"] += _text(item.get("summary")) + item.get("encrypted_content", "")
        elif kind.endswith("_call"):
            arguments = item.get("arguments", item.get("input", ""))
            output["tool_calls"].append(_call(item.get("call_id"), item.get("name"), arguments))
        else:
            output["content"] += json.dumps(item)
    if output:
        yield output


def _call(call_id: Any, name: Any, arguments: Any) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(
        part["text"] if isinstance(part, dict) and "text" in part else json.dumps(part)
        for part in content or []
    )
