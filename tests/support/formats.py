"""
Write one conversation in all three formats.

Conversations are written as chat completions bodies, which are easily read; `signed` on an
assistant message seals its reasoning. Text of a user right after results stands beside them
where the format allows it.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from proxy.dialects.anthropic_messages import ANTHROPIC_MESSAGES
from proxy.dialects.base import Dialect
from proxy.dialects.chat_completions import CHAT_COMPLETIONS
from proxy.dialects.responses import RESPONSES
from tests.support import translated

Body = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """
    One of the three.

    Attributes:
        name: For parametrize ids.
        dialect: Ours, that reads it.
        path: Of its endpoint.
        field: Where its messages stand.
        write: From a chat body to a body of this format, which begins with that field.
    """

    name: str
    dialect: Dialect
    path: str
    field: str
    write: Callable[[Body], Body]

    def wire(self, body: Body) -> bytes:
        """The bytes of a chat body in this format."""
        return json.dumps(self.write(body), ensure_ascii=False, separators=(",", ":")).encode()

    def slices(self, body: bytes) -> list[str]:
        """The messages of a body of this format, each as it stands there."""
        text = body.decode()
        found, decoder = [], json.JSONDecoder()
        at = text.index("[", text.index(f'"{self.field}"')) + 1
        while True:
            while text[at] in " \t\r\n,":
                at += 1
            if text[at] == "]":
                return found
            _, end = decoder.raw_decode(text, at)
            found.append(text[at:end])
            at = end

    def as_chat(self, body: bytes) -> Body:
        """A body of this format as the chat body that says the same."""
        return translated.as_chat(self.path, json.loads(body))


def _chat(body: Body) -> Body:
    messages = [{k: v for k, v in message.items() if k != "signed"} for message in body["messages"]]
    return {"messages": messages} | {k: v for k, v in body.items() if k != "messages"}


def _responses(body: Body) -> Body:
    system, messages = _system(body)
    items = [item for message in messages for item in _items(message)]
    tools = [{"type": "function"} | tool["function"] for tool in body.get("tools", ())]
    made = {"input": items, "instructions": system, "tools": tools, "max_output_tokens": _limit(body)}
    return _present(made) | _others(body)


def _items(message: Body) -> Iterator[Body]:
    role, content = message["role"], message.get("content")
    if role == "tool":
        yield {"type": "function_call_output", "call_id": message["tool_call_id"], "output": content}
        return
    if message.get("reasoning_content"):
        summary = [{"type": "summary_text", "text": message["reasoning_content"]}]
        sealed = {"encrypted_content": message["signed"]} if message.get("signed") else {}
        yield {"type": "reasoning", "id": "rs_1", "summary": summary} | sealed
    if content and role == "assistant":
        parts = [{"type": "output_text", "text": content, "annotations": []}]
        yield {"type": "message", "role": "assistant", "content": parts}
    elif content:
        parts = [{"type": "input_text", "text": content}] if isinstance(content, str) else content
        written = [_input_part(part) for part in parts]
        yield {"type": "message", "role": "developer" if role == "system" else role, "content": written}
    for call in message.get("tool_calls", ()):
        yield {"type": "function_call", "call_id": call["id"]} | call["function"]


def _input_part(part: Body) -> Body:
    if part["type"] == "image_url":
        return {"type": "input_image", "image_url": part["image_url"]["url"]}
    return {"type": "input_text", "text": part["text"]}


def _messages(body: Body) -> Body:
    system, messages = _system(body)
    written: list[Body] = []
    for message in messages:
        role, blocks = message["role"], list(_blocks(message))
        spoken = "user" if role == "tool" else role
        beside = spoken == "user" and bool(written) and _has_results(written[-1])
        if beside:
            written[-1]["content"] += blocks
        else:
            written.append({"role": spoken, "content": blocks})
    tools = [
        {"name": f["name"], "description": f.get("description", ""), "input_schema": f["parameters"]}
        for f in (tool["function"] for tool in body.get("tools", ()))
    ]
    system_blocks = [{"type": "text", "text": system}] if system else None
    made = {"messages": written, "system": system_blocks, "tools": tools, "max_tokens": _limit(body) or 512}
    return _present(made) | _others(body)


def _has_results(message: Body) -> bool:
    return message["role"] == "user" and any(block["type"] == "tool_result" for block in message["content"])


def _blocks(message: Body) -> Iterator[Body]:
    content = message.get("content")
    if message["role"] == "tool":
        yield {"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": content}
        return
    if message.get("reasoning_content"):
        thinking = {"type": "thinking", "thinking": message["reasoning_content"]}
        yield thinking | {"signature": message.get("signed", "")}
    for part in (
        [{"type": "text", "text": content}] if content and isinstance(content, str) else content or ()
    ):
        if part["type"] == "image_url":
            head, _, data = part["image_url"]["url"].partition(",")
            source = {"type": "base64", "media_type": head[5:].split(";")[0], "data": data}
            yield {"type": "image", "source": source}
        else:
            yield {"type": "text", "text": part["text"]}
    for call in message.get("tool_calls", ()):
        function = call["function"]
        value = json.loads(function["arguments"])
        yield {"type": "tool_use", "id": call["id"], "name": function["name"], "input": value}


def _system(body: Body) -> tuple[str, list[Body]]:
    messages = body["messages"]
    if messages and messages[0]["role"] == "system":
        return messages[0]["content"], messages[1:]
    return "", messages


def _limit(body: Body) -> int | None:
    return body.get("max_tokens")


def _others(body: Body) -> Body:
    return {k: v for k, v in body.items() if k not in ("messages", "tools", "max_tokens", "stream_options")}


def _present(made: Body) -> Body:
    return {k: v for k, v in made.items() if v}


FORMATS = (
    Format(name="chat", dialect=CHAT_COMPLETIONS, path=translated.CHAT, field="messages", write=_chat),
    Format(name="responses", dialect=RESPONSES, path=translated.RESPONSES, field="input", write=_responses),
    Format(
        name="messages",
        dialect=ANTHROPIC_MESSAGES,
        path=translated.MESSAGES,
        field="messages",
        write=_messages,
    ),
)
