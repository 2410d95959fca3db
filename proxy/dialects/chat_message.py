"""
Read one chat message into the core's words, and write a changed one back.

Clients send the same message in many forms (null, empty or absent content, a string or
one text part); the normal form makes them equal, the wire object stays as it came.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from proxy.core.messages import Attachment, Call, Kind, Message, Role, Text
from proxy.core.volatile import without_volatile
from proxy.dialects.slices import Item
from proxy.dialects.values import SHORT, SORTED, with_texts
from proxy.errors import NotUnderstood

# Where servers and clients keep reasoning that is sent back.
REASONING = ("reasoning_content", "reasoning", "thinking")

_ROLES = {
    "system": Role.SYSTEM,
    "developer": Role.SYSTEM,
    "user": Role.USER,
    "assistant": Role.ASSISTANT,
    "tool": Role.TOOL,
    "function": Role.TOOL,
}
_Path = tuple[str | int, ...]


def read(item: Item) -> Message:
    """
    The message of a wire object.

    Raises:
        NotUnderstood: If it is no object, or has a role that is not known: it could not
            be told where a turn ends.
    """
    wire = item.value
    if not isinstance(wire, dict):
        raise NotUnderstood("messages: expected objects")
    role = _ROLES.get(wire["role"]) if isinstance(wire.get("role"), str) else None
    if role is None:
        raise NotUnderstood(f"messages: the role {str(wire.get('role'))[:40]!r} is not known")
    content = wire.get("content")
    calls = tuple(_calls(wire)) if role is Role.ASSISTANT else ()
    said = Kind.RESULT if role is Role.TOOL else Kind.SAID
    texts = tuple(
        Text(kind or said, text, of) for _, kind, text, of in _texts(wire, with_calls=role is Role.ASSISTANT)
    )
    answers: tuple[str, ...] = ()
    if role is Role.TOOL:
        answer = wire.get("tool_call_id", wire.get("name", ""))
        answers = (answer if isinstance(answer, str) else "",)
    return Message(
        role=role,
        wire=item,
        texts=texts,
        calls=calls,
        answers=answers,
        attachments=tuple(_attachments(content)),
        normal=_normal(wire, role, calls),
        size_bytes=len(item.slice),
    )


def edited(wire: dict[str, Any], appended: str, cuts: Mapping[int, str]) -> dict[str, Any]:
    """
    A copy of *wire* with other texts (by their index in `Message.texts`) and *appended* at its end.

    Raises:
        NotUnderstood: If its content is of a kind that nothing can be appended to.
    """
    with_calls = wire.get("role") == "assistant"
    paths = [path for path, _, _, _ in _texts(wire, with_calls=with_calls)]
    copy = with_texts(wire, {path: cuts[i] for i, path in enumerate(paths) if i in cuts})
    if appended:
        content = copy.get("content")
        if isinstance(content, list):
            copy["content"] = [*content, {"type": "text", "text": appended}]
        elif isinstance(content, str) and content:
            copy["content"] = f"{content}\n\n{appended}"
        elif not content and isinstance(content, str | None):
            copy["content"] = appended
        else:
            kind = type(content).__name__
            raise NotUnderstood(f"messages: nothing can be appended to content of type {kind}")
    return copy


def plain_text(content: Any) -> str:
    """The text of a string or of a list of text parts."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    texts = (part.get("text") for part in content if isinstance(part, dict))
    return "".join(text for text in texts if isinstance(text, str))


def _texts(wire: dict[str, Any], *, with_calls: bool) -> Iterator[tuple[_Path, Kind | None, str, int]]:
    """Path, kind (None for content), string and call of every text, in a fixed order."""
    for key in REASONING:
        if isinstance(wire.get(key), str):
            yield (key,), Kind.REASONING, wire[key], 0
    content = wire.get("content")
    if isinstance(content, str):
        yield ("content",), None, content, 0
    elif isinstance(content, list):
        for i, part in enumerate(content):
            if isinstance(part, dict) and isinstance(part.get("text"), str):
                yield ("content", i, "text"), None, part["text"], 0
    if not with_calls:
        return
    for of, path in enumerate(_call_paths(wire)):
        function: Any = wire
        for step in path:
            function = function[step]
        if isinstance(function, dict) and isinstance(function.get("arguments"), str):
            yield (*path, "arguments"), Kind.ARGUMENTS, function["arguments"], of


def _call_paths(wire: dict[str, Any]) -> Iterator[_Path]:
    """Where the function of each call stands; a call without one is counted all the same."""
    calls = wire.get("tool_calls")
    if isinstance(calls, list):
        for i, call in enumerate(calls):
            if isinstance(call, dict):
                yield ("tool_calls", i, "function") if "function" in call else ("tool_calls", i)
    if isinstance(wire.get("function_call"), dict):
        yield ("function_call",)


def _calls(wire: dict[str, Any]) -> Iterator[Call]:
    for path in _call_paths(wire):
        function: Any = wire
        for step in path:
            function = function[step]
        function = function if isinstance(function, dict) else {}
        holder: Any = wire["tool_calls"][path[1]] if path[0] == "tool_calls" else {}
        # Custom tools have their input beside the name.
        custom = holder.get("custom")
        function = custom if isinstance(custom, dict) and "function" not in holder else function
        arguments = function.get("arguments", function.get("input", ""))
        yield Call(
            id=_string(holder.get("id", function.get("name", ""))),
            name=_string(function.get("name")),
            arguments=arguments if isinstance(arguments, str) else json.dumps(arguments),
        )


def _attachments(content: Any) -> Iterator[Attachment]:
    for part in content if isinstance(content, list) else []:
        if not isinstance(part, dict) or isinstance(part.get("text"), str):
            continue
        kind = _string(part.get("type")) or "part"
        inner = part.get(kind)
        inner = inner if isinstance(inner, dict) else {"url": inner}
        source = _string(inner.get("url") or inner.get("file_data") or inner.get("data"))
        head, _, data = source.partition(",") if source.startswith("data:") else ("", "", source)
        is_data = bool(head) or "data" in inner or "file_data" in inner
        yield Attachment(
            kind=kind.removesuffix("_url").removeprefix("input_"),
            name=_string(inner.get("filename")) or ("" if is_data else source[:200]),
            media_type=head[5:].split(";")[0] or _string(inner.get("format")),
            size_bytes=len(data) * 3 // 4 if is_data else 0,
        )


def _normal(wire: dict[str, Any], role: Role, calls: tuple[Call, ...]) -> bytes:
    form: list[Any] = [role.value, _content_form(wire.get("content"))]
    if role is not Role.TOOL and isinstance(wire.get("name"), str):
        form.append(["name", wire["name"]])
    if isinstance(wire.get("refusal"), str):
        form.append(["refusal", wire["refusal"]])
    # In a list of their own: a tool may be called "name", too.
    form.append([[call.name, _arguments_form(call.arguments)] for call in calls])
    return SHORT.encode(form).encode()


def _content_form(content: Any) -> list[Any]:
    if isinstance(content, str):
        content = [{"text": content}]
    if not isinstance(content, list):
        return [] if content is None else [_hash(content)]
    parts: list[Any] = []
    for part in content:
        if isinstance(part, dict) and isinstance(part.get("text"), str):
            # Where a span goes the space around it goes, so that the rest must not have any either.
            text = without_volatile(part["text"]).strip()
            if text:
                parts.append(text)
        elif isinstance(part, dict):
            parts.append([_hash({k: v for k, v in part.items() if k != "cache_control"})])
        else:
            parts.append([_hash(part)])
    return parts


def _arguments_form(arguments: str) -> str:
    try:
        return SORTED.encode(json.loads(arguments))
    except (ValueError, RecursionError):
        return arguments.strip()


def _hash(value: Any) -> str:
    try:
        return hashlib.blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=16).hexdigest()
    except RecursionError as error:
        raise NotUnderstood("messages: a part is nested too deeply") from error


def _string(value: Any) -> str:
    return value if isinstance(value, str) else ""
