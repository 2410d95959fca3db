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
    at_path,
    hash_of,
    normal_bytes,
    objects,
    string,
    text_form,
    with_texts,
    written,
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
_ARGUMENTS = ("arguments", "input", "action", "code", "query", "queries", "operation")
# Where calls that the server carries out itself keep what came back.
_RESULTS = ("output", "outputs", "results", "error")
# The text of a part, by its type.
_PART_TEXTS = ("text", "refusal", "stdout", "stderr")
# Outputs that take a part more; those of built-in tools have a form of their own.
_OPEN_OUTPUTS = ("function_call_output", "custom_tool_call_output")


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
        size_bytes=len(item.slice),
        joins=role is Role.ASSISTANT and after_output,
    )


def edited(wire: dict[str, Any], appended: str, cuts: Mapping[int, str]) -> dict[str, Any]:
    """
    A copy of *wire* with other texts (by their index in `Message.texts`) and *appended* at its end.

    Arguments that came as an object are read again where they were cut.
    """
    texts = {
        path: cuts[i] if isinstance(at_path(wire, path), str) else json.loads(cuts[i])
        for i, (path, _, _) in enumerate(_texts(wire))
        if i in cuts
    }
    copy = with_texts(wire, texts)
    if appended:
        field = "output" if "output" in copy else "content"
        content = copy.get(field)
        if isinstance(content, list):
            copy[field] = [*content, {"type": "input_text", "text": appended}]
        elif isinstance(content, str) and content:
            copy[field] = f"{content}\n\n{appended}"
        else:
            copy[field] = appended
    return copy


def takes_text(wire: dict[str, Any]) -> bool:
    """Whether text can be appended to it."""
    kind = string(wire.get("type")) or "message"
    content = wire.get("content" if kind == "message" else "output")
    return isinstance(content, str) or (
        isinstance(content, list) and (kind == "message" or kind in _OPEN_OUTPUTS)
    )


def _is_call(kind: str) -> bool:
    return kind.endswith("_call") or kind in ("mcp_approval_request", "image_generation_call")


def _call(wire: dict[str, Any], kind: str) -> Call:
    value = next((wire[field] for field in _ARGUMENTS if field in wire), "")
    arguments = value if isinstance(value, str) else written(value)
    # Built-in tools have no name of their own: their type is one.
    name = string(wire.get("name")) or kind.removesuffix("_call")
    return Call(id=string(wire.get("call_id")) or string(wire.get("id")), name=name, arguments=arguments)


def _texts(wire: dict[str, Any]) -> Iterator[tuple[Path, Kind, str]]:
    kind = string(wire.get("type")) or "message"
    # What the server wrote for itself says the same in another form: it stays whole.
    thought = Kind.SEALED if wire.get("encrypted_content") else Kind.REASONING
    for field, of in (
        ("output", Kind.RESULT),
        ("content", thought if kind == "reasoning" else Kind.SAID),
        ("summary", thought),
    ):
        value = wire.get(field)
        if isinstance(value, str):
            yield (field,), of, value
        for i, part in enumerate(value if isinstance(value, list) else []):
            for name in _PART_TEXTS if isinstance(part, dict) else ():
                if isinstance(part.get(name), str):
                    yield (field, i, name), of, part[name]
    for field in _ARGUMENTS if _is_call(kind) else ():
        if field in wire:
            value = wire[field]
            yield (field,), Kind.ARGUMENTS, value if isinstance(value, str) else written(value)
    if isinstance(wire.get("tools"), list):
        # Lists of tools that the server looked up stand in the prompt like those that are offered.
        yield ("tools",), Kind.SEALED, written(wire["tools"])


def _attachments(wire: dict[str, Any]) -> Iterator[Attachment]:
    output = wire.get("output")
    parts = objects(wire.get("content")) + objects([output] if isinstance(output, dict) else output)
    for part in parts:
        kind = string(part.get("type"))
        if kind not in ("input_image", "input_file", "input_audio", "computer_screenshot"):
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
        results = [hash_of(wire[field]) for field in _RESULTS if wire.get(field)]
        return normal_bytes([kind, calls[0].name, arguments_form(calls[0].arguments), *results])
    field = "output" if "output" in wire else "content"
    parts = _content_form(wire.get(field))
    if kind == "message":
        return normal_bytes([string(wire.get("role")), parts])
    if kind == "item_reference":
        return normal_bytes([kind, string(wire.get("id"))])
    known = {"type", "id", "status", "call_id", field}
    return normal_bytes([kind, parts, hash_of({k: v for k, v in wire.items() if k not in known})])


def _content_form(content: Any) -> list[Any]:
    if isinstance(content, str):
        return text_form([content])
    if not isinstance(content, list):
        return [] if content is None else [[hash_of(content)]]
    parts: list[Any] = []
    for part in content:
        if isinstance(part, dict) and isinstance(part.get("text"), str):
            parts += text_form([part["text"]])
        else:
            parts.append([hash_of(part)])
    return parts
