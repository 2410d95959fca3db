"""
Put an `Answer` on the wire as the Responses API does, whole and in events.
"""

import json
from collections.abc import Iterator
from typing import Any

from tests.support.answers import Answer, Numbers, pieces, written


def usage(numbers: Numbers) -> dict[str, Any]:
    """The `usage` object."""
    return {
        "input_tokens": numbers.prompt,
        "input_tokens_details": {"cached_tokens": numbers.cached},
        "output_tokens": numbers.completion,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": numbers.prompt + numbers.completion,
    }


def whole(
    answer: Answer, numbers: Numbers, *, model: str, number: int, body: dict[str, Any]
) -> dict[str, Any]:
    """The response object for a request without `stream`; like OpenAI it repeats what was asked."""
    is_cut = answer.finish_reason == "length"
    done = _response(model, number, body) | {
        "status": "incomplete" if is_cut else "completed",
        "output": [item for item in _items(answer, number) if item is not None],
        "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
    }
    return done | {"usage": {k: v for k, v in (usage(numbers) | dict(answer.usage)).items() if v is not None}}


def events(
    answer: Answer, numbers: Numbers, *, model: str, number: int, body: dict[str, Any]
) -> Iterator[bytes]:
    """The server-sent events for a request with `stream`, each with its blank line."""
    begun = _response(model, number, body)
    end = whole(answer, numbers, model=model, number=number, body=body)
    said = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
    ]
    for index, item in enumerate(end["output"]):
        said += _item_events(index, item)
    said.append({"type": f"response.{end['status']}", "response": end})
    for sequence, event in enumerate(said):
        data = json.dumps(event | {"sequence_number": sequence})
        yield f"event: {event['type']}\ndata: {data}\n\n".encode()


def _item_events(index: int, item: dict[str, Any]) -> list[dict[str, Any]]:
    at = {"output_index": index, "item_id": item["id"]}
    empty = item | {"status": "in_progress"}
    middle: list[dict[str, Any]] = []
    if item["type"] == "message":
        part = item["content"][0]
        empty["content"] = []
        at["content_index"] = 0
        middle.append({"type": "response.content_part.added", "part": part | {"text": ""}} | at)
        delta = {"type": "response.output_text.delta", "logprobs": []} | at
        middle += [delta | {"delta": piece} for piece in pieces(part["text"])]
        middle.append({"type": "response.output_text.done", "text": part["text"], "logprobs": []} | at)
        middle.append({"type": "response.content_part.done", "part": part} | at)
    elif item["type"] == "function_call":
        empty["arguments"] = ""
        delta = {"type": "response.function_call_arguments.delta"} | at
        middle += [delta | {"delta": piece} for piece in pieces(item["arguments"])]
        done = {"type": "response.function_call_arguments.done", "name": item["name"]}
        middle.append(done | {"arguments": item["arguments"]} | at)
    return [
        {"type": "response.output_item.added", "output_index": index, "item": empty},
        *middle,
        {"type": "response.output_item.done", "output_index": index, "item": item},
    ]


def _items(answer: Answer, number: int) -> Iterator[dict[str, Any] | None]:
    if answer.reasoning:
        summary = [{"type": "summary_text", "text": answer.reasoning}]
        yield {"type": "reasoning", "id": f"rs_{number}", "summary": summary, "status": "completed"}
    if answer.text:
        part = {"type": "output_text", "text": answer.text, "annotations": [], "logprobs": []}
        message = {"type": "message", "id": f"msg_{number}", "status": "completed", "role": "assistant"}
        yield message | {"content": [part]}
    for i, (name, arguments) in enumerate(answer.calls):
        call = {"type": "function_call", "id": f"fc_{number}_{i}", "call_id": f"call_{number}_{i}"}
        yield call | {"name": name, "arguments": written(arguments), "status": "completed"}


def _response(model: str, number: int, body: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": 1_700_000_000 + number,
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "instructions": body.get("instructions"),
        "metadata": {},
        "model": model,
        "output": [],
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": body.get("tool_choice") or "auto",
        "tools": body.get("tools") or [],
        "top_p": 1.0,
        "usage": None,
    }
