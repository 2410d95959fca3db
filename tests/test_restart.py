"""
The proxy is restarted in the middle of a session, or two of them share one store.

Neither may change a byte of what goes upstream: what was rendered is stored, the first
that was stored wins, and what decides is counted again.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path

import pytest

from proxy.config import StoreConfig
from tests.support.agent_sessions import AgentSession, names, remembering_upstream
from tests.support.answers import Answer
from tests.support.discovery import Server
from tests.support.gate import Gate
from tests.support.proxied import Proxied, Walked, extends, proxied
from tests.support.recorded import Recorded
from tests.support.scripted import ScriptedUpstream

WINDOW = 4096
TURNS = 48


@contextlib.asynccontextmanager
async def restarting(upstream: ScriptedUpstream, path: Path, **context: float) -> AsyncIterator["Restarting"]:
    """A proxy on the SQLite file at *path* that can be started anew."""
    async with contextlib.AsyncExitStack() as stack:
        yield Restarting(upstream, StoreConfig(path=str(path)), context, stack)


class Restarting:
    """At each `restart` the old proxy is gone before the new one starts, and nothing but the file is left."""

    def __init__(
        self,
        upstream: ScriptedUpstream,
        store: StoreConfig,
        context: dict[str, float],
        stack: contextlib.AsyncExitStack,
    ) -> None:
        self._upstream = upstream
        self._store = store
        self._context = context
        self._stack = stack
        self._proxy: Proxied | None = None

    async def restart(self) -> None:
        await self._stack.aclose()
        running = proxied(self._upstream, store=self._store, **self._context)
        self._proxy = await self._stack.enter_async_context(running)

    async def send(self, session: AgentSession) -> Walked:
        if self._proxy is None:
            await self.restart()
        assert self._proxy is not None
        return await self._proxy.send(session.body())


def bodies(walked: list[Walked]) -> list[bytes]:
    return [body.body for walk in walked for body in (*walk.notes, *walk.turns)]


async def run(
    path: Path, *, restart_every: int = 0, has_tools: bool = True, **context: float
) -> list[Walked]:
    """A whole session; with a restart before every so many turns."""
    upstream = remembering_upstream(window=WINDOW)
    session = AgentSession(name="alice", has_tools=has_tools)
    walked = []
    async with upstream.running(), restarting(upstream, path, **context) as proxy:
        for turn in range(TURNS):
            if restart_every and turn % restart_every == restart_every - 1:
                await proxy.restart()
            walked.append(await proxy.send(session.step(turn > 0)))
    return walked


@pytest.mark.parametrize(
    ("has_tools", "compact_at"),
    [
        pytest.param(True, 0.6, id="compacting"),
        pytest.param(False, 0.6, id="compacting, without tools"),
        pytest.param(True, 0.0, id="trimming"),
    ],
)
async def test_a_restart_changes_no_byte(tmp_path: Path, has_tools: bool, compact_at: float) -> None:
    through = await run(tmp_path / "through.sqlite3", has_tools=has_tools, compact_at=compact_at)
    rewritten = sum(walk.outcome in {"compacted", "trimmed"} for walk in through)
    assert rewritten >= 3
    restarted = await run(
        tmp_path / "restarted.sqlite3", restart_every=3, has_tools=has_tools, compact_at=compact_at
    )
    assert bodies(restarted) == bodies(through)


async def test_without_a_store_that_lasts_a_restart_makes_notes_anew_and_fails_nothing() -> None:
    upstream = remembering_upstream(window=WINDOW)
    session = AgentSession(name="alice").step(40)
    async with upstream.running():
        for _ in range(2):
            async with proxied(upstream) as proxy:
                walk = await proxy.send(session.step().body())
                assert (walk.status, walk.outcome) == (200, "compacted")
                assert names(walk.view) == {"alice"}


async def test_a_failure_is_remembered_across_a_restart(tmp_path: Path) -> None:
    upstream = remembering_upstream(window=WINDOW)
    upstream.script = lambda request: Answer(text="") if upstream.is_notes(request) else None
    session = AgentSession(name="alice")
    tried = []
    async with upstream.running(), restarting(upstream, tmp_path / "store.sqlite3") as proxy:
        for turn in range(40):
            if tried and turn == tried[-1] + 1:
                await proxy.restart()
            walk = await proxy.send(session.step(turn > 0))
            assert walk.status == 200
            if walk.notes:
                tried.append(turn)
    assert [later - earlier for earlier, later in pairwise(tried)][:3] == [3, 6, 12]


def writing_differently(upstream: ScriptedUpstream, before: Gate | None = None) -> None:
    """Every set of notes differs from the last, as a model's do; *before* is waited for first."""

    def script(request: Recorded) -> Answer | None:
        if not upstream.is_notes(request):
            return None
        number = upstream.notes.index(request)
        return Answer(text=f"The agent looked through the shop; this is record {number}.", before=before)

    upstream.script = script


async def test_two_proxies_on_one_file_asked_at_once_send_one_view(tmp_path: Path) -> None:
    upstream = remembering_upstream(window=WINDOW, slots=4)
    gate = Gate()
    writing_differently(upstream, gate)
    store = StoreConfig(path=str(tmp_path / "store.sqlite3"))
    session = AgentSession(name="alice").step(14)
    async with (
        upstream.running(),
        proxied(upstream, store=store) as one,
        proxied(upstream, store=store) as two,
    ):
        asking = [asyncio.create_task(proxy.send(session.body())) for proxy in (one, two)]
        await upstream.until(lambda server: len(server.notes) == 2)
        gate.open()
        answered = await asyncio.gather(*asking)
        assert [walk.status for walk in answered] == [200, 200]
        # Each wrote notes, the first that were stored won.
        assert len({request.body for request in upstream.turns}) == 1
        view = upstream.turns[0].body
        session.step()
        later = [await proxy.send(session.body()) for proxy in (two, one)]
        assert [walk.outcome for walk in later] == ["reused", "reused"]
        assert later[0].view == later[1].view
        assert extends(later[0].view, view)


async def test_two_proxies_on_one_file_take_turns_in_one_session(tmp_path: Path) -> None:
    upstream = remembering_upstream(window=WINDOW)
    store = StoreConfig(path=str(tmp_path / "store.sqlite3"))
    session = AgentSession(name="alice")
    walked = []
    async with (
        upstream.running(),
        proxied(upstream, store=store) as one,
        proxied(upstream, store=store) as two,
    ):
        for turn in range(TURNS):
            walked.append(await (one, two)[turn % 2].send(session.step(turn > 0).body()))
    assert bodies(walked) == bodies(await run(tmp_path / "alone.sqlite3"))


async def test_trims_of_two_proxies_are_one(tmp_path: Path) -> None:
    upstream = remembering_upstream(window=WINDOW)
    store = StoreConfig(path=str(tmp_path / "store.sqlite3"))
    session = AgentSession(name="alice").step(30)
    async with (
        upstream.running(),
        proxied(upstream, store=store, compact_at=0.0) as one,
        proxied(upstream, store=store, compact_at=0.0, trim_to=0.5) as two,
    ):
        first = await one.send(session.body())
        assert first.outcome == "trimmed"
        second = await two.send(session.body())
        assert (second.outcome, second.view) == ("reused", first.view)


async def test_a_file_of_another_secret_is_of_no_use_to_anyone_else(tmp_path: Path) -> None:
    """Who knows the conversation but not the file's secret finds nothing in another file."""
    upstream = remembering_upstream(window=WINDOW)
    body = AgentSession(name="alice").step(14).body()
    async with upstream.running():
        for name in ("one", "two"):
            async with proxied(upstream, store=StoreConfig(path=str(tmp_path / f"{name}.sqlite3"))) as proxy:
                assert (await proxy.send(body)).outcome == "compacted"


async def test_what_is_stored_applies_while_the_upstream_does_not_say_its_window(tmp_path: Path) -> None:
    """A server that is being started, or overloaded, does not answer such questions yet."""
    upstream = remembering_upstream(window=WINDOW, server=Server.BARE)
    store = StoreConfig(path=str(tmp_path / "store.sqlite3"))
    session = AgentSession(name="alice").step(22)
    async with upstream.running():
        async with proxied(upstream, store=store, window=WINDOW) as proxy:
            compacted = await proxy.send(session.body())
            assert compacted.outcome == "compacted"
        async with proxied(upstream, store=store) as proxy:
            again = await proxy.send(session.body())
            assert (again.outcome, again.view) == ("reused", compacted.view)
            later = await proxy.send(session.step().body())
            assert extends(later.view, compacted.view)
            elsewhere = AgentSession(name="bob").step(22)
            other = await proxy.send(elsewhere.body())
            assert (other.outcome, other.view) == ("none", other.body)
