"""
OpenAI's `POST /v1/chat/completions`, as llama.cpp and most others speak it.

Fields that are not known here go through as they came. What the notes request changes
stands in the tables below.
"""

import json
from collections.abc import Sequence
from typing import Any

from proxy.core.messages import Conversation, Message, Role, Shown, View, find_turns
from proxy.dialects import chat_message
from proxy.dialects.base import NotesFormat, Parsed, Piece, Usage, Waiting
from proxy.dialects.known import Known
from proxy.dialects.prewarming import one_token
from proxy.dialects.slices import Body, Item, array, dump, put_together, take_apart
from proxy.dialects.sse import last_data
from proxy.dialects.values import model_name
from proxy.dialects.waiting import Plain
from proxy.errors import NotUnderstood

# Every field that sets an output limit; llama.cpp takes the first of these that stands.
_LIMITS = ("n_predict", "max_completion_tokens", "max_tokens")

# What would shape or cut the text of the notes. Sampling stays.
_SHAPES = (
    "response_format", "stop", "n", "logprobs", "top_logprobs", "n_probs", "grammar", "json_schema",
    "min_tokens", "ignore_eos", "prediction", "modalities", "audio", "verbosity", "t_max_predict_ms",
    "return_progress", "guided_json", "guided_regex", "guided_choice", "guided_grammar", "structured_outputs",
)  # fmt: skip

# Prompt fields beside the messages: a prompt counted before is recognised by them too.
_PROMPT_FIELDS = (
    "model", "tools", "functions", "tool_choice", "chat_template", "chat_template_kwargs", "reasoning_effort",
    "documents", "add_generation_prompt", "response_format", "json_schema",
)  # fmt: skip


class ChatCompletions:
    """The dialect; it has no state."""

    name = "chat"
    endpoint = "/chat/completions"

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
                tool_names=_tool_names(body),
                output_limit=_output_limit(body),
                stream=body.value("stream") is True,
                fixed_texts=tuple(body.fields[f].raw for f in ("tools", "functions") if f in body.fields),
            ),
            body=body,
            outside=outside,
        )

    def render(self, parsed: Parsed, view: View) -> bytes:
        """See `Dialect.render`."""
        return put_together(parsed.body, {"messages": array(map(_raw, view))})

    def render_prewarm(self, parsed: Parsed, view: View) -> bytes:
        """See `Dialect.render_prewarm`."""
        messages = array(map(_raw, view))
        return put_together(parsed.body, {"messages": messages, **one_token(parsed.body, _LIMITS)})

    def message_bytes(self, view: View) -> Sequence[bytes]:
        """See `Dialect.message_bytes`."""
        return list(map(_raw, view))

    def render_notes(self, parsed: Parsed, view: View, how: NotesFormat) -> bytes:
        """See `Dialect.render_notes`."""
        body: Body = parsed.body
        raws = [_raw(shown) for shown in view]
        last = view[-1]
        if last.message.role in (Role.TOOL, Role.USER):
            appended = f"{last.appended}\n\n{how.instruction}" if last.appended else how.instruction
            raws[-1] = _raw(Shown(message=last.message, appended=appended, cuts=last.cuts))
        else:
            raws.append(dump({"role": "user", "content": how.instruction}).encode())
        changed: dict[str, str | bytes | None] = {"messages": array(raws), "stream": "true"}
        changed["stream_options"] = dump({"include_usage": True})
        limits = [field for field in _LIMITS if field in body.fields] or [how.limit_field]
        changed |= dict.fromkeys(limits, dump(how.limit))
        changed |= {field: None for field in _SHAPES if field in body.fields}
        has_tools = bool(body.value("tools"))
        if has_tools and how.forbid_tools:
            changed["tool_choice"] = dump("none")
        elif "tool_choice" in body.fields:
            # Without tools some servers refuse it, and a forced call would leave no text.
            changed["tool_choice"] = dump("auto") if has_tools else None
        if "functions" in body.fields or "function_call" in body.fields:
            changed["function_call"] = dump("none") if body.value("functions") else None
        if not has_tools:
            # An empty list of tools, or a word about calls without any, is refused by some.
            changed |= {field: None for field in ("tools", "parallel_tool_calls") if field in body.fields}
        return put_together(body, changed)

    def read_usage(self, head: bytes, tail: bytes, *, is_stream: bool) -> Usage | None:
        """From `usage`, else from llama.cpp's `timings`."""
        datas = reversed(last_data(tail)) if is_stream else [tail]
        for data in datas:
            answer = _json(data)
            if not isinstance(answer, dict):
                continue
            usage = _usage(answer) or _timings(answer)
            if usage:
                return usage
        return None

    def read_event(self, data: bytes) -> Piece:
        """One chunk; `delta` or `message` of its first choice."""
        return _piece(_json(data))

    def read_whole(self, body: bytes) -> Piece:
        """See `Dialect.read_whole`."""
        return _piece(_json(body))

    def count_answer(self, tokens: int) -> bytes:
        """See `Dialect.count_answer`."""
        return dump({"input_tokens": tokens}).encode()

    def error(self, status: int, code: str, message: str) -> bytes:
        """OpenAI's error object."""
        kind = "invalid_request_error" if status < 500 else "server_error"
        return dump({"error": {"message": message, "type": kind, "param": None, "code": code}}).encode()

    def error_event(self, status: int, code: str, message: str) -> bytes:
        """OpenAI SDKs raise on a chunk that holds an `error`; `[DONE]` ends the stream for the others."""
        return b"data: " + self.error(status, code, message) + b"\n\ndata: [DONE]\n\n"

    def waiting(self, key: str) -> Waiting:
        """
        A comment without the blank line: with it, clients that saw an `id:` before would
        dispatch an empty event.
        """
        return Plain(b": waiting\n")


def _message(item: Item) -> Message:
    if item.made is None:
        item.made = chat_message.read(item)
    made: Message = item.made
    return made


def _raw(shown: Shown) -> bytes:
    message = shown.message
    if message.wire is None:
        text = "\n\n".join(t.text for t in message.texts)
        whole = f"{text}\n\n{shown.appended}" if shown.appended else text
        return dump({"role": message.role.value, "content": whole}).encode()
    wire: Item = message.wire
    if not shown.appended and not shown.cuts:
        return wire.slice
    return dump(chat_message.edited(wire.value, shown.appended, dict(shown.cuts))).encode()


def _tool_names(body: Body) -> tuple[str, ...]:
    names: list[str] = []
    for field in ("tools", "functions"):
        offered = body.value(field)
        for tool in offered if isinstance(offered, list) else []:
            function = tool.get("function", tool) if isinstance(tool, dict) else None
            name = function.get("name") if isinstance(function, dict) else None
            if isinstance(name, str):
                names.append(name)
    return tuple(names)


def _output_limit(body: Body) -> int | None:
    for field in _LIMITS:
        value = body.value(field)
        if isinstance(value, int) and not isinstance(value, bool):
            # llama.cpp reads -1 as "no limit".
            return value if value >= 0 else None
    return None


def _json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _usage(answer: dict[str, Any]) -> Usage | None:
    usage = answer.get("usage")
    if not isinstance(usage, dict):
        return None
    prompt, completion = _natural(usage.get("prompt_tokens")), _natural(usage.get("completion_tokens"))
    if not prompt:
        return None
    details = usage.get("prompt_tokens_details")
    cached = _natural(details.get("cached_tokens")) if isinstance(details, dict) else None
    return Usage(prompt=prompt, completion=completion or 0, cached=cached)


def _timings(answer: dict[str, Any]) -> Usage | None:
    timings = answer.get("timings")
    if not isinstance(timings, dict):
        return None
    cached, processed = _natural(timings.get("cache_n")), _natural(timings.get("prompt_n"))
    if processed is None:
        return None
    completion = _natural(timings.get("predicted_n")) or 0
    prompt = processed + (cached or 0)
    return Usage(prompt=prompt, completion=completion, cached=cached) if prompt else None


def _natural(value: Any) -> int | None:
    # Over a billion is nonsense, whoever says it.
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**9 else None


_FINISH = {"stop": "stop", "length": "length", "tool_calls": "tool", "function_call": "tool"}


def _piece(answer: Any) -> Piece:
    if not isinstance(answer, dict):
        return Piece()
    if answer.get("error"):
        return Piece(error=json.dumps(answer["error"]))
    choices = answer.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    if not isinstance(choice, dict):
        return Piece()
    said = choice.get("delta") or choice.get("message")
    said = said if isinstance(said, dict) else {}
    finish = choice.get("finish_reason")
    return Piece(
        text=chat_message.plain_text(said.get("content")),
        reasoning=any(said.get(key) for key in chat_message.REASONING),
        called=bool(said.get("tool_calls") or said.get("function_call")),
        finish=_FINISH.get(finish, "stop") if isinstance(finish, str) else "",
    )


CHAT_COMPLETIONS = ChatCompletions()
