"""What the file keeps, for how long, and who may read it."""

import os
import sqlite3
import stat
from pathlib import Path

import pytest

from proxy.stores.base import Shelf
from proxy.stores.sqlite import ADDS_BETWEEN_PRUNES, SqliteStore
from proxy.stores.sqlite_schema import APPLICATION_ID, SCHEMA, STEPS

DAY = 24 * 60 * 60.0


class Clock:
    """Stands still until it is moved."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "proxy" / "store.db"


def mode(path: Path | str) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


def ask(path: Path, question: str) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(path)
    try:
        return connection.execute(question).fetchall()
    finally:
        connection.close()


async def test_entries_and_secret_survive_a_restart(path: Path) -> None:
    store = await SqliteStore.open(path)
    secret = store.secret
    await store.add(Shelf.SEEN, b"a", b"kept")
    await store.close()

    store = await SqliteStore.open(path)
    assert store.secret == secret
    assert await store.longest(Shelf.SEEN, [b"a"]) == (0, b"kept")
    await store.close()


@pytest.mark.parametrize("umask", [pytest.param(0, id="open umask"), pytest.param(0o022, id="usual umask")])
async def test_only_the_owner_can_read(path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        store = await SqliteStore.open(path)
        await store.add(Shelf.SEEN, b"a", b"secret words")
        assert [mode(f"{path}{suffix}") for suffix in ("", "-wal", "-shm")] == [0o600] * 3
        assert [mode(path.parent), mode(path.parent.parent)] == [0o700] * 2
        await store.close()
    finally:
        os.umask(before)


async def test_a_folder_that_was_there_keeps_its_mode(path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.parent.chmod(0o755)
    await (await SqliteStore.open(path)).close()
    assert mode(path.parent) == 0o755


async def test_a_file_with_wider_modes_is_narrowed(path: Path) -> None:
    await (await SqliteStore.open(path)).close()
    path.chmod(0o644)
    store = await SqliteStore.open(path)
    assert [mode(f"{path}{suffix}") for suffix in ("", "-wal", "-shm")] == [0o600] * 3
    await store.close()


async def test_a_symbolic_link_is_followed(path: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(path)
    store = await SqliteStore.open(link)
    assert store.path == path
    await store.close()


async def test_the_file_says_what_it_is(path: Path) -> None:
    await (await SqliteStore.open(path)).close()
    assert ask(path, "PRAGMA application_id") == [(APPLICATION_ID,)]
    assert ask(path, "PRAGMA user_version") == [(SCHEMA,)]
    assert ask(path, "PRAGMA journal_mode") == [("wal",)]


@pytest.mark.parametrize("schema", range(1, SCHEMA))
async def test_an_older_schema_is_brought_up_to_date_with_what_it_holds(path: Path, schema: int) -> None:
    path.parent.mkdir(parents=True)
    old = sqlite3.connect(path)
    for step in STEPS[:schema]:
        for statement in step:
            old.execute(statement)
    old.execute("INSERT INTO meta VALUES ('secret', ?)", (b"s" * 32,))
    old.execute("INSERT INTO entries VALUES ('seen', ?, ?, 10, ?)", (b"a", b"old", 1_700_000_000))
    old.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    old.execute(f"PRAGMA user_version = {schema}")
    old.commit()
    old.close()

    store = await SqliteStore.open(path, now=Clock())
    assert store.secret == b"s" * 32
    assert await store.longest(Shelf.SEEN, [b"a"]) == (0, b"old")
    await store.close()
    assert ask(path, "PRAGMA user_version") == [(SCHEMA,)]
    await (await SqliteStore.open(path.with_name("new.db"))).close()
    tables = "SELECT sql FROM sqlite_master ORDER BY name"
    assert ask(path, tables) == ask(path.with_name("new.db"), tables)


async def test_a_new_file_takes_the_secret_it_is_given_and_an_old_one_keeps_its_own(path: Path) -> None:
    for offered in (b"1" * 32, b"2" * 32):
        store = await SqliteStore.open(path, new_secret=offered)
        assert store.secret == b"1" * 32
        await store.close()


async def test_what_was_not_used_for_longer_than_the_limit_is_dropped_at_the_next_start(path: Path) -> None:
    clock = Clock()
    store = await SqliteStore.open(path, max_age_days=30, now=clock)
    await store.add(Shelf.SEEN, b"unused", b"1")
    await store.add(Shelf.SEEN, b"used", b"2")
    clock.now += 20 * DAY
    assert await store.longest(Shelf.SEEN, [b"used"]) == (0, b"2")
    await store.close()

    clock.now += 11 * DAY
    store = await SqliteStore.open(path, max_age_days=30, now=clock)
    assert await store.longest(Shelf.SEEN, [b"unused"]) is None
    assert await store.longest(Shelf.SEEN, [b"used"]) == (0, b"2")
    await store.close()


async def test_reading_writes_at_most_once_a_day(path: Path) -> None:
    clock = Clock()
    store = await SqliteStore.open(path, now=clock)
    await store.add(Shelf.SEEN, b"a", b"1")
    added = clock.now
    used = "SELECT used FROM entries"
    clock.now += DAY - 1
    await store.longest(Shelf.SEEN, [b"a"])
    assert ask(path, used) == [(added,)]
    clock.now += 1
    await store.longest(Shelf.SEEN, [b"a"])
    assert ask(path, used) == [(added + DAY,)]
    await store.close()


async def test_a_clock_that_was_wrong_makes_no_entry_immortal(path: Path) -> None:
    clock = Clock()
    clock.now += 10_000 * DAY
    store = await SqliteStore.open(path, now=clock)
    await store.add(Shelf.SEEN, b"a", b"1")
    clock.now -= 10_000 * DAY
    await store.longest(Shelf.SEEN, [b"a"])
    assert ask(path, "SELECT used FROM entries") == [(clock.now,)]
    await store.close()


async def test_beyond_its_size_the_entries_unused_for_longest_are_dropped_and_the_file_shrinks(
    path: Path,
) -> None:
    clock = Clock()
    store = await SqliteStore.open(path, now=clock)
    for number in range(60):
        clock.now += 1
        await store.add(Shelf.SEEN, bytes([number]), b"x" * 20_000)
    clock.now += DAY
    assert await store.longest(Shelf.SEEN, [bytes([0])]) is not None
    await store.close()
    before = path.stat().st_size

    store = await SqliteStore.open(path, max_bytes=500_000, now=clock)
    entries, taken = await store.size()
    assert taken <= 500_000
    assert entries == 22  # 0.9 of the bound: the next entry must not make it necessary again
    kept = [n for n in range(60) if await store.longest(Shelf.SEEN, [bytes([n])]) is not None]
    assert kept == [0, *range(39, 60)]
    await store.close()
    assert path.stat().st_size < before / 2


async def test_a_long_run_is_pruned_as_well_but_not_on_every_add(path: Path) -> None:
    store = await SqliteStore.open(path, max_bytes=100_000)
    counts = []
    for number in range(ADDS_BETWEEN_PRUNES):
        await store.add(Shelf.SEEN, number.to_bytes(4, "big"), b"x" * 10_000)
        counts.append((await store.size())[0])
    assert counts[:-1] == list(range(1, ADDS_BETWEEN_PRUNES))
    assert counts[-1] == 8
    await store.close()


async def test_the_newest_entry_stays_even_if_it_alone_is_too_large(path: Path) -> None:
    clock = Clock()
    store = await SqliteStore.open(path, now=clock)
    await store.add(Shelf.SEEN, b"a", b"x" * 1000)
    clock.now -= DAY  # a clock that goes back makes it the one unused for longest
    await store.add(Shelf.SEEN, b"b", b"x" * 1000)
    await store.close()
    store = await SqliteStore.open(path, max_bytes=10, now=clock)
    assert await store.longest(Shelf.SEEN, [b"a", b"b"]) == (1, b"x" * 1000)
    assert (await store.size())[0] == 1
    await store.close()
