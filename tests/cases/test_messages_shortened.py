"""What a compaction or a trim makes of odd messages: roles, pairs, lists and reasoning stay as they must."""

import json
from typing import Any

import pytest

from tests.cases.odd_messages import PREFILLS, asks, neighbours, result, says, system, user
from tests.cases.table import case
from tests.support.prompts import STRICT, Rule, text_of
from tests.support.proxied import Proxied, Walked, proxied, wire
from tests.support.talks import NOTES_MARKER, Messages, block_of, call, noting_upstream, until_compacted

GOOD = "The agent read the pages one after the other."


async def compacted(brief: Messages, *, strict: frozenset[Rule] = STRICT, window: int = 4096) -> Walked:
    upstream = noting_upstream(GOOD, window=window)
    upstream.strict = strict
    async with upstream.running(), proxied(upstream) as proxy:
        return await until_compacted(proxy, list(brief))


async def test_r06_a_developer_message_is_kept_like_a_system_message() -> None:
    rules = system("Never touch the folder legacy.", "developer")
    walk = await compacted([rules, user("Port the shop.")])
    assert walk.messages[0] == rules


async def test_r08_notes_are_never_a_system_message() -> None:
    brief = [system("A"), user("1")]
    walk = await compacted(brief)
    assert [m for m in walk.messages if m["role"] == "system"] == brief[:1]
    assert block_of(walk)


async def test_r09_system_messages_of_the_client_are_kept_in_order_and_once() -> None:
    late = [system(f"From now on there are {n} agents.") for n in ("two", "three")]
    messages = [
        system("A"),
        user("1"),
        says("ok"),
        user("2"),
        late[0],
        says("ok"),
        user("3"),
        late[1],
        says("ok"),
    ]
    walk = await compacted([*messages, user("4")], strict=frozenset())
    text = json.dumps(walk.messages)
    assert [text.count(m["content"]) for m in late] == [1, 1]
    assert text.index("two agents") < text.index("three agents")


async def test_r10_users_and_assistants_still_alternate_where_calls_do_not_count() -> None:
    messages = [system("S"), user("The task.")]
    upstream = noting_upstream(GOOD)
    upstream.strict = STRICT | {Rule.ALTERNATION}
    async with upstream.running(), proxied(upstream) as proxy:
        walks = []
        for number in range(30):
            call(messages, "run", {"command": f"make part{number}"}, "exit 127\n" * 60)
            messages += [says("It is not there."), user(f"Try part {number + 1}.")]
            walks.append(await proxy.send({"messages": messages, "model": "m"}))
    assert {walk.status for walk in walks} == {200}
    assert {"compacted", "reused"} <= {walk.outcome for walk in walks}
    assert {notes.status for notes in upstream.notes} == {200}


@pytest.mark.parametrize("prefill", [case(i, rule, m[1:]) for i, (rule, m) in PREFILLS.items()])
async def test_only_what_the_client_left_open_stands_last(prefill: Messages) -> None:
    upstream, messages = noting_upstream(GOOD), [user("Read the pages.")]
    async with upstream.running(), proxied(upstream) as proxy:
        walk = await until_compacted(Ending(proxy.url, upstream, tuple(prefill)), messages)
    assert walk.messages[-len(prefill) :] == prefill
    assert walk.messages[-len(prefill) - 1]["role"] in ("tool", "user")
    assert all(notes.json["messages"][-1]["role"] in ("tool", "user") for notes in upstream.notes)
    # No two that did not stand side by side before.
    assert neighbours(walk.messages) == neighbours(prefill)


class Ending(Proxied):
    """Adds messages to the end of every request."""

    def __init__(self, url: str, upstream: Any, last: tuple[dict[str, Any], ...]) -> None:
        super().__init__(url, upstream)
        object.__setattr__(self, "_last", last)

    async def send(self, body: Any, **how: Any) -> Walked:
        value = json.loads(body)
        return await super().send(value | {"messages": [*value["messages"], *self._last]}, **how)  # type: ignore[attr-defined]


@pytest.mark.parametrize("has_user", [True, False], ids=["with a user", "without one"])
async def test_r15_a_shortened_request_always_has_a_user_message(has_user: bool) -> None:
    brief = [system("The rules of the house, in full. " * 240)]
    brief += [user("Show what changed")] if has_user else []
    upstream = noting_upstream(GOOD)
    upstream.strict = STRICT if has_user else STRICT - {Rule.NO_USER}
    messages = list(brief)
    async with upstream.running(), proxied(upstream, compact_at=0.5) as proxy:
        walks = []
        for number in range(8):
            call(
                messages,
                "bash",
                {"command": f"git diff --stat {number}"},
                "modified: a/long/path/of/a/file\n" * 60,
            )
            walks.append(await proxy.send({"messages": messages, "model": "m"}))
    assert {walk.status for walk in walks} == {200}
    shortened = [walk for walk in walks if walk.view != walk.body]
    assert shortened
    for walk in shortened:
        roles = [m["role"] for m in walk.messages]
        first = roles.index("assistant")
        assert has_user is False or roles[:first] == ["system", "user"]
        assert "user" in roles[:first] or "record-" not in json.dumps(walk.messages)


@pytest.mark.parametrize(
    "ids",
    [
        case("R25", "the same id in every round", ["functions.run:7"]),
        case("R26", "ids that begin anew in every round", ["look_up:0", "look_up:1"]),
    ],
)
@pytest.mark.parametrize("context", [{}, {"compact_at": 0}], ids=["notes", "trims"])
async def test_pairs_are_found_by_position(ids: list[str], context: dict[str, Any]) -> None:
    upstream, messages = noting_upstream(GOOD), [user("Search.")]
    upstream.strict = STRICT
    async with upstream.running(), proxied(upstream, **context) as proxy:
        walks = []
        for number in range(24):
            calls = [c for i in ids for c in asks(i, f'{{"q":{number}}}')["tool_calls"]]
            messages.append({"role": "assistant", "content": None, "tool_calls": calls})
            messages += [result(i, f"round {number}: " + "a row that was found\n" * 30) for i in ids]
            walks.append(await proxy.send(wire({"messages": messages, "model": "m"})))
    assert {walk.status for walk in walks} == {200}
    assert {"compacted" if not context else "trimmed", "reused"} <= {walk.outcome for walk in walks}
    for walk in walks:
        rounds = [text_of(m).split(":")[0] for m in walk.messages if m["role"] == "tool"]
        asked = [
            json.loads(c["function"]["arguments"]) for m in walk.messages for c in m.get("tool_calls") or ()
        ]
        assert [f"round {arguments['q']}" for arguments in asked] == rounds


async def test_r18_a_list_of_parts_is_shortened_inside_its_parts() -> None:
    upstream, messages = noting_upstream(GOOD), [user("Look.")]
    async with upstream.running(), proxied(upstream, compact_at=0) as proxy:
        for number in range(12):
            parts = [{"type": "text", "text": f"{number} " + "a value of this row\n" * 60}]
            messages += [asks(f"c{number}"), result(f"c{number}", parts)]
            walk = await proxy.send({"messages": messages, "model": "m"})
    shown = [m["content"] for m in walk.messages if m["role"] == "tool"]
    assert all(isinstance(content, list) and [p["type"] for p in content] == ["text"] for content in shown)
    assert any("were cut here" in content[0]["text"] for content in shown)


async def test_r31_reasoning_of_old_turns_goes_before_that_of_the_running_loop() -> None:
    upstream, messages = noting_upstream(GOOD), [user("Think.")]
    async with upstream.running(), proxied(upstream, compact_at=0) as proxy:
        walks = []
        for number in range(12):
            thought = f"thought {number}: " + "let me see what follows from this " * 40
            messages += [
                asks(f"c{number}", content="", reasoning_content=thought),
                result(f"c{number}", "ok"),
            ]
            walks.append(await proxy.send({"messages": messages, "model": "m"}))
    sizes = [walk.tokens for walk in walks]
    assert sizes[1] - sizes[0] > 250, "it is counted"
    trimmed = next(walk for walk in walks if walk.outcome == "trimmed")
    thoughts = [m["reasoning_content"] for m in trimmed.messages if m["role"] == "assistant"]
    newest = [m for m in json.loads(trimmed.body)["messages"] if m["role"] == "assistant"][-1]
    assert thoughts[-1] == newest["reasoning_content"]
    assert "were cut here" in thoughts[0]
    assert NOTES_MARKER not in json.dumps(trimmed.messages)
