"""Odd messages go through as they came while they fit, and stay in order once old turns are replaced."""

import json
from itertools import pairwise
from typing import Any

import pytest

from tests.cases.odd_messages import GO, PREFILLS, TALKS, neighbours
from tests.cases.table import case
from tests.support import wire_bytes
from tests.support.fronted import CHAT, fronted, playing
from tests.support.prompts import STRICT, Rule
from tests.support.proxied import proxied
from tests.support.raw_client import ask
from tests.support.raw_upstream import Send
from tests.support.talks import Messages, noting_upstream, until_compacted

GOOD = "The agent read the pages one after the other."
ANY = [case(i, rule, [*brief, *turns]) for i, (rule, brief, turns) in TALKS.items()]
ANY += [case(i, rule, messages) for i, (rule, messages) in PREFILLS.items()]


def echoing() -> Any:
    return playing(lambda r: [Send(wire_bytes.response(r.body, content_type="x/echo"))])


@pytest.mark.parametrize("messages", ANY)
async def test_what_fits_goes_through_byte_for_byte(messages: Messages) -> None:
    raw = json.dumps({"model": "m", "messages": messages, "tools": []}).encode()
    async with echoing().running() as upstream, fronted(upstream.url, context={"window": 8192}) as url:
        answer, echo = await ask(url, CHAT, body=raw)
    assert (answer.status, echo) == (200, raw)


async def test_r30_members_that_nobody_knows_go_through() -> None:
    members = {"top_k": 33, "chat_template_kwargs": {"enable_thinking": False}, "x": [None, 1.50]}
    raw = json.dumps({"messages": GO} | members).encode()
    async with echoing().running() as upstream, fronted(upstream.url, context={"window": 8192}) as url:
        answer, echo = await ask(url, CHAT, body=raw)
    assert (answer.status, echo) == (200, raw)


# Once old turns are replaced

TURNS = pytest.mark.parametrize(("brief", "turns"), [case(i, *talk) for i, talk in TALKS.items()])


def strict_for(messages: Messages) -> frozenset[Rule]:
    """What a strict server refuses, less what the client itself does."""
    rules = set(STRICT)
    late = next((i for i, m in enumerate(messages) if m["role"] == "user"), 0)
    if any(m["role"] == "system" for m in messages[late:]):
        rules.discard(Rule.LATE_SYSTEM)
    if any(a["role"] == b["role"] == "user" for a, b in pairwise(messages)):
        rules.discard(Rule.NEIGHBOURING_USERS)
    return frozenset(rules)


@TURNS
async def test_what_is_replaced_leaves_a_history_that_strict_servers_take(
    brief: Messages, turns: Messages
) -> None:
    upstream = noting_upstream(GOOD)
    upstream.strict = strict_for([*brief, *turns])
    messages = [*brief, *turns]
    async with upstream.running(), proxied(upstream) as proxy:
        walk = await until_compacted(proxy, messages)
        messages += turns if turns[-1]["role"] != "user" else turns[:-1]
        later = await proxy.send({"messages": messages, "model": "m"})
        _, page = await ask(proxy.url, "/metrics", method="GET")
    assert b"context_faults_total 0.0" in page
    assert (later.status, later.outcome) == (200, "reused")
    for seen in (walk, later):
        assert seen.messages[: len(brief)] != brief, "the block is in the brief"
        assert [m["role"] for m in seen.messages[: len(brief)]] == [m["role"] for m in brief]
        assert neighbours(seen.messages) <= neighbours(json.loads(seen.body)["messages"])
        assert all(isinstance(m["content"], str | list) for m in seen.messages if m["role"] == "user")
    # What came last goes on as the client wrote it.
    tail = messages[-len(turns) + (turns[-1]["role"] == "user") :]
    assert later.messages[-len(tail) :] == tail
    assert all(m["messages"][-1]["role"] in ("user", "tool") for m in (n.json for n in upstream.notes))
