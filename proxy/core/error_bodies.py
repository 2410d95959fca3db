"""
What does the upstream complain of in this answer?

Finds the error inside a body, whatever its form: JSON objects, errors as a string,
errors inside errors, events of a stream behind a 200, plain text. What the words mean
is not decided here. Only what the server itself says is read: neither the
model's text nor an echo of the request is taken for a complaint.
"""

import json
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

# Errors are small; what is not is an echo of the request, or the model's own output.
MOST_BODY_BYTES = 65_536
MOST_TEXT_CHARS = 4_000
MOST_DEPTH = 6

# Fields that hold what the server says. "input", which validation errors carry beside
# these, is an echo of the request.
_SAYING = ("error", "message", "msg", "detail", "code", "type", "error_type", "metadata", "raw", "cause")
# pydantic's list of faults as text: it quotes the request.
_ECHOES = ("[{'", '[{"')


@dataclass(frozen=True, slots=True, kw_only=True)
class Complaint:
    """
    One error as the upstream put it.

    Attributes:
        text: Every word of it, a line each: messages, codes, types.
        codes: Numbers given as its code, such as an HTTP status inside a 200.
        window: `n_ctx`, where it says so in a field of its own.
        prompt: `n_prompt_tokens`, likewise.
    """

    text: str
    codes: frozenset[int] = frozenset()
    window: int | None = None
    prompt: int | None = None


def find_complaints(status: int, body: bytes) -> Iterator[Complaint]:
    """
    The errors in *body*, in order; nothing where there is none.

    Never raises. A body beyond 64 KiB is read only so far.
    """
    text = body[:MOST_BODY_BYTES].decode("utf-8", "replace").lstrip("\ufeff").strip()
    if not text:
        return
    if _is_stream(text):
        errors = _errors_of_stream(text)
    elif status >= 400:
        errors = [_parsed(text)]
    else:
        errors = _errors_of(_json(text))
    for error in errors:
        complaint = _read(error)
        if complaint.text:
            yield complaint


def _json(text: str) -> Any:
    """The object, list or string that *text* is as JSON; None for anything else."""
    if not text.startswith(("{", "[", '"')):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _errors_of(value: Any) -> list[Any]:
    """What is an error in the JSON *value* of an answer that did not fail as such."""
    if not isinstance(value, dict):
        return []
    if value.get("error"):
        return [value["error"]]
    if value.get("type") == "error" or value.get("object") == "error":
        return [value]
    # The Responses API ends a stream with the failed response.
    response = value.get("response")
    if isinstance(response, dict) and response.get("error"):
        return [response["error"]]
    return []


def _is_stream(text: str) -> bool:
    return text.startswith(("data:", "event:", "error:", "id:", "retry:", ":"))


def _errors_of_stream(text: str) -> list[Any]:
    """Errors among server-sent events, the old `error:` field of llama.cpp included."""
    errors: list[Any] = []
    for event in text.replace("\r\n", "\n").replace("\r", "\n").split("\n\n"):
        lines = [line.partition(":") for line in event.split("\n")]
        fields = [(field, value.removeprefix(" ")) for field, _, value in lines]
        errors += [_parsed(value) for field, value in fields if field == "error"]
        data = "\n".join(value for field, value in fields if field == "data").strip()
        names = [value.strip() for field, value in fields if field == "event"]
        # Of several names the last one counts.
        errors += [_parsed(data)] if names[-1:] == ["error"] else _errors_of(_json(data))
    return errors


def _parsed(text: str) -> Any:
    """*text* as JSON, or as it is."""
    value = _json(text)
    return text if value is None else value


def _read(error: Any) -> Complaint:
    """Gather what an *error* says, at any depth, without recursion on hostile nesting."""
    texts: list[str] = []
    codes: set[int] = set()
    sizes: dict[str, int] = {}
    waiting: deque[tuple[Any, int]] = deque([(error, 0)])
    while waiting:
        value, depth = waiting.popleft()
        if isinstance(value, str):
            inner = _inside(value)
            if inner is not None:
                waiting.append((inner, depth + 1))
            if not value.lstrip().startswith(_ECHOES):
                texts.append(value[:MOST_TEXT_CHARS])
        elif isinstance(value, list) and depth < MOST_DEPTH:
            waiting += [(item, depth + 1) for item in value[:20]]
        elif isinstance(value, dict) and depth < MOST_DEPTH:
            waiting += [(value[key], depth + 1) for key in _SAYING if value.get(key)]
            for key in ("code", "status", "status_code"):
                number = value.get(key)
                if isinstance(number, str) and number.isascii() and number.isdigit() and len(number) == 3:
                    number = int(number)
                if isinstance(number, int):
                    codes.add(number)
            for key in ("n_ctx", "n_prompt_tokens"):
                size = value.get(key)
                if isinstance(size, int) and not isinstance(size, bool) and size > 0:
                    sizes.setdefault(key, size)
    return Complaint(
        text="\n".join(texts)[:MOST_TEXT_CHARS],
        codes=frozenset(codes),
        window=sizes.get("n_ctx"),
        prompt=sizes.get("n_prompt_tokens"),
    )


def _inside(text: str) -> Any:
    """The JSON object inside a message, as gateways wrap another server's error; None without one."""
    if text.lstrip().startswith(_ECHOES):
        return None
    # Without both braces at most one character is left, which is no JSON.
    return _json(text[text.find("{") : text.rfind("}") + 1])
