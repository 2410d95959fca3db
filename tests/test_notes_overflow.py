"""A notes request that is refused as too long teaches the window; where that helps it is no failure."""

import pytest

from tests.support.agent_sessions import AgentSession, naming_marks, remembering_upstream
from tests.support.answers import Answer
from tests.support.recorded import Recorded
from tests.support.scripted import ScriptedUpstream
from tests.support.watched import watched

WINDOW = 4096
POOL = {"code": 500, "message": "Context size has been exceeded.", "type": "server_error"}


def about_to_be_compacted(upstream: ScriptedUpstream, window: int) -> AgentSession:
    """The next turn is over `compact_at` in a *window* that the request fills but for a default reserve."""
    alice = AgentSession(name="alice")
    while upstream.count(alice.step().body()) < 0.6 * (window - 1024):
        pass
    return alice


def refusing_notes(upstream: ScriptedUpstream, *answers: Answer) -> None:
    """The first requests for notes get *answers* instead of notes."""
    good = naming_marks(upstream)

    def script(request: Recorded) -> Answer | None:
        at = len(upstream.notes) - 1
        return answers[at] if upstream.is_notes(request) and at < len(answers) else good(request)

    upstream.script = script


async def test_a_window_made_smaller_is_noticed_by_the_notes_request() -> None:
    upstream = remembering_upstream(window=2 * WINDOW)
    alice = about_to_be_compacted(upstream, 2 * WINDOW)
    async with upstream.running(), watched(upstream.url) as proxy:
        before = await proxy.send(AgentSession(name="bob").body())
        upstream.window = WINDOW
        got = await proxy.send(alice.body())
        later = await proxy.send(alice.step().body())
    assert (before.outcome, got.outcome, later.outcome) == ("none", "compacted", "reused")
    assert upstream.notes[0].status == 400
    assert {request.status for request in upstream.notes[1:]} == {200}
    assert {request.status for request in upstream.turns} == {200}, "the agent's own was never refused"
    assert proxy.names().count("context.compaction_failed") == 0


async def test_a_full_pool_is_asked_again_alone() -> None:
    upstream = remembering_upstream(window=WINDOW, slots=2)
    refusing_notes(upstream, Answer(status=500, body={"error": POOL}))
    alice = about_to_be_compacted(upstream, WINDOW)
    async with upstream.running(), watched(upstream.url) as proxy:
        got = await proxy.send(alice.body())
    assert (got.status, got.outcome) == (200, "compacted")
    assert [request.status for request in upstream.notes] == [500, 200]
    assert upstream.notes[0].body == upstream.notes[1].body
    assert proxy.events("context.window_learned") == []


@pytest.mark.parametrize("slots", [1, 2])
async def test_a_pool_that_stays_full_is_a_failure(slots: int) -> None:
    upstream = remembering_upstream(window=WINDOW, slots=slots)
    refusing_notes(upstream, *[Answer(status=500, body={"error": POOL})] * 5)
    alice = about_to_be_compacted(upstream, WINDOW)
    async with upstream.running(), watched(upstream.url) as proxy:
        got = await proxy.send(alice.body())
    assert (got.status, got.outcome) == (200, "failed")
    assert len(upstream.notes) == slots
    assert [event["reason"] for event in proxy.events("context.compaction_failed")] == ["overflow"]


async def test_a_server_that_says_less_each_time_is_asked_twice() -> None:
    upstream = remembering_upstream(window=WINDOW)
    less = [
        Answer(status=400, body={"error": {"message": f"prompt is too long: 9000 tokens > {n} maximum"}})
        for n in range(WINDOW - 1, WINDOW - 20, -1)
    ]
    refusing_notes(upstream, *less)
    alice = about_to_be_compacted(upstream, WINDOW)
    async with upstream.running(), watched(upstream.url) as proxy:
        got = await proxy.send(alice.body())
    assert got.status == 200
    assert len(upstream.notes) == 2
