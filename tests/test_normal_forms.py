"""
History that comes back in another form, as real clients send it, keeps its compaction.

Each row is a client's habit. A difference with meaning is in the other table, and loses it.
"""

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.agent_sessions import AgentSession, remembering_upstream
from tests.support.proxied import Walked, proxied

WINDOW = 4096
Messages = list[dict[str, Any]]
Change = Callable[[Messages], None]


def each(role: str, change: Callable[[dict[str, Any]], None]) -> Change:
    """*change* to every message of *role*."""

    def apply(messages: Messages) -> None:
        for message in messages:
            if message["role"] == role:
                change(message)

    return apply


def cache_control_on(*places: int) -> Change:
    def apply(messages: Messages) -> None:
        for at in places:
            text = messages[at]["content"]
            part = {"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}
            messages[at]["content"] = [part]

    return apply


def renumbered(messages: Messages) -> None:
    ids: dict[str, str] = {}
    for message in messages:
        for call in message.get("tool_calls", ()):
            call["id"] = ids.setdefault(call["id"], f"chatcmpl-tool-{len(ids)}")
        if "tool_call_id" in message:
            message["tool_call_id"] = ids[message["tool_call_id"]]


def respaced(message: dict[str, Any]) -> None:
    for call in message.get("tool_calls", ()):
        arguments = json.loads(call["function"]["arguments"])
        turned = dict(reversed(arguments.items()))
        call["function"]["arguments"] = json.dumps(turned, indent=2, separators=(" , ", " : "))


def as_parts(message: dict[str, Any]) -> None:
    message["content"] = [{"type": "text", "text": message["content"]}]


def in_front(text: str) -> Callable[[dict[str, Any]], None]:
    def change(message: dict[str, Any]) -> None:
        message["content"] = f"{text}\n{message['content']}"

    return change


async def sent_twice(before: Change, after: Change) -> Walked:
    """What becomes of a compacted history that was sent as *before* has it and comes back as *after* does."""
    upstream = remembering_upstream(window=WINDOW)
    session = AgentSession(name="alice").step(14)
    async with upstream.running(), proxied(upstream) as proxy:
        first, second = session.body(), copy.deepcopy(session.step().body())
        first = copy.deepcopy(first)
        before(first["messages"])
        after(second["messages"])
        walk = await proxy.send(first)
        assert walk.outcome == "compacted"
        return await proxy.send(second)


def nothing(_: Messages) -> None:
    """As it was."""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(cache_control_on(1, -1), cache_control_on(1, 5, -1), id="cache_control moves"),
        pytest.param(nothing, each("tool", as_parts), id="a result as one part"),
        pytest.param(each("user", as_parts), nothing, id="a user message as a string"),
        pytest.param(nothing, each("assistant", as_parts), id="an answer as one part"),
        pytest.param(nothing, renumbered, id="ids of calls renumbered"),
        pytest.param(nothing, each("assistant", respaced), id="space and order in arguments"),
        pytest.param(
            nothing, each("system", in_front("Today is 2026-11-30.")), id="the date in the system prompt"
        ),
        pytest.param(nothing, lambda m: m.pop(0), id="the system prompt goes"),
        pytest.param(
            each("system", lambda m: m.update(role="developer")), nothing, id="developer instead of system"
        ),
        pytest.param(
            each("user", in_front("<system-reminder>\nThe file list is old.\n</system-reminder>")),
            nothing,
            id="a system-reminder goes",
        ),
        pytest.param(
            nothing,
            each("tool", in_front("<system-reminder>one</system-reminder>")),
            id="a system-reminder comes to results",
        ),
        pytest.param(each("user", in_front("Today's date is 2026-11-30.")), nothing, id="a date line goes"),
        pytest.param(
            each("assistant", lambda m: m.update(reasoning_content="Hm.")), nothing, id="reasoning dropped"
        ),
        pytest.param(nothing, each("assistant", lambda m: m.update(reasoning="Hm.")), id="reasoning comes"),
        pytest.param(nothing, each("assistant", lambda m: m.update(refusal=None)), id="null members"),
        pytest.param(
            each("assistant", lambda m: m.update(content=None)),
            each("assistant", lambda m: m.update(content="")),
            id="content null, then empty",
        ),
        pytest.param(
            each("assistant", lambda m: m.update(content=None)),
            each("assistant", lambda m: m.pop("content")),
            id="content null, then absent",
        ),
        pytest.param(nothing, each("tool", lambda m: m.update(name="read_file")), id="a result named"),
        pytest.param(
            nothing, each("assistant", lambda m: m.update(id="msg_1", provider_specific_fields={"a": 1})),
            id="members of the client's own",
        ),
    ],
)  # fmt: skip
async def test_a_form_without_meaning_keeps_the_compaction(before: Change, after: Change) -> None:
    walk = await sent_twice(before, after)
    assert (walk.status, walk.outcome, walk.notes) == (200, "reused", ())


def changed(role: str, text: str) -> Change:
    """The last but one message of *role* says *text*."""

    def apply(messages: Messages) -> None:
        [m for m in messages if m["role"] == role][-2]["content"] = text

    return apply


def other_argument(messages: Messages) -> None:
    function = messages[2]["tool_calls"][0]["function"]
    function["arguments"] = json.dumps({"path": "another.py"})


@pytest.mark.parametrize(
    "after",
    [
        pytest.param(changed("assistant", "Something else."), id="another answer"),
        pytest.param(changed("tool", "Another result."), id="another result"),
        pytest.param(each("user", in_front("Also for Rome.")), id="another task"),
        pytest.param(other_argument, id="another argument"),
        pytest.param(
            lambda m: m[2]["tool_calls"][0]["function"].update(name="write_file"), id="another tool called"
        ),
        pytest.param(lambda m: m.pop(4) and m.pop(4), id="a turn pruned"),
        pytest.param(lambda m: m.insert(2, {"role": "user", "content": "Go."}), id="a message put in"),
        pytest.param(
            lambda m: m[1].update(
                content=[
                    {"type": "text", "text": m[1]["content"]},
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
                ]
            ),
            id="an image added",
        ),
        pytest.param(
            lambda m: m.insert(6, {"role": "system", "content": "From now on be brief."}),
            id="a late system message",
        ),
    ],
)
async def test_a_difference_with_meaning_is_another_history(after: Change) -> None:
    walk = await sent_twice(nothing, after)
    assert walk.status == 200
    assert len(walk.notes) == 1
