"""
Read one item of a Responses `input` into the core's words, and write a changed one back.

What the model puts out is several items in a row (reasoning, messages, calls); they join
into one turn, and are kept or replaced together, so that reasoning is never parted from
the call it belongs to.
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
)
from proxy.errors import NotUnderstood

_ROLES = {
    "system": Role.SYSTEM,
    "developer": Role.SYSTEM,
    "user": Role.USER,
    "assistant": Role.ASSISTANT,
}
# Items that answer a call although their type does not end in `_output`.
_ANSWERS = ("mcp_approval_response",)
# The fields that hold what a call is called with, by the tools that OpenAI builds in.
_ARGUMENTS = ("arguments", "input", "action", "code", "query", "queries")


def read(item: Item, *, after_output: bool) -> Message:
    """
    The message of an item.

    Args:
        item: The item with its slice.
        after_output: Whether the item before it was put out by the model.

    Raises:
        NotUnderstood: If it is no object, or a message of a role that is not known.
    """
    wire = item.value
    if not isinstance(wire, dict):
        raise NotUnderstood("input: expected objects")
    kind = string(wire.get("type")) or "message"
    if kind == "message":
        role = _ROLES.get(string(wire.get("role")))
        if role is None:
            raise NotUnderstood(f"input: the role {string(wire.get('role'))[:40]!r} is not known")
    else:
        answers = kind.endswith("_output") or kind in _ANSWERS
        role = Role.TOOL if answers else Role.ASSISTANT
    calls = (_call(wire, kind),) if role is Role.ASSISTANT and _is_call(kind) else ()
    answered = (string(wire.get("call_id")) or string(wire.get("approval_request_id")),)
    return Message(
        role=role,
        wire=item,
        texts=tuple(Text(kind, text) for _, kind, text in _texts(wire)),
        calls=calls,
        answers=answered if role is Role.TOOL else (),
        attachments=tuple(_attachments(wire)),
        normal=_normal(wire, kind, calls),
        size_bytes=len(item.raw),
        joins=role is Role.ASSISTANT and after_output,
    )


def edited(wire: dict[str, Any], appended: str, cuts: Mapping[int, str]) -> dict[str, Any]:
    """A copy of *wire* with other texts (by their index in `Message.texts`) and *appended* at its end."""
    texts = {path: cuts[i] for i, (path, _, _) in enumerate(_texts(wire)) if i in cuts}
    copy = with_texts(wire, texts)
    if appended:
        field = "output" if "output" in copy else "content"
        content = copy.get(field)
        if isinstance(content, list):
            content.append({"type": "input_text", "text": appended})
        elif isinstance(content, str) and content:
            copy[field] = f"{content}\n\n{appended}"
        else:
            copy[field] = appended
    return copy


def _is_call(kind: str) -> bool:
    return kind.endswith("_call") or kind in ("mcp_approval_request", "image_generation_call")


def _call(wire: dict[str, Any], kind: str) -> Call:
    value = next((wire[field] for field in _ARGUMENTS if field in wire), "")
    arguments = value if isinstance(value, str) else json.dumps(value)
    # Built-in tools have no name of their own: their type is one.
    name = string(wire.get("name")) or kind.removesuffix("_call")
    return Call(id=string(wire.get("call_id")) or string(wire.get("id")), name=name, arguments=arguments)


def _texts(wire: dict[str, Any]) -> Iterator[tuple[Path, Kind, str]]:
    kind = string(wire.get("type"))
    is_answer = kind.endswith("_output")
    for field, of in (
        ("output", Kind.RESULT if is_answer else Kind.SAID),
        ("content", Kind.REASONING if kind == "reasoning" else Kind.SAID),
        ("summary", Kind.REASONING),
        ("arguments", Kind.ARGUMENTS),
        ("input", Kind.ARGUMENTS),
    ):
        value = wire.get(field)
        if isinstance(value, str):
            yield (field,), of, value
        elif isinstance(value, list):
            for i, part in enumerate(value):
                if isinstance(part, dict) and isinstance(part.get("text"), str):
                    yield (field, i, "text"), of, part["text"]


def _attachments(wire: dict[str, Any]) -> Iterator[Attachment]:
    parts = objects(wire.get("content")) + objects(wire.get("output"))
    for part in parts:
        kind = string(part.get("type"))
        if kind not in ("input_image", "input_file", "input_audio"):
            continue
        source = string(part.get("image_url")) or string(part.get("file_data")) or string(part.get("data"))
        head, _, data = source.partition(",") if source.startswith("data:") else ("", "", "")
        yield Attachment(
            kind=kind.removeprefix("input_"),
            name=string(part.get("filename"))
            or string(part.get("file_id"))
            or ("" if head else source[:200]),
            media_type=head[5:].split(";")[0],
            size_bytes=len(data) * 3 // 4,
        )


def _normal(wire: dict[str, Any], kind: str, calls: tuple[Call, ...]) -> bytes:
    if kind == "reasoning":
        # Clients drop it, and servers encrypt it anew.
        return b""
    if calls:
        return normal_bytes([kind, calls[0].name, arguments_form(calls[0].arguments)])
    field = "output" if "output" in wire else "content"
    content = wire.get(field)
    if isinstance(content, str):
        parts: list[Any] = text_form([content])
    else:
        parts = []
        for part in content if isinstance(content, list) else []:
            if isinstance(part, dict) and isinstance(part.get("text"), str):
                parts += text_form([part["text"]])
            else:
                parts.append([hash_of(part)])
    if kind == "message":
        return normal_bytes([string(wire.get("role")), parts])
    known = {"type", "id", "status", "call_id", field}
    return normal_bytes([kind, parts, hash_of({k: v for k, v in wire.items() if k not in known})])
