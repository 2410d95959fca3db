"""
OpenAI's `POST /v1/responses`, which Codex and others speak, and llama.cpp serves.

A request whose history is held by the server (`previous_response_id`, `conversation`) is
not understood here: only the server knows what it holds.
"""

import json
from collections.abc import Sequence
from typing import Any

from proxy.core.messages import Conversation, Message, Role, Shown, View, find_turns
from proxy.dialects import responses_item
from proxy.dialects.base import NotesFormat, Parsed, Piece, Usage, Waiting
from proxy.dialects.known import Known
from proxy.dialects.prewarming import one_token
from proxy.dialects.slices import Body, Item, array, dump, put_together, take_apart
from proxy.dialects.values import last_usage, model_name, natural, objects, read_json, string, usage_of
from proxy.dialects.waiting import Announced, response, sse_event
from proxy.errors import HeldByServer, NotUnderstood

# What would shape or cut the text of the notes.
_SHAPES = ("text", "top_logprobs", "max_tool_calls", "background", "truncation", "prompt")
_PROMPT_FIELDS = (
    "model",
    "instructions",
    "tools",
    "tool_choice",
    "reasoning",
    "text",
    "truncation",
    "prompt",
)
_FINISH = {"completed": "stop", "incomplete": "length", "failed": "stop", "cancelled": "stop"}


class Responses:
    """The dialect; it has no state."""

    name = "responses"
    endpoint = "/responses"

    def parse(self, raw: bytes, known: Known | None = None) -> Parsed:
        """Raises HeldByServer where the history is not in the request, NotUnderstood for other bodies."""
        body = take_apart(raw, ("input",), known)
        if body.value("previous_response_id") or body.value("conversation"):
            raise HeldByServer(
                "input: the history is held by the server; it is neither measured nor compacted"
            )
        items = body.lists.get("input")
        text = body.value("input")
        if items:
            messages = _messages(items)
        elif isinstance(text, str) and text:
            messages = _messages((_user_item(text),))
        else:
            raise NotUnderstood("input: expected a text or a non-empty array")
        brief_end, turns = find_turns(messages)
        outside = b"\0".join(body.fields[f].slice for f in _PROMPT_FIELDS if f in body.fields)
        limit = natural(body.value("max_output_tokens"))
        return Parsed(
            conversation=Conversation(
                messages=messages,
                brief_end=brief_end,
                turns=turns,
                model=model_name(body.value("model")),
                tool_names=tuple(_tool_names(body.value("tools"))),
                output_limit=limit,
                stream=body.value("stream") is True,
                fixed_texts=tuple(body.fields[f].raw for f in ("instructions", "tools") if f in body.fields),
            ),
            body=body,
            outside=outside,
        )

    def render(self, parsed: Parsed, view: View) -> bytes:
        """See `Dialect.render`."""
        return put_together(parsed.body, {"input": array(map(_raw, view))})

    def render_prewarm(self, parsed: Parsed, view: View) -> bytes:
        """See `Dialect.render_prewarm`."""
        items = array(map(_raw, view))
        return put_together(parsed.body, {"input": items, **one_token(parsed.body, ("max_output_tokens",))})

    def message_bytes(self, view: View) -> Sequence[bytes]:
        """See `Dialect.message_bytes`."""
        return list(map(_raw, view))

    def render_notes(self, parsed: Parsed, view: View, how: NotesFormat) -> bytes:
        """See `Dialect.render_notes`."""
        body: Body = parsed.body
        raws = [_raw(shown) for shown in view]
        last = view[-1]
        wire = last.message.wire
        takes_text = wire is None or responses_item.takes_text(wire.value)
        if last.message.role in (Role.TOOL, Role.USER) and takes_text:
            appended = f"{last.appended}\n\n{how.instruction}" if last.appended else how.instruction
            raws[-1] = _raw(Shown(message=last.message, appended=appended, cuts=last.cuts))
        else:
            raws.append(_user_item(how.instruction).slice)
        changed: dict[str, str | bytes | None] = {
            "input": array(raws),
            "stream": "true",
            "max_output_tokens": dump(how.limit),
        }
        changed |= {field: None for field in _SHAPES if field in body.fields}
        has_tools = bool(body.value("tools"))
        if has_tools and how.forbid_tools:
            changed["tool_choice"] = dump("none")
        elif "tool_choice" in body.fields:
            changed["tool_choice"] = dump("auto") if has_tools else None
        if not has_tools:
            # An empty list of tools, or a word about calls without any, is refused by some.
            changed |= {field: None for field in ("tools", "parallel_tool_calls") if field in body.fields}
        return put_together(body, changed)

    def read_usage(self, head: bytes, tail: bytes, *, is_stream: bool) -> Usage | None:
        """From the last event, which repeats the whole answer, or from the answer."""
        usage = last_usage(tail) if is_stream else usage_of(read_json(tail))
        prompt, completion = natural(usage.get("input_tokens")), natural(usage.get("output_tokens"))
        if not prompt:
            return None
        details = usage.get("input_tokens_details")
        cached = natural(details.get("cached_tokens")) if isinstance(details, dict) else None
        return Usage(prompt=prompt, completion=completion or 0, cached=cached)

    def read_event(self, data: bytes) -> Piece:
        """See `Dialect.read_event`."""
        event = read_json(data)
        if not isinstance(event, dict):
            return Piece()
        kind = string(event.get("type"))
        if kind == "error" or (not kind and event.get("error")):
            return Piece(error=json.dumps(event.get("error") or event))
        if kind == "response.failed":
            answer = event.get("response")
            failed = answer.get("error") if isinstance(answer, dict) else None
            return Piece(error=json.dumps(failed or event))
        item = event.get("item")
        item_kind = string(item.get("type")) if isinstance(item, dict) else ""
        answer = event.get("response")
        status = string(answer.get("status")) if isinstance(answer, dict) else ""
        return Piece(
            text=string(event.get("delta")) if kind == "response.output_text.delta" else "",
            reasoning="reasoning" in kind or item_kind == "reasoning",
            called=kind.startswith("response.function_call") or item_kind.endswith("_call"),
            finish=_FINISH.get(status, ""),
        )

    def read_whole(self, body: bytes) -> Piece:
        """See `Dialect.read_whole`."""
        answer = read_json(body)
        if not isinstance(answer, dict):
            return Piece()
        if answer.get("error"):
            return Piece(error=json.dumps(answer["error"]))
        output = objects(answer.get("output"))
        parts = [part for item in output for part in objects(item.get("content"))]
        return Piece(
            text="".join(string(part.get("text")) for part in parts if part.get("type") == "output_text"),
            reasoning=any(item.get("type") == "reasoning" for item in output),
            called=any(string(item.get("type")).endswith("_call") for item in output),
            finish=_FINISH.get(string(answer.get("status")), ""),
        )

    def count_answer(self, tokens: int) -> bytes:
        """See `Dialect.count_answer`."""
        return dump({"input_tokens": tokens}).encode()

    def error(self, status: int, code: str, message: str) -> bytes:
        """OpenAI's error object."""
        kind = "invalid_request_error" if status < 500 else "server_error"
        return dump({"error": {"message": message, "type": kind, "param": None, "code": code}}).encode()

    def error_event(self, status: int, code: str, message: str) -> bytes:
        """SDKs raise on `error`; Codex reads `response.failed`."""
        error: dict[str, object] = {
            "type": "error",
            "code": code,
            "message": message,
            "param": None,
            "sequence_number": 0,
        }
        failed: dict[str, object] = {
            "type": "response.failed",
            "sequence_number": 1,
            "response": response("resp_failed", "failed", error={"code": code, "message": message}),
        }
        return sse_event(error) + sse_event(failed)

    def waiting(self, key: str) -> Waiting:
        """See `Announced`."""
        return Announced(key)


def _messages(items: tuple[Item, ...]) -> tuple[Message, ...]:
    messages: list[Message] = []
    after_output = False
    for item in items:
        made: dict[bool, Message] = item.made or {}
        message = made.get(after_output)
        if message is None:
            message = made[after_output] = responses_item.read(item, after_output=after_output)
            item.made = made
        messages.append(message)
        after_output = message.role is Role.ASSISTANT
    return tuple(messages)


def _user_item(text: str) -> Item:
    wire = {"type": "message", "role": "user", "content": text}
    return Item(dump(wire), wire)


def _raw(shown: Shown) -> bytes:
    message = shown.message
    if message.wire is None:
        text = "\n\n".join([*(t.text for t in message.texts), *([shown.appended] if shown.appended else [])])
        return dump({"type": "message", "role": message.role.value, "content": text}).encode()
    if shown.is_word_for_word:
        wire: Item = message.wire
        return wire.slice
    return dump(responses_item.edited(message.wire.value, shown.appended, dict(shown.cuts))).encode()


def _tool_names(tools: Any) -> list[str]:
    names: list[str] = []
    for tool in objects(tools):
        name = string(tool.get("name")) or string(tool.get("type"))
        names += [name] if name else []
        # A namespace holds tools of its own.
        names += _tool_names(tool.get("tools"))
    return names


RESPONSES = Responses()
