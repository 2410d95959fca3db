"""
Say whether what went upstream keeps the laws, by the bodies alone.

Pairs and briefs are found anew here, as plainly as can be: a fault of the core must not
hide itself.
"""

import json
from itertools import pairwise
from typing import Any

from tests.laws.generated import Wire
from tests.laws.walk import Sent

MARKER = "were cut here to fit the context window"
SYSTEM = ("system", "developer")
RESULT = ("tool", "function")


def received(raw: bytes) -> list[Wire]:
    """The messages of a body."""
    messages: list[Wire] = json.loads(raw)["messages"]
    return messages


def first_assistant(messages: list[Wire]) -> int:
    """Where the brief ends."""
    return next((i for i, m in enumerate(messages) if m["role"] == "assistant"), len(messages))


def pairs(messages: list[Wire]) -> list[tuple[int, int]]:
    """Indices of calls' messages and their results': each result with the nearest open call of its id."""
    found = []
    open_calls: list[tuple[int, str]] = []
    for i, message in enumerate(messages):
        for call in message.get("tool_calls") or []:
            open_calls.append((i, call.get("id", call.get("function", {}).get("name", ""))))
        if message.get("function_call"):
            open_calls.append((i, message["function_call"]["name"]))
        if message["role"] in RESULT:
            answered = message.get("tool_call_id", message.get("name", ""))
            at = next((k for k in range(len(open_calls) - 1, -1, -1) if open_calls[k][1] == answered), None)
            if at is not None:
                found.append((open_calls.pop(at)[0], i))
    return found


def check_view(asked: list[Wire], sent: Sent) -> None:
    """Laws 2 and 6 for one request."""
    went = received(sent.body)
    replaced = sent.rewrite.replaced if sent.rewrite else 0
    end = first_assistant(asked)
    users = [i for i in range(end) if asked[i]["role"] == "user"]
    ours = 1 if replaced and not users else 0
    tail = asked[end + replaced :]
    assert len(went) == end + ours + len(tail)
    _check_brief(asked[:end], went[: end + ours], sent.rewrite.block if sent.rewrite and replaced else "")
    may_be_cut = bool(sent.rewrite and sent.rewrite.cuts)
    for original, shown in zip(tail, went[end + ours :], strict=True):
        assert shown == original or (may_be_cut and is_cut_of(shown, original)), "the tail is word for word"
    if replaced:
        assert tail, "something is left"
        assert tail[0]["role"] == "assistant", "the tail begins with an assistant message"
    for made, answered in pairs(asked):
        assert (made < end + replaced) == (answered < end + replaced), "no call is parted from its result"
    # Our own message never meets another user.
    neighbours = _neighbours(asked[:end]) + _neighbours(tail)
    assert _neighbours(went) == neighbours, "no two users of our making meet"
    systems = [m for m in went if m["role"] in SYSTEM]
    assert systems == [m for m in (*asked[:end], *tail) if m["role"] in SYSTEM] or may_be_cut
    assert [m["role"] for m in went[end + ours :]] == [m["role"] for m in tail], "no system message moves"


def _check_brief(asked: list[Wire], went: list[Wire], block: str) -> None:
    if not block:
        assert went == asked, "the brief is word for word"
        return
    users = [i for i, message in enumerate(asked) if message["role"] == "user"]
    if not users:
        assert went == [*asked, {"role": "user", "content": block}]
        return
    at = users[-1]
    assert went[:at] + went[at + 1 :] == asked[:at] + asked[at + 1 :], "the brief is word for word"
    original, shown = asked[at], went[at]
    assert {k: v for k, v in shown.items() if k != "content"} == {
        k: v for k, v in original.items() if k != "content"
    }
    content = original.get("content")
    if isinstance(content, list):
        assert shown["content"] == [*content, {"type": "text", "text": block}]
    else:
        assert shown["content"] == (f"{content}\n\n{block}" if content else block)


def _neighbours(messages: list[Wire]) -> int:
    roles = [message["role"] for message in messages]
    return sum(a == b == "user" for a, b in pairwise(roles))


def is_cut_of(shown: Any, original: Any) -> bool:
    """Whether *shown* differs from *original* only in strings that a trim cut, and says so."""
    if isinstance(original, str) and isinstance(shown, str):
        if shown == original:
            return True
        return MARKER in shown and len(shown) < len(original) and _is_json_where_it_was(shown, original)
    if isinstance(original, dict) and isinstance(shown, dict):
        return original.keys() == shown.keys() and all(is_cut_of(shown[k], original[k]) for k in original)
    if isinstance(original, list) and isinstance(shown, list):
        return len(original) == len(shown) and all(map(is_cut_of, shown, original))
    return bool(shown == original)


def _is_json_where_it_was(shown: str, original: str) -> bool:
    try:
        value = json.loads(original)
    except ValueError:
        return True
    return not isinstance(value, dict) or isinstance(json.loads(shown), dict)


def extends(after: list[bytes], before: list[bytes]) -> bool:
    """Whether a view, as bytes, begins with all of another."""
    return after[: len(before)] == before
