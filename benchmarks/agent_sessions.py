"""
Sessions of an agent that reads code, of a wanted size, for the benchmarks.

The text is that of Python's own library, with signs that are not ASCII now and then, as in
real sessions. Bodies are made as bytes beforehand: only the newest turn differs from one
request to the next.
"""

import argparse
import json
import logging
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_SOURCES = (argparse, json, logging, typing)


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """
    A conversation that goes on: `start` of a body up to its last whole turn, and what ends it.

    Attributes:
        start: The body without a closing bracket of its messages.
        newest: Bytes of the last tool result.
        end: From that bracket on.
    """

    start: bytes
    newest: int
    end: bytes

    def body(self, number: int | None = None) -> tuple[bytes, ...]:
        """The body, in pieces; with a *number* it has one turn more, that of this number."""
        return (
            (self.start, self.end) if number is None else (self.start, _turn(number, self.newest), self.end)
        )


def session(
    name: str,
    *,
    size: int,
    messages: int,
    model: str,
    stream: bool,
    tools: int,
    first: Sequence[int] = (4, 2),
) -> Session:
    """
    A session of about *size* bytes in *messages*, the newest turn included, unlike all of another *name*.

    *tools* is how many tools are offered; *first* how many kilobytes system prompt and task take.
    """
    system, task = (1024 * kilobytes for kilobytes in first)
    offered = json.dumps([_tool(i) for i in range(tools)]).encode()
    turns = (messages - 2) // 2
    left = size - system - task - len(offered)
    each = max(60, left // max(1, turns) - 330)
    said = [
        {"role": "system", "content": _text(0, system)},
        {"role": "user", "content": f"[{name}] Make the parser keep its input. {_text(7, task)}"},
    ]
    brief = b",".join(_dump(message) for message in said)
    rest = b"".join(_turn(i, each, name) for i in range(turns - 1))
    flags = b',"stream":true,"stream_options":{"include_usage":true}' if stream else b""
    return Session(
        start=b'{"model":"%s","messages":[%s%s' % (model.encode(), brief, rest),
        newest=each,
        end=b'],"tools":%s,"temperature":0.2%s}' % (offered, flags),
    )


def _turn(number: int, size: int, name: str = "") -> bytes:
    """A call and its result of *size* bytes, with a comma before each."""
    path = f"src/{name or 'now'}/module_{number}.py"
    call = {
        "id": f"call_{name}_{number}",
        "type": "function",
        "function": {"name": "read_file", "arguments": json.dumps({"path": path, "limit": 200})},
    }
    asked = {"role": "assistant", "content": f"I read {path} next.", "tool_calls": [call]}
    sign = "\N{CHECK MARK} \N{BOX DRAWINGS LIGHT HORIZONTAL}\n" if number % 10 == 0 else ""
    result = {"role": "tool", "tool_call_id": call["id"], "content": sign + _text(number, size)}
    return b"," + _dump(asked) + b"," + _dump(result)


def _tool(number: int) -> dict[str, Any]:
    properties = {"path": {"type": "string", "description": _text(number, 120)}, "limit": {"type": "integer"}}
    return {
        "type": "function",
        "function": {
            "name": f"read_file_{number}" if number else "read_file",
            "description": _text(number + 3, 160),
            "parameters": {"type": "object", "properties": properties, "required": ["path"]},
        },
    }


def _dump(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _library() -> str:
    return "\n".join(
        Path(module.__file__).read_text(encoding="utf-8") for module in _SOURCES if module.__file__
    )


_LIBRARY = _library()


def _text(number: int, size: int) -> str:
    """About *size* characters of code, others for every *number*."""
    start = number * 977 % (len(_LIBRARY) - size)
    return _LIBRARY[start : start + size]
