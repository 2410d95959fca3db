"""
The store may fail in any way: requests go on, views stay as they were, and somebody is told.
"""

import json
import sqlite3
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from proxy.config import StoreConfig
from proxy.errors import StoreError
from proxy.stores.base import Shelf, Store
from proxy.stores.memory import MemoryStore
from proxy.stores.sqlite import SqliteStore
from tests.support.agent_sessions import AgentSession, remembering_upstream
from tests.support.proxied import extends, wire
from tests.support.raw_client import ask
from tests.support.watched import Got, Watched, watched

WINDOW = 4096


class FullDisk(MemoryStore):
    """Can be read."""

    async def add(self, shelf: Shelf, digest: bytes, value: bytes) -> bytes:
        raise StoreError("store: writing failed: database or disk is full; make room")


class ReadOnly(FullDisk):
    async def add(self, shelf: Shelf, digest: bytes, value: bytes) -> bytes:
        raise StoreError("store: writing failed: attempt to write a readonly database; allow it")


class Locked(MemoryStore):
    async def add(self, shelf: Shelf, digest: bytes, value: bytes) -> bytes:
        raise StoreError("store: writing failed: database is locked; close the other program")

    async def longest(self, shelf: Shelf, digests: Sequence[bytes]) -> tuple[int, bytes] | None:
        raise StoreError("store: reading failed: database is locked; close the other program")


class Unforeseen(MemoryStore):
    async def longest(self, shelf: Shelf, digests: Sequence[bytes]) -> tuple[int, bytes] | None:
        raise ZeroDivisionError("a fault of the store's own")


def opens(store: Callable[[], Store]) -> Callable[[Any], None]:
    """Put a store that fails in the place of the file."""

    async def open_it() -> Store:
        return store()

    def change(proxy: Any) -> None:
        proxy.store._inner_open = open_it

    return change


def is_a_folder(path: Path) -> None:
    path.mkdir()


def is_anothers(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.executescript("PRAGMA application_id = 7; CREATE TABLE bookmarks (url)")
    connection.close()


async def go_on(proxy: Watched, session: AgentSession, turns: int) -> list[Got]:
    return [await proxy.send(wire(session.step().body())) for _ in range(turns)]


async def readiness(proxy: Watched) -> tuple[int, dict[str, Any]]:
    answer, body = await ask(proxy.url, "/readyz", method="GET")
    return answer.status, json.loads(body)


def stand(got: list[Got], upstream: Any) -> None:
    """Every request was answered, and no view moved but by a compaction."""
    assert {g.status for g in got} == {200}
    made = [i for i, g in enumerate(got) if g.outcome == "compacted"]
    assert {g.outcome for g in got[made[0] :]} == {"compacted", "reused"}
    views = [turn.body for turn in upstream.turns]
    moved = [i for i, (earlier, later) in enumerate(pairwise(views), 1) if not extends(later, earlier)]
    assert moved == made


@pytest.mark.parametrize(
    ("store", "says"),
    [
        pytest.param(FullDisk, "disk is full", id="full disk"),
        pytest.param(ReadOnly, "readonly", id="read-only"),
        pytest.param(Locked, "locked", id="locked"),
        pytest.param(Unforeseen, "ZeroDivisionError", id="a fault of its own"),
    ],
)
async def test_a_store_that_fails_in_use(store: Callable[[], Store], says: str) -> None:
    upstream = remembering_upstream(window=WINDOW)
    async with (
        upstream.running(),
        watched(upstream.url, store=StoreConfig(), change=opens(store)) as proxy,
    ):
        got = await go_on(proxy, AgentSession(name="alice").step(6), 14)
        status, told = await readiness(proxy)
    stand(got, upstream)
    [warning] = proxy.events("store.failed")
    assert says in warning["why"]
    assert proxy.counted("store_errors_total") >= 1
    assert (status, told["ready"]) == (200, True)
    assert says in told["store"]
    assert proxy.counted("context_faults_total") == 0


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        pytest.param(is_a_folder, "no regular file", id="a folder in its place"),
        pytest.param(is_anothers, "database of another program", id="of another program"),
    ],
)
async def test_a_file_that_cannot_be_opened(tmp_path: Path, spoil: Callable[[Path], None], says: str) -> None:
    path = tmp_path / "store.db"
    spoil(path)
    upstream = remembering_upstream(window=WINDOW)
    store = StoreConfig(path=str(path))
    async with upstream.running(), watched(upstream.url, store=store) as proxy:
        got = await go_on(proxy, AgentSession(name="alice").step(6), 14)
        status, told = await readiness(proxy)
    stand(got, upstream)
    [warning] = proxy.events("store.failed")
    assert says in warning["why"]
    assert status == 200
    assert says in told["store"]


async def test_a_file_that_another_program_has_locked(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    await (await SqliteStore.open(path)).close()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("PRAGMA locking_mode = EXCLUSIVE")
    other.execute("BEGIN EXCLUSIVE")
    upstream = remembering_upstream(window=WINDOW)
    try:
        async with (
            upstream.running(),
            watched(upstream.url, store=StoreConfig(path=str(path))) as proxy,
        ):
            got = await go_on(proxy, AgentSession(name="alice").step(6), 14)
            _, told = await readiness(proxy)
    finally:
        other.close()
    stand(got, upstream)
    assert len(proxy.events("store.failed")) == 1
    assert told["store"] != "ok"


async def test_a_corrupt_file_is_set_aside_and_told(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(b"this is no database\n" * 500)
    upstream = remembering_upstream(window=WINDOW)
    store = StoreConfig(path=str(path))
    async with upstream.running():
        async with watched(upstream.url, store=store) as proxy:
            got = await go_on(proxy, AgentSession(name="alice").step(6), 14)
            _, told = await readiness(proxy)
        async with watched(upstream.url, store=store) as later:
            again = await later.send(wire(AgentSession(name="alice").step(20).body()))
    assert {g.status for g in got} == {200}
    [aside] = proxy.events("store.set_aside")
    assert Path(aside["path"]).read_bytes() == b"this is no database\n" * 500
    assert told["store"] == "ok"
    assert again.outcome == "reused", "what was stored in the new file is found after a restart"


async def test_a_file_damaged_in_use_costs_no_view(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    upstream = remembering_upstream(window=WINDOW)
    alice = AgentSession(name="alice").step(6)
    async with upstream.running(), watched(upstream.url, store=StoreConfig(path=str(path))) as proxy:
        got = await go_on(proxy, alice, 8)
        for file in tmp_path.glob("store.db*"):
            file.unlink()
        got += await go_on(proxy, alice, 6)
    stand(got, upstream)
    assert len(proxy.events("store.failed")) <= 1


async def test_one_warning_a_minute() -> None:
    """Every failure is counted, but a person needs to hear of a broken disk once a while."""
    upstream = remembering_upstream(window=WINDOW)
    async with (
        upstream.running(),
        watched(upstream.url, store=StoreConfig(), change=opens(Locked)) as proxy,
    ):
        for _ in range(5):
            proxy.proxy._store_failed(StoreError("store: reading failed"))
        assert len(proxy.events("store.failed")) == 1
        proxy.proxy._warned_at -= 60.0
        proxy.proxy._store_failed(StoreError("store: reading failed"))
    assert len(proxy.events("store.failed")) == 2
    assert proxy.counted("store_errors_total") >= 6


async def test_what_was_made_while_the_store_was_away_is_saved_when_it_is_back() -> None:
    upstream = remembering_upstream(window=WINDOW)
    back = MemoryStore()
    tries: list[Store] = []

    async def open_it() -> Store:
        tries.append(back)
        if len(tries) == 1:
            raise StoreError("store: opening failed; check the disk")
        return back

    def change(proxy: Any) -> None:
        proxy.store._inner_open = open_it
        proxy.store._pause_seconds = 0.0

    async with upstream.running(), watched(upstream.url, store=StoreConfig(), change=change) as proxy:
        got = await go_on(proxy, AgentSession(name="alice").step(6), 14)
        _, told = await readiness(proxy)
        entries, _ = await back.size()
    stand(got, upstream)
    assert entries >= 1
    assert told["store"] == "ok"
