"""
Say what a scripted upstream answers, and put it on the wire.

An `Answer` is written in terms of what the model does; here it becomes the JSON object
or the events that a server of the given kind sends for it.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.support.gate import Gate

# Long enough that a text of a sentence comes in several events.
_PIECE_CHARS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """
    What comes back for one request.

    Attributes:
        text: What the model says.
        reasoning: What it thinks, as `reasoning_content`.
        calls: Tool calls as (name, arguments); arguments as an object, or as a string that
            is sent as it is.
        finish_reason: None for the one that fits: "length" where the limit cut the text.
        status: Other than 200, `body` is what is sent.
        body: Sent instead of anything computed: bytes as they are, an object as JSON.
        content_type: Of `body`, where it is bytes.
        headers: Added to the answer's own.
        before: Nothing is sent until this gate is open.
        midway: In a stream, what comes after the first piece of text waits for this gate;
            else the second half of the body does.
        usage: Put over the computed usage, key by key; None as a value removes the key.
    """

    text: str = ""
    reasoning: str = ""
    calls: tuple[tuple[str, Mapping[str, Any] | str], ...] = ()
    finish_reason: str | None = None
    status: int = 200
    body: bytes | Mapping[str, Any] | None = None
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()
    before: Gate | None = None
    midway: Gate | None = None
    usage: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """What the server counted for one answer, in tokens; `timings` is llama.cpp's alone."""

    prompt: int
    cached: int
    completion: int
    has_timings: bool

    def usage(self, changed: Mapping[str, Any]) -> dict[str, Any]:
        """The `usage` object."""
        usage: dict[str, Any] = {
            "prompt_tokens": self.prompt,
            "completion_tokens": self.completion,
            "total_tokens": self.prompt + self.completion,
            "prompt_tokens_details": {"cached_tokens": self.cached},
        }
        return {k: v for k, v in (usage | dict(changed)).items() if v is not None}

    def timings(self) -> dict[str, Any]:
        """The members that llama.cpp adds; empty for other kinds."""
        if not self.has_timings:
            return {}
        # One token a millisecond: deterministic, and plainly not measured.
        return {
            "timings": {
                "cache_n": self.cached,
                "prompt_n": self.prompt - self.cached,
                "prompt_ms": float(self.prompt - self.cached),
                "predicted_n": self.completion,
                "predicted_ms": float(self.completion),
            }
        }


def error(status: int, message: str, **members: Any) -> Answer:
    """An answer with an OpenAI error object: `error(404, "no such model", type="invalid_request_error")`."""
    return Answer(status=status, body={"error": {"message": message, "code": status} | members})


def whole(answer: Answer, numbers: Numbers, *, model: str, number: int) -> dict[str, Any]:
    """The JSON object for a request without `stream`."""
    message: dict[str, Any] = {"role": "assistant", "content": answer.text or None}
    if answer.reasoning:
        message["reasoning_content"] = answer.reasoning
    if answer.calls:
        message["tool_calls"] = [_call(i, call, number) for i, call in enumerate(answer.calls)]
    return {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion",
        "created": 1_700_000_000 + number,
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": _finish(answer)}],
        "usage": numbers.usage(answer.usage),
    } | numbers.timings()


def events(
    answer: Answer, numbers: Numbers, *, model: str, number: int, include_usage: bool
) -> Iterator[bytes]:
    """The server-sent events for a request with `stream`, each with its blank line."""
    for delta in _deltas(answer, number):
        yield _event(_chunk([{"index": 0, "delta": delta, "finish_reason": None}], model, number))
    last = _chunk([{"index": 0, "delta": {}, "finish_reason": _finish(answer)}], model, number)
    if include_usage:
        yield _event(last)
        last = _chunk([], model, number) | {"usage": numbers.usage(answer.usage)}
    yield _event(last | numbers.timings())
    yield b"data: [DONE]\n\n"


def _deltas(answer: Answer, number: int) -> Iterator[dict[str, Any]]:
    yield {"role": "assistant", "content": None}
    for piece in pieces(answer.reasoning):
        yield {"reasoning_content": piece}
    for piece in pieces(answer.text):
        yield {"content": piece}
    for i, call in enumerate(answer.calls):
        opened = _call(i, call, number)
        arguments = opened["function"]["arguments"]
        opened["function"]["arguments"] = ""
        yield {"tool_calls": [{"index": i} | opened]}
        for piece in pieces(arguments):
            yield {"tool_calls": [{"index": i, "function": {"arguments": piece}}]}


def _call(i: int, call: tuple[str, Mapping[str, Any] | str], number: int) -> dict[str, Any]:
    name, arguments = call
    function = {"name": name, "arguments": written(arguments)}
    return {"id": f"call_{number}_{i}", "type": "function", "function": function}


def written(arguments: Mapping[str, Any] | str) -> str:
    """A call's arguments as they are sent."""
    return arguments if isinstance(arguments, str) else json.dumps(dict(arguments))


def _finish(answer: Answer) -> str:
    return answer.finish_reason or ("tool_calls" if answer.calls else "stop")


def pieces(text: str) -> Iterator[str]:
    """*text* as it comes in events."""
    for start in range(0, len(text), _PIECE_CHARS):
        yield text[start : start + _PIECE_CHARS]


def _chunk(choices: list[dict[str, Any]], model: str, number: int) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion.chunk",
        "created": 1_700_000_000 + number,
        "model": model,
        "choices": choices,
    }


def _event(chunk: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"
