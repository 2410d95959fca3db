"""
Read a recorded session into the requests that its agent sent.

A file holds one body, `{"messages": …}` with what else a body has, or one body a line. A
single body is taken apart: the agent asked before each answer that stands in it. Every
fault says where it is and what was expected.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from proxy.errors import ProxyError

_LIMITS = ("n_predict", "max_completion_tokens", "max_tokens")
_EXPECTED = 'a JSON body with "messages", or one such body a line'


class Unreadable(ProxyError):
    """A file is no recorded session."""


def read_bodies(path: Path, output_limit: int | None = None) -> list[bytes]:
    """
    The bodies of the session's requests, in order.

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
    bodies = list(_requests(str(path), text))
    if not bodies:
        raise Unreadable(f"{path}: holds no request; expected {_EXPECTED}")
    return [_to_bytes(body, output_limit) for body in bodies]


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
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        found = "no messages" if "messages" not in body else f"messages is {_named(messages)}"
        raise Unreadable(f"{where}: {found}, expected a list of messages that is not empty")
    for number, message in enumerate(messages, 1):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            what = "has no role" if isinstance(message, dict) else f"is {_named(message)}"
            raise Unreadable(f"{where}: message {number} {what}, expected an object with a role")
    return body


def _turns(body: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The request before each answer, and the last one where it was not answered."""
    messages = body["messages"]
    for i, message in enumerate(messages):
        if i and message["role"] == "assistant":
            yield {**body, "messages": messages[:i]}
    if messages[-1]["role"] != "assistant" or len(messages) == 1:
        yield body


def _to_bytes(body: Mapping[str, Any], output_limit: int | None) -> bytes:
    if output_limit is not None:
        body = {k: v for k, v in body.items() if k not in _LIMITS} | {"max_tokens": output_limit}
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
