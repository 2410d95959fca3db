"""
Render and count a scripted upstream's prompt, and refuse what strict templates refuse.

A prompt is a tuple of segments: one for the tools, one a message, one that opens the
answer. A token is `chars_per_token` characters of a segment, the last one may be
shorter; so a text appended to a message keeps the tokens before it, as a real
tokenizer nearly does. Content parts that are not text count as their JSON.
"""

import json
from collections.abc import Sequence
from enum import StrEnum
from itertools import pairwise
from typing import Any

CHARS_PER_TOKEN = 4

Prompt = tuple[str, ...]


class Rule(StrEnum):
    """What a chat template may refuse."""

    NEIGHBOURING_USERS = "neighbouring users"
    LATE_SYSTEM = "late system"
    NO_USER = "no user"
    ORPHAN_RESULT = "orphan result"
    ALTERNATION = "alternation"


# Not with `ALTERNATION`: a template that looks past calls and results refuses the
# history of an agent whose user spoke after a call, through no fault of ours.
STRICT = frozenset(Rule) - {Rule.ALTERNATION}

_MESSAGES = {
    Rule.NEIGHBOURING_USERS: "After the optional system message, two user messages follow one another.",
    Rule.LATE_SYSTEM: "System message must be at the beginning.",
    Rule.NO_USER: "No user query found in messages.",
    Rule.ORPHAN_RESULT: "Tool result without a call in the assistant message before it.",
    Rule.ALTERNATION: "Conversation roles must alternate user/assistant/user/assistant/...",
}


def render(body: dict[str, Any]) -> Prompt:
    """The prompt of a chat completions body."""
    segments: list[str] = []
    if body.get("tools"):
        segments.append(f"<|tools|>\n{_compact(body['tools'])}<|end|>\n")
    messages = [m for m in body.get("messages") or [] if isinstance(m, dict)]
    for message in messages:
        segments.append(_segment(message))
    if not messages or messages[-1].get("role") != "assistant":
        segments.append("<|assistant|>\n")
    return tuple(segments)


def count(prompt: Sequence[str], chars_per_token: int = CHARS_PER_TOKEN) -> int:
    """Tokens of *prompt*."""
    return sum(-(-len(segment) // chars_per_token) for segment in prompt)


def common(left: Sequence[str], right: Sequence[str], chars_per_token: int = CHARS_PER_TOKEN) -> int:
    """Tokens at the start of both."""
    total = 0
    for a, b in zip(left, right, strict=False):
        if a != b:
            return total + _shared(a, b) // chars_per_token
        total += -(-len(a) // chars_per_token)
    return total


def _shared(left: str, right: str) -> int:
    return next(
        (i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right))
    )


def refusal(messages: Sequence[Any], rules: frozenset[Rule]) -> tuple[Rule, str] | None:
    """The first rule that *messages* break, with what the server says; None if all is well."""
    for rule, is_broken in _CHECKS.items():
        if rule in rules and is_broken(messages):
            return rule, _MESSAGES[rule]
    return None


def text_of(message: Any) -> str:
    """The content of a message as one string."""
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "".join(
        p["text"] if isinstance(p, dict) and isinstance(p.get("text"), str) else _compact(p) for p in parts
    )


def _segment(message: dict[str, Any]) -> str:
    said = [f"<|{message.get('role')}|>\n"]
    if message.get("reasoning_content"):
        said.append(f"<think>{message['reasoning_content']}</think>")
    said.append(text_of(message))
    for call in message.get("tool_calls") or []:
        said.append(f"<call>{_compact(call.get('function') if isinstance(call, dict) else call)}</call>")
    # The end mark is a segment's last token or two, so that appended text keeps the rest.
    said.append("<|end|>\n")
    return "".join(said)


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _roles(messages: Sequence[Any]) -> list[str]:
    return [str(m.get("role")) if isinstance(m, dict) else "" for m in messages]


def _has_neighbouring_users(messages: Sequence[Any]) -> bool:
    roles = _roles(messages)
    return any(a == b == "user" for a, b in pairwise(roles))


def _has_late_system(messages: Sequence[Any]) -> bool:
    roles = _roles(messages)
    first_other = next((i for i, role in enumerate(roles) if role not in {"system", "developer"}), len(roles))
    return any(role in {"system", "developer"} for role in roles[first_other:])


def _has_no_user(messages: Sequence[Any]) -> bool:
    return "user" not in _roles(messages)


def _has_orphan_result(messages: Sequence[Any]) -> bool:
    open_ids: list[Any] = []
    for message in messages:
        if not isinstance(message, dict):
            continue
        if message.get("role") == "assistant":
            open_ids = [c.get("id") for c in message.get("tool_calls") or [] if isinstance(c, dict)]
        elif message.get("role") == "tool":
            if message.get("tool_call_id") not in open_ids:
                return True
            open_ids.remove(message.get("tool_call_id"))
        else:
            open_ids = []
    return False


def _does_not_alternate(messages: Sequence[Any]) -> bool:
    spoken = [
        m.get("role")
        for m in messages
        if isinstance(m, dict) and m.get("role") in {"user", "assistant"} and not m.get("tool_calls")
    ]
    return any(role != ("user", "assistant")[i % 2] for i, role in enumerate(spoken))


_CHECKS = {
    Rule.NO_USER: _has_no_user,
    Rule.LATE_SYSTEM: _has_late_system,
    Rule.NEIGHBOURING_USERS: _has_neighbouring_users,
    Rule.ORPHAN_RESULT: _has_orphan_result,
    Rule.ALTERNATION: _does_not_alternate,
}
