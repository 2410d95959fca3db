"""
After notes that came to nothing the conversation goes on without, and later tries again.

Turns are counted from the failure; the pause grows with every failure in a row.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from proxy.config import StoreConfig
from tests.support.agent_sessions import AgentSession, naming_marks, remembering_upstream
from tests.support.answers import Answer
from tests.support.recorded import Recorded
from tests.support.scripted import ScriptedUpstream
from tests.support.watched import MEMORY, Watched, watched

WINDOW = 4096
# The first turn at which the session is to be compacted; found by the test itself.
MOST_TURNS = 60


def broken_notes(upstream: ScriptedUpstream) -> Callable[[Recorded], Answer | None]:
    """A model that never writes any."""
    return lambda request: Answer() if upstream.is_notes(request) else None


async def tried_at(
    proxy: Watched, upstream: ScriptedUpstream, session: AgentSession, turns: int
) -> list[int]:
    """Go on for *turns* turns; the numbers of those at which notes were asked for."""
    tried: list[int] = []
    for _ in range(turns):
        before = len(upstream.notes)
        got = await proxy.send(session.body())
        assert got.status == 200
        if len(upstream.notes) > before:
            tried.append(session.turns)
        session.step()
    return tried


def since_first(turns: list[int]) -> list[int]:
    return [turn - turns[0] for turn in turns]


async def test_notes_are_tried_again_after_3_6_and_then_every_12_turns() -> None:
    upstream = remembering_upstream(window=WINDOW)
    upstream.script = broken_notes(upstream)
    async with upstream.running(), watched(upstream.url) as proxy:
        tried = await tried_at(proxy, upstream, AgentSession(name="alice"), MOST_TURNS)
    assert since_first(tried)[:5] == [0, 3, 9, 21, 33]
    said = [event["retry_after_turns"] for event in proxy.events("context.compaction_failed")]
    assert said[:5] == [3, 6, 12, 12, 12]


async def test_the_same_request_again_is_no_new_turn() -> None:
    upstream = remembering_upstream(window=WINDOW)
    upstream.script = broken_notes(upstream)
    async with upstream.running(), watched(upstream.url) as proxy:
        session = AgentSession(name="alice").step(16)
        outcomes = [(await proxy.send(session.body())).outcome for _ in range(6)]
    assert outcomes == ["failed", "none", "none", "none", "none", "none"]
    assert len(upstream.notes) == 1


async def test_a_success_resets_the_pause() -> None:
    upstream = remembering_upstream(window=WINDOW)
    broken, whole = broken_notes(upstream), naming_marks(upstream)
    session = AgentSession(name="alice")
    upstream.script = broken
    async with upstream.running(), watched(upstream.url) as proxy:
        while len(upstream.notes) < 2:
            await tried_at(proxy, upstream, session, 1)
        upstream.script = whole
        while not proxy.events("context.compacted"):
            await tried_at(proxy, upstream, session, 1)
        upstream.script = broken
        tried = await tried_at(proxy, upstream, session, MOST_TURNS)
    assert since_first(tried)[:3] == [0, 3, 9]


async def test_each_conversation_has_a_pause_of_its_own() -> None:
    upstream = remembering_upstream(window=WINDOW)
    broken, whole = broken_notes(upstream), naming_marks(upstream)
    alice, bob = AgentSession(name="alice").step(16), AgentSession(name="bob").step(16)
    upstream.script = lambda request: (broken if b"mark-alice" in request.body else whole)(request)
    async with upstream.running(), watched(upstream.url) as proxy:
        outcomes = [(await proxy.send(session.body())).outcome for session in (alice, bob, alice, bob)]
    assert outcomes == ["failed", "compacted", "none", "reused"]


@pytest.mark.parametrize("kind", ["sqlite", "memory"])
async def test_the_pause_survives_a_restart_where_the_store_does(kind: str, tmp_path: Path) -> None:
    store = StoreConfig(kind="sqlite", path=str(tmp_path / "store.db")) if kind == "sqlite" else MEMORY
    upstream = remembering_upstream(window=WINDOW)
    upstream.script = broken_notes(upstream)
    session = AgentSession(name="alice")
    tried: list[int] = []
    async with upstream.running():
        async with watched(upstream.url, store=store) as proxy:
            while len(tried) < 2:
                tried += await tried_at(proxy, upstream, session, 1)
        async with watched(upstream.url, store=store) as proxy:
            tried += await tried_at(proxy, upstream, session, 8)
    assert since_first(tried) == ([0, 3, 9] if kind == "sqlite" else [0, 3, 4, 7])
