"""
Read a recorded session into the requests that its agent sent.

A file holds one body, `{"messages": …}` or `{"input": …}` with what else a body has, or one body a
line; its shape tells the wire format. A single body is taken apart: the agent asked before each
answer that stands in it. Every fault says where it is and what was expected.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proxy.dialects.anthropic_messages import ANTHROPIC_MESSAGES
from proxy.dialects.base import Dialect
from proxy.dialects.chat_completions import CHAT_COMPLETIONS
from proxy.dialects.responses import RESPONSES
from proxy.errors import ProxyError

_LIMITS = ("n_predict", "max_completion_tokens", "max_tokens", "max_output_tokens")
_EXPECTED = 'a JSON body with "messages" or "input", or one such body a line'
# Blocks that only Anthropic's messages have.
_ANTHROPIC_BLOCKS = ("tool_use", "tool_result", "thinking", "redacted_thinking")
# Of the items of the Responses API all else comes from the model.
_NOT_ANSWERING = ("user", "system", "developer")
_ITEMS = {"messages": "message", "input": "item"}
_MARKS = {"messages": "role", "input": "role or type"}


@dataclass(frozen=True, slots=True)
class Recording:
    """The requests of a session, in order, as bodies of one wire format."""

    dialect: Dialect
    bodies: tuple[bytes, ...]


class Unreadable(ProxyError):
    """A file is no recorded session."""


def read_recording(path: Path, output_limit: int | None = None) -> Recording:
    """
    The session's requests.

    Args:
        path: The file.
        output_limit: Put in the place of each body's own limit; None leaves it.

    Raises:
        Unreadable: If the file cannot be read, or holds something else.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise Unreadable(f"{path}: cannot be read ({error.strerror or error})") from error
    except UnicodeDecodeError as error:
        raise Unreadable(f"{path}: no text in UTF-8 (byte {error.start}); expected {_EXPECTED}") from error
    if not text.strip():
        raise Unreadable(f"{path}: is empty; expected {_EXPECTED}")
    bodies = list(_requests(str(path), text))
    if not bodies:
        raise Unreadable(f"{path}: holds no request; expected {_EXPECTED}")
    dialect = _dialect_of(bodies)
    for number, body in enumerate(bodies, 1):
        if ("messages" in body) is (dialect is RESPONSES):
            raise Unreadable(f"{path}: request {number} is of another wire format than those before it")
    return Recording(dialect, tuple(_to_bytes(body, dialect, output_limit) for body in bodies))


def _dialect_of(bodies: Sequence[Mapping[str, Any]]) -> Dialect:
    if "messages" not in bodies[0]:
        return RESPONSES
    # The first requests of a session may have nothing yet that tells.
    return ANTHROPIC_MESSAGES if any(map(_is_anthropic, bodies)) else CHAT_COMPLETIONS


def _is_anthropic(body: Mapping[str, Any]) -> bool:
    tools, contents = body.get("tools"), [message.get("content") for message in body.get("messages", ())]
    blocks = [block for content in contents if isinstance(content, list) for block in content]
    return (
        "system" in body
        or any(isinstance(tool, dict) and "input_schema" in tool for tool in _list(tools))
        or any(isinstance(block, dict) and block.get("type") in _ANTHROPIC_BLOCKS for block in blocks)
    )


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _requests(path: str, text: str) -> Iterator[Mapping[str, Any]]:
    try:
        whole = _parse(text)
    except json.JSONDecodeError as error:
        lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
        if len(lines) < 2 or not lines[0][1].lstrip().startswith("{") or not _is_json(lines[0][1]):
            where = f"{path}, line {error.lineno}, column {error.colno}"
            raise Unreadable(f"{where}: not JSON ({error.msg}); expected {_EXPECTED}") from error
        for number, line in lines:
            yield _body(f"{path}, line {number}", line)
        return
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"{path}: not JSON that can be read ({error}); expected {_EXPECTED}") from error
    yield from _turns(_checked(path, whole))


def _body(where: str, line: str) -> Mapping[str, Any]:
    try:
        return _checked(where, _parse(line))
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"{where}: not JSON ({error}); expected one body a line") from error


def _checked(where: str, body: Any) -> Mapping[str, Any]:
    if not isinstance(body, dict):
        raise Unreadable(f"{where}: {_named(body)}, expected {_EXPECTED}")
    name = _history_of(body)
    history = body.get(name)
    if name == "input" and isinstance(history, str) and history:
        return body
    if not isinstance(history, list) or not history:
        found = f"no {name}" if name not in body else f"{name} is {_named(history)}"
        raise Unreadable(f"{where}: {found}, expected a list of {_ITEMS[name]}s that is not empty")
    for number, item in enumerate(history, 1):
        needed = isinstance(item, dict) and (
            isinstance(item.get("role"), str) or (name == "input" and isinstance(item.get("type"), str))
        )
        if not needed:
            what = f"has no {_MARKS[name]}" if isinstance(item, dict) else f"is {_named(item)}"
            expected = f"an object with a {_MARKS[name]}"
            raise Unreadable(f"{where}: {_ITEMS[name]} {number} {what}, expected {expected}")
    return body


def _history_of(body: Mapping[str, Any]) -> str:
    return "input" if "input" in body and "messages" not in body else "messages"


def _turns(body: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The request before each answer, and the last one where it was not answered."""
    name = _history_of(body)
    history = body[name]
    if isinstance(history, str):
        yield body
        return
    # Each message of a model is an answer of its own, but an answer may be several items.
    answers = [_is_answer(item, name) for item in history]
    begins = [is_one and not (name == "input" and answers[i - 1]) for i, is_one in enumerate(answers) if i]
    for i, is_begin in enumerate(begins, 1):
        if is_begin:
            yield {**body, name: history[:i]}
    if not answers[-1] or len(history) == 1:
        yield body


def _is_answer(item: Mapping[str, Any], name: str) -> bool:
    if name == "messages" or "role" in item:
        return item.get("role") == "assistant" if name == "messages" else item["role"] not in _NOT_ANSWERING
    return not str(item.get("type")).endswith("_output")


def _to_bytes(body: Mapping[str, Any], dialect: Dialect, output_limit: int | None) -> bytes:
    if output_limit is not None:
        name = "max_output_tokens" if dialect is RESPONSES else "max_tokens"
        body = {k: v for k, v in body.items() if k not in _LIMITS} | {name: output_limit}
    try:
        return json.dumps(body, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        # Half a character, which only an escape can carry.
        return json.dumps(body).encode()


def _parse(text: str) -> Any:
    return json.loads(text)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _named(value: Any) -> str:
    names = {
        dict: "an object",
        list: "an empty list" if value == [] else "a list",
        str: "a text",
        bool: "a truth value",
    }
    return "null" if value is None else names.get(type(value), "a number")
