"""
Tools and brief that take most of the budget, or more than all of it.

Nothing loops: the gain rule alone decides, one compaction a request, and what nothing can
shorten goes up as it came.
"""

import json
from itertools import pairwise
from typing import Any

import pytest

from tests.support.agent_sessions import TOOLS, AgentSession, remembering_upstream
from tests.support.answers import Answer
from tests.support.discovery import Server
from tests.support.prompts import CHARS_PER_TOKEN
from tests.support.proxied import wire
from tests.support.recorded import Recorded
from tests.support.scripted import ScriptedUpstream
from tests.support.watched import Got, Watched, watched

WINDOW = 4096
BUDGET = 3072
WORDS = "tax rate table order line total sum customer address invoice date round half even country export "


def brief_of(tokens: int) -> str:
    """A task of about so many tokens."""
    chars = tokens * CHARS_PER_TOKEN
    return (WORDS * (chars // len(WORDS) + 1))[:chars]


def session(*, brief: int = 0, tools: int = 0) -> AgentSession:
    """One whose task and tools are about that large."""
    task = f"Port the shop to the new tax rules.\n{brief_of(brief)}"
    offered = [*TOOLS]
    for i in range(tools // 215):
        function = {"name": f"tool_{i}", "description": brief_of(200), "parameters": {"type": "object"}}
        offered.append({"type": "function", "function": function})
    return AgentSession(name="alice", task=task, members={"tools": offered})


async def go_on(
    proxy: Watched, upstream: ScriptedUpstream, alice: AgentSession, turns: int
) -> tuple[list[Got], list[int]]:
    """What each request got, and how many notes were asked for on its way."""
    got, asked = [], []
    for _ in range(turns):
        before = len(upstream.notes)
        got.append(await proxy.send(wire(alice.body())))
        asked.append(len(upstream.notes) - before)
        alice.step()
    return got, asked


@pytest.mark.parametrize("share", [0.30, 0.65, 0.75, 0.80, 0.83, 0.85, 0.90])
@pytest.mark.parametrize("name", ["brief", "tools"])
async def test_a_large_floor_never_loops(name: str, share: float) -> None:
    """Over `compact_to`, over `compact_at`, and where the reserve has to give way for any turns."""
    upstream = remembering_upstream(window=WINDOW)
    alice = session(**{name: int(share * BUDGET)})
    async with upstream.running(), watched(upstream.url) as proxy:
        got, asked = await go_on(proxy, upstream, alice, 40)
    assert {g.status for g in got} == {200}
    assert len(upstream.turns) == 40, "no overflow answer on the way"
    assert max(asked) <= 1, "one compaction a request"
    compacted = [i for i, number in enumerate(asked) if number]
    assert all(later - earlier >= 3 for earlier, later in pairwise(compacted))
    outcomes = [g.outcome for g in got]
    assert outcomes.count("compacted") + outcomes.count("trimmed") <= 40 // 3
    for turn in upstream.turns:
        assert upstream.count(turn.json) <= WINDOW - WINDOW // 16, "an answer has room"
        assert alice.task in turn.messages[1]["content"], "the brief is never cut"
        assert turn.json["tools"] == alice.members["tools"]


@pytest.mark.parametrize("share", [0.75, 0.80, 0.85, 0.90])
@pytest.mark.parametrize("name", ["brief", "tools"])
async def test_cuts_rest_over_a_large_floor_where_no_notes_are_made(name: str, share: float) -> None:
    upstream = remembering_upstream(window=WINDOW)
    alice = session(**{name: int(share * BUDGET)})
    async with upstream.running(), watched(upstream.url, compact_at=0.0) as proxy:
        got, _ = await go_on(proxy, upstream, alice, 40)
    assert {g.status for g in got} == {200}
    trims = [i for i, g in enumerate(got) if g.outcome == "trimmed"]
    assert all(later - earlier >= 3 for earlier, later in pairwise(trims))
    assert len(upstream.turns) == 40


async def test_a_limit_that_the_server_holds_to_leaves_nothing_to_give_way() -> None:
    upstream = remembering_upstream(window=WINDOW)
    upstream.server = Server.VLLM
    alice = session(tools=int(0.8 * BUDGET))
    limit = WINDOW - BUDGET
    async with upstream.running(), watched(upstream.url) as proxy:
        for _ in range(20):
            got = await proxy.send(wire(alice.body(max_tokens=limit)))
            assert got.status == 200
            alice.step()
    assert all(upstream.count(turn.json) + limit <= WINDOW for turn in upstream.turns)


@pytest.mark.parametrize("limit", [1024, None], ids=["with a limit", "without one"])
async def test_a_block_that_has_grown_gives_way_where_little_is_left(limit: int | None) -> None:
    """What users said, and the list of calls, grow with the session; the room beside tools does not."""
    upstream = remembering_upstream(window=WINDOW)
    upstream.server = Server.VLLM
    alice = session(tools=int(0.75 * BUDGET))
    members = {} if limit is None else {"max_tokens": limit}
    outcomes = []
    async with upstream.running(), watched(upstream.url) as proxy:
        for number in range(40):
            got = await proxy.send(wire(alice.body(**members)))
            assert got.status == 200, f"call {number}"
            outcomes.append(got.outcome)
            alice.step()
            if number % 3 == 2:
                alice.messages.append({"role": "user", "content": f"Rule {number}: {WORDS * 2}"})
    assert ("trimmed", "trimmed") not in pairwise(outcomes), "a cut rests"


async def test_turns_so_large_that_every_other_would_be_worth_it_leave_three_turns_between() -> None:
    """Each rewrite costs the server's cached prompt; meanwhile a trim serves."""
    upstream = remembering_upstream(window=WINDOW)
    alice = AgentSession(name="alice", result_words=500)
    async with upstream.running(), watched(upstream.url) as proxy:
        got, asked = await go_on(proxy, upstream, alice, 24)
    assert {g.status for g in got} == {200}
    compacted = [i for i, number in enumerate(asked) if number]
    assert len(compacted) > 3
    assert all(later - earlier >= 3 for earlier, later in pairwise(compacted))


async def test_notes_that_fail_over_a_large_floor_are_not_tried_for_ever() -> None:
    upstream = remembering_upstream(window=WINDOW)
    upstream.script = lambda request: Answer() if upstream.is_notes(request) else None
    alice = session(brief=int(0.65 * BUDGET))
    async with upstream.running(), watched(upstream.url) as proxy:
        got, asked = await go_on(proxy, upstream, alice, 40)
    assert {g.status for g in got} == {200}
    assert max(asked) <= 1
    assert sum(asked) <= 5, "after 3, 6, 12 and 12 turns"
    assert all(upstream.count(turn.json) < WINDOW for turn in upstream.turns)


@pytest.mark.parametrize("turns", [0, 1, 6], ids=["the first request", "one turn", "six turns"])
@pytest.mark.parametrize("name", ["brief", "tools"])
async def test_a_floor_over_the_budget_goes_up_untouched_and_the_upstream_decides(
    name: str, turns: int
) -> None:
    """Between budget and window the request may well be answered: nothing of ours stands in its way."""
    upstream = remembering_upstream(window=WINDOW)
    alice = session(**{name: int(1.08 * BUDGET)}).step(turns)
    alice.messages[2:] = [m if m["role"] != "tool" else m | {"content": "ok"} for m in alice.messages[2:]]
    raw = wire(alice.body())
    assert BUDGET < upstream.count(json.loads(raw)) < WINDOW
    async with upstream.running(), watched(upstream.url) as proxy:
        got = await proxy.send(raw)
    assert got.status == 200
    assert upstream.chats[-1].body == raw
    assert len(upstream.notes) <= 1
    if not upstream.notes:
        [event] = proxy.events("context.over_budget")
        assert event["budget"] == BUDGET
        assert event["tokens"] > BUDGET
        assert event["brief_and_tools"] > 0.8 * BUDGET
        assert "nothing that may be cut" in event["why"]


async def test_a_floor_just_under_the_window_is_answered_as_long_as_anything_can_be_cut() -> None:
    """Over the budget it goes up as it came; once refused it is cut to what the window takes."""
    upstream = remembering_upstream(window=WINDOW)
    alice = session(brief=int(1.0 * BUDGET))
    async with upstream.running(), watched(upstream.url) as proxy:
        got, asked = await go_on(proxy, upstream, alice, 25)
    assert upstream.count(alice.body()) > WINDOW
    assert {g.status for g in got} == {200}
    assert max(asked) <= 1
    assert sum(asked) <= 5
    assert len(upstream.turns) <= 2 * 25


@pytest.mark.parametrize("stream", [True, False], ids=["streaming", "not streaming"])
@pytest.mark.parametrize("turns", [0, 5], ids=["the first request", "five turns"])
async def test_a_brief_over_the_window_gets_the_upstreams_own_answer(turns: int, stream: bool) -> None:
    upstream = remembering_upstream(window=WINDOW)
    alice = session(brief=int(1.3 * WINDOW)).step(turns)
    raw = wire(alice.body(stream=stream))
    async with upstream.running(), watched(upstream.url) as proxy:
        first = await proxy.send(raw)
        asked = len(upstream.chats)
        again = await proxy.send(raw)
        direct = await proxy.send(raw)
    assert (first.status, first.is_whole) == (400, True)
    assert first.error["type"] == "exceed_context_size_error"
    assert first.error["n_ctx"] == WINDOW
    assert (first.body, first.body) == (again.body, direct.body)
    assert {turn.body for turn in upstream.turns} == {raw}
    assert upstream.notes == []
    assert asked == 1, "nothing shorter could be sent"
    assert len(upstream.chats) == 3
    assert proxy.events("context.over_budget")


async def test_a_request_whose_own_limit_fills_the_window_goes_untouched() -> None:
    upstream = remembering_upstream(window=WINDOW)
    raw = wire(AgentSession(name="alice").step(16).body(max_tokens=WINDOW))
    upstream.server = Server.VLLM
    async with upstream.running(), watched(upstream.url) as proxy:
        got = await proxy.send(raw)
    assert got.status == 400
    assert upstream.notes == []
    assert {turn.body for turn in upstream.turns} == {raw}


async def test_one_compaction_a_request_even_after_an_overflow() -> None:
    """A request that was compacted and still overflows is trimmed, not compacted again."""
    upstream = remembering_upstream(window=WINDOW)
    good = upstream.script
    refused: list[bytes] = []

    def script(request: Recorded) -> Answer | None:
        if not upstream.is_notes(request) and upstream.notes and not refused:
            refused.append(request.body)
            error: dict[str, Any] = {"code": "context_length_exceeded", "message": "too long for the context"}
            return Answer(status=400, body={"error": error})
        return good(request)

    upstream.script = script
    alice = AgentSession(name="alice").step(16)
    async with upstream.running(), watched(upstream.url, compact_to=0.5) as proxy:
        got = await proxy.send(wire(alice.body()))
    assert got.status == 200
    assert len(upstream.notes) == 1
    assert len(upstream.turns) == 2
    assert len(upstream.turns[1].body) < len(refused[0])
    assert len(proxy.events("context.compacted")) == 1
