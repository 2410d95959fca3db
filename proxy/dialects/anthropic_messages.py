"""
Anthropic's `POST /v1/messages`, which Claude Code speaks, and llama.cpp serves.

System and tools stand outside the messages. A request may carry four markers for the
prompt cache; those on replaced messages go with them, and one is put on the block, so
that what stands before it can be cached as before.
"""

import json
from collections.abc import Sequence
from typing import Any

from proxy.core.messages import Conversation, Message, Role, Shown, View, find_turns
from proxy.dialects import anthropic_message
from proxy.dialects.base import NotesFormat, Parsed, Piece, Usage, Waiting
from proxy.dialects.known import Known
from proxy.dialects.prewarming import one_token
from proxy.dialects.slices import Body, Item, array, dump, put_together, take_apart
from proxy.dialects.values import (
    first_usage,
    last_usage,
    model_name,
    natural,
    objects,
    read_json,
    string,
    usage_of,
)
from proxy.dialects.waiting import Plain
from proxy.errors import NotUnderstood

MOST_MARKERS = 4

_SHAPES = ("stop_sequences", "output_format")
_PROMPT_FIELDS = (
    "model",
    "system",
    "tools",
    "tool_choice",
    "thinking",
    "output_config",
    "context_management",
)
_FINISH = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool",
}
_ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    529: "overloaded_error",
}


class AnthropicMessages:
    """The dialect; it has no state."""

    name = "messages"
    endpoint = "/messages"

    def parse(self, raw: bytes, known: Known | None = None) -> Parsed:
        """Raises NotUnderstood where `messages` is no non-empty array of objects with roles."""
        body = take_apart(raw, ("messages",), known)
        items = body.lists.get("messages")
        if not items:
            raise NotUnderstood("messages: expected a non-empty array")
        messages = tuple(map(_message, items))
        brief_end, turns = find_turns(messages)
        outside = b"\0".join(body.fields[f].slice for f in _PROMPT_FIELDS if f in body.fields)
        return Parsed(
            conversation=Conversation(
                messages=messages,
                brief_end=brief_end,
                turns=turns,
                model=model_name(body.value("model")),
                tool_names=tuple(
                    string(tool.get("name")) for tool in objects(body.value("tools")) if tool.get("name")
                ),
                output_limit=natural(body.value("max_tokens")),
                stream=body.value("stream") is True,
                fixed_texts=tuple(body.fields[f].raw for f in ("system", "tools") if f in body.fields),
            ),
            body=body,
            outside=outside,
        )

    def render(self, parsed: Parsed, view: View) -> bytes:
        """See `Dialect.render`."""
        marker = _marker(parsed, view)
        raws = [_raw(shown, marker) for shown in view]
        return put_together(parsed.body, {"messages": array(raws)})

    def render_prewarm(self, parsed: Parsed, view: View) -> bytes:
        """See `Dialect.render_prewarm`."""
        marker = _marker(parsed, view)
        messages = array(_raw(shown, marker) for shown in view)
        return put_together(parsed.body, {"messages": messages, **one_token(parsed.body, ("max_tokens",))})

    def message_bytes(self, view: View) -> Sequence[bytes]:
        """See `Dialect.message_bytes`; markers do not count, so that they may move."""
        return list(map(_plain, view))

    def render_notes(self, parsed: Parsed, view: View, how: NotesFormat) -> bytes:
        """See `Dialect.render_notes`."""
        body: Body = parsed.body
        marker = _marker(parsed, view)
        raws = [_raw(shown, marker) for shown in view]
        last = view[-1]
        if last.message.role in (Role.TOOL, Role.USER):
            appended = f"{last.appended}\n\n{how.instruction}" if last.appended else how.instruction
            raws[-1] = _raw(Shown(message=last.message, appended=appended, cuts=last.cuts), None)
        else:
            raws.append(dump({"role": "user", "content": how.instruction}).encode())
        changed: dict[str, str | bytes | None] = {
            "messages": array(raws),
            "stream": "true",
            "max_tokens": dump(how.limit + max(0, _thinking_budget(body) - how.reasoning)),
        }
        changed |= {field: None for field in _SHAPES if field in body.fields}
        config = body.value("output_config")
        if isinstance(config, dict) and "format" in config:
            left = {key: value for key, value in config.items() if key != "format"}
            changed["output_config"] = dump(left) if left else None
        has_tools = bool(body.value("tools"))
        if has_tools and how.forbid_tools:
            changed["tool_choice"] = dump({"type": "none"})
        elif "tool_choice" in body.fields:
            changed["tool_choice"] = dump({"type": "auto"}) if has_tools else None
        if not has_tools and "tools" in body.fields:
            changed["tools"] = None
        return put_together(body, changed)

    def read_usage(self, head: bytes, tail: bytes, *, is_stream: bool) -> Usage | None:
        """The prompt from `message_start`, or from the last `message_delta` where it says more."""
        if is_stream:
            usage = first_usage(head) | _without_none(last_usage(tail))
        else:
            usage = usage_of(read_json(tail))
        fresh = natural(usage.get("input_tokens")) or 0
        read = natural(usage.get("cache_read_input_tokens"))
        prompt = fresh + (read or 0) + (natural(usage.get("cache_creation_input_tokens")) or 0)
        if not prompt:
            return None
        return Usage(prompt=prompt, completion=natural(usage.get("output_tokens")) or 0, cached=read)

    def read_event(self, data: bytes) -> Piece:
        """See `Dialect.read_event`."""
        event = read_json(data)
        if not isinstance(event, dict):
            return Piece()
        if event.get("type") == "error" or event.get("error"):
            return Piece(error=json.dumps(event.get("error") or event))
        delta = event.get("delta")
        delta = delta if isinstance(delta, dict) else {}
        block = event.get("content_block")
        kind = string(block.get("type")) if isinstance(block, dict) else ""
        reason = string(delta.get("stop_reason"))
        return Piece(
            text=string(delta.get("text")) if delta.get("type") == "text_delta" else "",
            reasoning="thinking" in kind or "thinking" in string(delta.get("type")),
            called=kind.endswith("tool_use") or delta.get("type") == "input_json_delta",
            finish=_FINISH.get(reason, "stop") if reason else "",
        )

    def read_whole(self, body: bytes) -> Piece:
        """See `Dialect.read_whole`."""
        answer = read_json(body)
        if not isinstance(answer, dict):
            return Piece()
        if answer.get("error"):
            return Piece(error=json.dumps(answer["error"]))
        blocks = objects(answer.get("content"))
        reason = string(answer.get("stop_reason"))
        return Piece(
            text="".join(string(block.get("text")) for block in blocks if block.get("type") == "text"),
            reasoning=any("thinking" in string(block.get("type")) for block in blocks),
            called=any(string(block.get("type")).endswith("tool_use") for block in blocks),
            finish=_FINISH.get(reason, "stop") if reason else "",
        )

    def count_answer(self, tokens: int) -> bytes:
        """See `Dialect.count_answer`."""
        return dump({"input_tokens": tokens}).encode()

    def error(self, status: int, code: str, message: str) -> bytes:
        """Anthropic's error object."""
        kind = _ERROR_TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
        return dump({"type": "error", "error": {"type": kind, "message": f"{message} ({code})"}}).encode()

    def error_event(self, status: int, code: str, message: str) -> bytes:
        """The `error` event that ends a stream."""
        return b"event: error\ndata: " + self.error(status, code, message) + b"\n\n"

    def waiting(self, key: str) -> Waiting:
        """The `ping` event, which clients expect at any time."""
        return Plain(b'event: ping\ndata: {"type": "ping"}\n\n')


def _thinking_budget(body: Body) -> int:
    """Tokens that the request itself grants for thinking; the output limit must be larger."""
    thinking = body.value("thinking")
    return (natural(thinking.get("budget_tokens")) or 0) if isinstance(thinking, dict) else 0


def _marker(parsed: Parsed, view: View) -> Any:
    """The cache marker for the block: as on a replaced message, where there is room for one."""
    body: Body = parsed.body
    shown_wires = [shown.message.wire.value for shown in view if shown.message.wire is not None]
    shown = anthropic_message.find_markers([*objects(body.value("system")), *objects(body.value("tools"))])
    shown += anthropic_message.find_markers(shown_wires)
    all_wires = [message.wire.value for message in parsed.conversation.messages]
    had = anthropic_message.find_markers(all_wires)
    kept = anthropic_message.find_markers(shown_wires)
    if len(had) == len(kept) or len(shown) >= MOST_MARKERS:
        return None
    return had[0]


def _message(item: Item) -> Message:
    if item.made is None:
        item.made = anthropic_message.read(item)
    made: Message = item.made
    return made


def _raw(shown: Shown, marker: Any) -> bytes:
    message = shown.message
    if message.wire is None:
        return dump(_made(shown)).encode()
    wire: Item = message.wire
    if shown.is_word_for_word:
        return wire.slice
    cuts = dict(shown.cuts)
    return dump(anthropic_message.edited(wire.value, shown.appended, cuts, marker)).encode()


def _made(shown: Shown) -> dict[str, Any]:
    """A message of our making."""
    text = "\n\n".join(
        [*(t.text for t in shown.message.texts), *([shown.appended] if shown.appended else [])]
    )
    return {"role": shown.message.role.value, "content": text}


def _plain(shown: Shown) -> bytes:
    """The message without cache markers, for recognising a prompt that was counted before."""
    wire = shown.message.wire
    if wire is None:
        return dump(_made(shown)).encode()
    edited = anthropic_message.edited(wire.value, shown.appended, dict(shown.cuts))
    return dump(anthropic_message.without_markers(edited)).encode()


def _without_none(usage: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in usage.items() if value is not None}


ANTHROPIC_MESSAGES = AnthropicMessages()
