"""
A history of several windows that arrives whole: the store was lost, or the agent moved here.

It costs one request, not one failure a turn: notes are made in steps, each saved by itself.
"""

from itertools import pairwise
from pathlib import Path

import pytest

from proxy.config import StoreConfig
from tests.support.agent_sessions import AgentSession, naming_marks, remembering_upstream
from tests.support.answers import Answer
from tests.support.gate import Gate
from tests.support.proxied import extends, messages_bytes, wire
from tests.support.raw_client import RawRequest
from tests.support.recorded import Recorded
from tests.support.scripted import ScriptedUpstream
from tests.support.watched import CHAT, watched

WINDOW = 4096
TURNS = 120


def history() -> AgentSession:
    return AgentSession(name="alice").step(TURNS)


def failing_at(upstream: ScriptedUpstream, number: int) -> None:
    """The notes request *number*, from 1, and every later one comes to nothing."""
    good = naming_marks(upstream)

    def script(request: Recorded) -> Answer | None:
        fails = upstream.is_notes(request) and len(upstream.notes) >= number
        return Answer() if fails else good(request)

    upstream.script = script


@pytest.mark.parametrize("stream", [True, False], ids=["streaming", "not streaming"])
async def test_one_request_and_the_agent_goes_on(stream: bool) -> None:
    upstream = remembering_upstream(window=WINDOW)
    alice = history()
    assert upstream.count(alice.body()) > 3.5 * WINDOW
    async with upstream.running(), watched(upstream.url) as proxy:
        first = await proxy.send(wire(alice.body(stream=stream)))
        steps = len(upstream.notes)
        later = [await proxy.send(wire(alice.step().body(stream=stream))) for _ in range(3)]
    assert (first.status, first.outcome) == (200, "compacted")
    assert [got.outcome for got in later] == ["reused"] * 3
    assert steps > 2
    assert len(upstream.notes) == steps
    assert len(upstream.turns) == 4, "no overflow answer on the way"
    for request in upstream.chats:
        assert upstream.count(request.json) < WINDOW
    assert {event["trigger"] for event in proxy.events("context.compacted")} <= {"resumed", "threshold"}
    assert [event["folded"] for event in proxy.events("context.compacted")] == [False] + [True] * (steps - 1)


async def test_each_step_folds_the_last_and_is_saved_by_itself() -> None:
    upstream = remembering_upstream(window=WINDOW)
    saved: list[int] = []
    good = naming_marks(upstream)
    async with upstream.running(), watched(upstream.url) as proxy:

        def script(request: Recorded) -> Answer | None:
            if upstream.is_notes(request):
                saved.append(len(proxy.events("context.compacted")))
            return good(request)

        upstream.script = script
        await proxy.send(wire(history().body()))
        assert await proxy.stored() >= len(saved)
    assert saved == list(range(len(saved)))
    ends = [event["replaced_to"] for event in proxy.events("context.compacted")]
    assert ends == sorted(set(ends))
    for earlier, later in pairwise(upstream.notes):
        assert b"<record-" in messages_bytes(later.body)
        assert messages_bytes(earlier.body) != messages_bytes(later.body)


@pytest.mark.parametrize("number", [1, 2, 4])
async def test_where_a_step_fails_the_rest_is_trimmed(number: int) -> None:
    """What was made before is kept, and the request fits all the same."""
    upstream = remembering_upstream(window=WINDOW)
    failing_at(upstream, number)
    alice = history()
    async with upstream.running(), watched(upstream.url) as proxy:
        first = await proxy.send(wire(alice.body()))
        asked = len(upstream.notes)
        later = await proxy.send(wire(alice.step().body()))
    assert (first.status, later.status) == (200, 200)
    assert asked == number
    assert len(upstream.notes) == asked, "the pause holds"
    assert len(proxy.events("context.compacted")) == number - 1
    assert len(proxy.events("context.compaction_failed")) == 1
    assert len(proxy.events("context.trimmed")) == 1
    assert len(upstream.turns) == 2, "no overflow answer on the way"
    assert all(upstream.count(turn.json) < WINDOW for turn in upstream.turns)
    assert extends(upstream.turns[1].body, upstream.turns[0].body)
    assert (b"The agent went through these" in upstream.turns[0].body) is (number > 1)


async def test_steps_that_were_made_are_not_made_again_after_a_restart(tmp_path: Path) -> None:
    store = StoreConfig(kind="sqlite", path=str(tmp_path / "store.db"))
    upstream = remembering_upstream(window=WINDOW)
    alice = history()
    async with upstream.running():
        async with watched(upstream.url, store=store) as proxy:
            await proxy.send(wire(alice.body()))
        asked = len(upstream.notes)
        async with watched(upstream.url, store=store) as proxy:
            got = await proxy.send(wire(alice.body()))
    assert got.outcome == "reused"
    assert len(upstream.notes) == asked
    assert upstream.turns[0].body == upstream.turns[1].body


async def test_a_client_that_leaves_between_steps_finds_those_that_were_made() -> None:
    """Its retry goes on from there: trimmed, since its notes count as failed."""

    upstream = remembering_upstream(window=WINDOW)
    good = naming_marks(upstream)
    upstream.script = lambda request: (
        Answer(text="Never.", before=Gate())
        if upstream.is_notes(request) and len(upstream.notes) == 3
        else good(request)
    )
    raw = wire(history().body())
    async with upstream.running(), watched(upstream.url) as proxy:
        async with RawRequest(proxy.url, CHAT, body=raw) as request:
            await upstream.until(lambda u: len(u.notes) == 3)
            request.close()
            await upstream.until(lambda u: u.notes[2].is_done)
        got = await proxy.send(raw)
    assert (got.status, got.outcome) == (200, "trimmed")
    assert len(upstream.notes) == 3
    assert len(proxy.events("context.compacted")) == 2
    assert [event["reason"] for event in proxy.events("context.compaction_failed")] == ["abandoned"]
    assert b"The agent went through these" in upstream.turns[0].body


async def test_a_result_of_three_windows_costs_no_history() -> None:
    upstream = remembering_upstream(window=WINDOW)
    alice = AgentSession(name="alice").step(8)
    alice.messages[-1]["content"] = "row of a table that is far too long\n" * 1400
    assert upstream.count(alice.body()) > 3 * WINDOW
    async with upstream.running(), watched(upstream.url) as proxy:
        got = await proxy.send(wire(alice.body()))
        later = [(await proxy.send(wire(alice.step().body()))).status for _ in range(6)]
    assert got.status == 200
    assert later == [200] * 6
    assert all(upstream.count(request.json) < WINDOW for request in upstream.chats)
    assert len(upstream.turns) == 7, "no overflow answer on the way"
    assert all(turn.messages[0] == alice.messages[0] for turn in upstream.turns)
    assert all(alice.task in turn.messages[1]["content"] for turn in upstream.turns)
