"""
Put an `Answer` on the wire as Anthropic's Messages API does, whole and in events.
"""

import json
from collections.abc import Iterator
from typing import Any

from tests.support.answers import Answer, Numbers, pieces, written


def whole(answer: Answer, numbers: Numbers, *, model: str, number: int) -> dict[str, Any]:
    """The message object for a request without `stream`."""
    reason = "tool_use" if answer.calls else "end_turn"
    usage = _prompt_usage(numbers) | {"output_tokens": numbers.completion} | dict(answer.usage)
    return _message(model, number) | {
        "content": list(_blocks(answer, number)),
        "stop_reason": "max_tokens" if answer.finish_reason == "length" else reason,
        "usage": {key: value for key, value in usage.items() if value is not None},
    }


def events(answer: Answer, numbers: Numbers, *, model: str, number: int) -> Iterator[bytes]:
    """
    The server-sent events for a request with `stream`.

    The prompt's size stands in the first one alone, as Anthropic had it from the start.
    """
    done = whole(answer, numbers, model=model, number=number)
    begun = _message(model, number) | {"usage": _prompt_usage(numbers) | {"output_tokens": 1}}
    yield _event({"type": "message_start", "message": begun})
    yield _event({"type": "ping"})
    for index, block in enumerate(done["content"]):
        field, kind = _DELTAS[block["type"]]
        text = json.dumps(block["input"]) if block["type"] == "tool_use" else block[_TEXTS[block["type"]]]
        empty = block | ({"input": {}} if block["type"] == "tool_use" else {_TEXTS[block["type"]]: ""})
        yield _event({"type": "content_block_start", "index": index, "content_block": empty})
        for piece in pieces(text):
            delta = {"type": kind, field: piece}
            yield _event({"type": "content_block_delta", "index": index, "delta": delta})
        if block["type"] == "thinking":
            delta = {"type": "signature_delta", "signature": block["signature"]}
            yield _event({"type": "content_block_delta", "index": index, "delta": delta})
        yield _event({"type": "content_block_stop", "index": index})
    delta = {"stop_reason": done["stop_reason"], "stop_sequence": None}
    yield _event({"type": "message_delta", "delta": delta, "usage": {"output_tokens": numbers.completion}})
    yield _event({"type": "message_stop"})


def too_long(prompt: int, window: int) -> dict[str, Any]:
    """How Anthropic says that a prompt does not fit."""
    message = f"prompt is too long: {prompt} tokens > {window} maximum"
    return {"type": "error", "error": {"type": "invalid_request_error", "message": message}}


_DELTAS = {
    "text": ("text", "text_delta"),
    "thinking": ("thinking", "thinking_delta"),
    "tool_use": ("partial_json", "input_json_delta"),
}
_TEXTS = {"text": "text", "thinking": "thinking"}


def _blocks(answer: Answer, number: int) -> Iterator[dict[str, Any]]:
    if answer.reasoning:
        yield {"type": "thinking", "thinking": answer.reasoning, "signature": f"signed-{number}"}
    if answer.text:
        yield {"type": "text", "text": answer.text}
    for i, (name, arguments) in enumerate(answer.calls):
        value = json.loads(written(arguments))
        yield {"type": "tool_use", "id": f"toolu_{number}_{i}", "name": name, "input": value}


def _prompt_usage(numbers: Numbers) -> dict[str, Any]:
    return {
        "input_tokens": numbers.prompt - numbers.cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": numbers.cached,
    }


def _message(model: str, number: int) -> dict[str, Any]:
    return {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {},
    }


def _event(value: dict[str, Any]) -> bytes:
    return f"event: {value['type']}\ndata: {json.dumps(value)}\n\n".encode()
