"""
Read one message of Anthropic's Messages format into the core's words, and write a changed one back.

Tool results are blocks of a user message here, several in one, often with text beside
them: such a message is `TOOL` for the core. Markers for the prompt cache move on every
request and mean nothing for a conversation's identity.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from proxy.core.messages import Attachment, Call, Kind, Message, Role, Text
from proxy.dialects.slices import Item
from proxy.dialects.values import (
    Path,
    arguments_form,
    hash_of,
    normal_bytes,
    objects,
    string,
    text_form,
    with_texts,
    written,
)
from proxy.errors import NotUnderstood

_ROLES = {"user": Role.USER, "assistant": Role.ASSISTANT, "system": Role.SYSTEM}
_REASONING = ("thinking", "redacted_thinking")
MARKER = "cache_control"
# A marker stands on a block, or on a block within a result's; deeper there is only what tools are
# called with, and that may be nested as far as JSON is read.
_MARKED_DEPTH = 8


def read(item: Item) -> Message:
    """
    The message of a wire object.

    Raises:
        NotUnderstood: If it is no object, or has a role that is not known.
    """
    wire = item.value
    if not isinstance(wire, dict):
        raise NotUnderstood("messages: expected objects")
    role = _ROLES.get(string(wire.get("role")))
    if role is None:
        raise NotUnderstood(f"messages: the role {string(wire.get('role'))[:40]!r} is not known")
    blocks = objects(wire.get("content"))
    answers = tuple(
        string(block.get("tool_use_id")) for block in blocks if _is_result(block) and role is Role.USER
    )
    calls = tuple(_call(block) for block in blocks if _is_call(block)) if role is Role.ASSISTANT else ()
    return Message(
        role=Role.TOOL if answers else role,
        wire=item,
        texts=tuple(Text(kind, text, of) for _, kind, text, of in _texts(wire)),
        calls=calls,
        answers=answers,
        attachments=tuple(_attachments(blocks)),
        normal=_normal(wire),
        size_bytes=len(item.slice),
    )


def edited(
    wire: dict[str, Any], appended: str, cuts: Mapping[int, str], marker: Any = None
) -> dict[str, Any]:
    """
    A copy of *wire* with other texts (by their index in `Message.texts`) and *appended* at its end.

    It goes inside a result that stands there: of text beside a result llama.cpp makes a user message,
    and puts it before the result. Elsewhere it is a block more. The input of a call is an object
    here: where its text was cut it is read again. With a *marker* for the prompt cache the block
    carries it.
    """
    texts = {
        path: json.loads(cuts[i]) if kind is Kind.ARGUMENTS else cuts[i]
        for i, (path, kind, _, _) in enumerate(_texts(wire))
        if i in cuts
    }
    copy = with_texts(wire, texts)
    if appended:
        block = {"type": "text", "text": appended}
        blocks = _blocks(copy)
        if blocks and isinstance(blocks[-1], dict) and _is_result(blocks[-1]):
            copy["content"] = [*blocks[:-1], _with_more(blocks[-1], appended)]
        else:
            copy["content"] = [*blocks, block | ({MARKER: marker} if marker is not None else {})]
    return copy


def _with_more(result: dict[str, Any], appended: str) -> dict[str, Any]:
    content = result.get("content")
    if isinstance(content, list):
        return result | {"content": [*content, {"type": "text", "text": appended}]}
    return result | {"content": f"{content}\n\n{appended}" if content else appended}


def _blocks(wire: dict[str, Any]) -> list[Any]:
    """
    Its content as blocks.

    Clients turn a text into a block and back as they move a marker, and templates write two
    blocks otherwise than one: what is appended must not hang on it.
    """
    content = wire.get("content")
    if isinstance(content, list):
        return content
    return [{"type": "text", "text": content}] if isinstance(content, str) and content else []


def without_markers(wire: dict[str, Any]) -> dict[str, Any]:
    """Equal for messages that differ in cache markers alone, or in a text for one block."""
    left: dict[str, Any] = _unmarked(wire) | {"content": _unmarked(_blocks(wire))}
    return left


def _unmarked(value: Any, depth: int = _MARKED_DEPTH) -> Any:
    if not depth:
        return value
    if isinstance(value, dict):
        return {k: _unmarked(v, depth - 1) for k, v in value.items() if k != MARKER}
    if isinstance(value, list):
        return [_unmarked(entry, depth - 1) for entry in value]
    return value


def find_markers(wire: Any, depth: int = _MARKED_DEPTH) -> list[Any]:
    """The cache markers of a message or a block, those inside results included, down to a *depth*."""
    if not depth:
        return []
    if isinstance(wire, list):
        return [marker for entry in wire for marker in find_markers(entry, depth - 1)]
    if not isinstance(wire, dict):
        return []
    own = [wire[MARKER]] if wire.get(MARKER) is not None else []
    return own + find_markers(wire.get("content"), depth - 1)


def _is_call(block: dict[str, Any]) -> bool:
    return string(block.get("type")).endswith("tool_use")


def _is_result(block: dict[str, Any]) -> bool:
    return string(block.get("type")).endswith("tool_result")


def _call(block: dict[str, Any]) -> Call:
    arguments = written(block.get("input", {}))
    return Call(id=string(block.get("id")), name=string(block.get("name")), arguments=arguments)


def _texts(wire: dict[str, Any]) -> Iterator[tuple[Path, Kind, str, int]]:
    content = wire.get("content")
    if isinstance(content, str):
        yield ("content",), Kind.SAID, content, 0
        return
    calls = results = 0
    for i, block in enumerate(content if isinstance(content, list) else []):
        if not isinstance(block, dict):
            continue
        if block.get("type") == "text" and isinstance(block.get("text"), str):
            yield ("content", i, "text"), Kind.SAID, block["text"], 0
        elif block.get("type") == "thinking" and isinstance(block.get("thinking"), str):
            yield ("content", i, "thinking"), Kind.SEALED, block["thinking"], 0
        elif _is_call(block):
            yield ("content", i, "input"), Kind.ARGUMENTS, written(block.get("input", {})), calls
            calls += 1
        elif _is_result(block):
            yield from _result_texts(block.get("content"), i, results)
            results += 1


def _result_texts(content: Any, at: int, of: int) -> Iterator[tuple[Path, Kind, str, int]]:
    if isinstance(content, str):
        yield ("content", at, "content"), Kind.RESULT, content, of
    for i, part in enumerate(content if isinstance(content, list) else []):
        if isinstance(part, dict) and isinstance(part.get("text"), str):
            yield ("content", at, "content", i, "text"), Kind.RESULT, part["text"], of


def _attachments(blocks: list[dict[str, Any]]) -> Iterator[Attachment]:
    for block in blocks:
        if _is_result(block):
            yield from _attachments(objects(block.get("content")))
        elif block.get("type") in ("image", "document"):
            source = block.get("source")
            source = source if isinstance(source, dict) else {}
            data = string(source.get("data"))
            yield Attachment(
                kind=string(block.get("type")),
                name=string(block.get("title")) or string(source.get("url"))[:200],
                media_type=string(source.get("media_type")),
                size_bytes=len(data) * 3 // 4 if source.get("type") == "base64" else len(data),
            )


def _normal(wire: dict[str, Any]) -> bytes:
    content = wire.get("content")
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    parts: list[Any] = []
    for block in content if isinstance(content, list) else []:
        if not isinstance(block, dict):
            parts.append([hash_of(block)])
        elif block.get("type") in _REASONING:
            continue
        elif block.get("type") == "text" and isinstance(block.get("text"), str):
            parts += text_form([block["text"]])
        elif _is_call(block):
            arguments = arguments_form(written(block.get("input", {})))
            parts.append(["call", string(block.get("name")), arguments])
        elif _is_result(block):
            parts.append(["result", _result_form(block.get("content"))])
        else:
            parts.append([hash_of({k: v for k, v in block.items() if k != MARKER})])
    return normal_bytes([string(wire.get("role")), parts])


def _result_form(content: Any) -> list[Any]:
    if isinstance(content, str):
        return text_form([content])
    parts: list[Any] = []
    for part in content if isinstance(content, list) else []:
        if isinstance(part, dict) and isinstance(part.get("text"), str):
            parts += text_form([part["text"]])
        elif isinstance(part, dict):
            parts.append([hash_of({k: v for k, v in part.items() if k != MARKER})])
    return parts
