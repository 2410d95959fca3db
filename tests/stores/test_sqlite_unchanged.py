"""Nothing that another process stores is missed because the file was not asked."""

import os
import time
from pathlib import Path

import pytest

from proxy.stores.base import Shelf
from proxy.stores.sqlite import SqliteStore
from proxy.stores.sqlite_unchanged import Unchanged


def age(path: Path, seconds: float = 60.0) -> None:
    """Make the file and its log look as if nothing had been written for a while."""
    for one in (path, path.with_name(path.name + "-wal")):
        if one.exists():
            os.utime(one, (time.time() - seconds,) * 2)


@pytest.mark.parametrize("rounds", [1, 3])
async def test_what_another_process_adds_to_a_quiet_file_is_found(tmp_path: Path, rounds: int) -> None:
    path = tmp_path / "store.db"
    here, there = await SqliteStore.open(path), await SqliteStore.open(path)
    try:
        for number in range(rounds):
            digest = b"digest %d" % number
            age(path)
            assert await here.longest(Shelf.SEEN, [digest]) is None
            assert here._unchanged.holds(), "the next question is not to take a thread"
            assert await here.longest(Shelf.SEEN, [digest]) is None
            await there.add(Shelf.SEEN, digest, b"theirs")
            assert not here._unchanged.holds()
            assert await here.longest(Shelf.SEEN, [digest]) == (0, b"theirs")
    finally:
        await here.close()
        await there.close()


async def test_what_this_process_adds_is_found(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store = await SqliteStore.open(path)
    try:
        age(path)
        assert await store.longest(Shelf.SEEN, [b"a"]) is None
        await store.add(Shelf.SEEN, b"a", b"ours")
        assert await store.longest(Shelf.SEEN, [b"a"]) == (0, b"ours")
    finally:
        await store.close()


async def test_a_file_that_is_gone_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store = await SqliteStore.open(path)
    try:
        age(path)
        assert await store.longest(Shelf.SEEN, [b"a"]) is None
        assert store._unchanged.holds()
        path.rename(tmp_path / "elsewhere.db")
        assert not store._unchanged.holds()
    finally:
        await store.close()


def test_a_file_that_was_just_written_is_not_taken_for_known(tmp_path: Path) -> None:
    """It may be written once more within the same moment of the file system's clock."""
    path = tmp_path / "file"
    path.write_bytes(b"one")
    unchanged = Unchanged(path)
    assert unchanged.look() is None
    age(path)
    unchanged.read(unchanged.look())
    assert unchanged.holds()
    path.write_bytes(b"two")
    assert not unchanged.holds()


def test_a_clock_that_goes_backwards_only_costs_time(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"one")
    age(path, seconds=-3600)
    unchanged = Unchanged(path)
    unchanged.read(unchanged.look())
    assert not unchanged.holds()


@pytest.mark.parametrize(
    ("ago_ns", "whole_seconds", "is_settled"),
    [
        pytest.param(0, True, False, id="a file system that keeps seconds"),
        pytest.param(5_000_000_000, True, True, id="the same, long enough ago"),
        pytest.param(1_000_000_000, False, True, id="one that keeps parts of a second"),
        pytest.param(-60_000_000_000, False, False, id="the same, newer than now"),
    ],
)
def test_the_finer_a_file_systems_times_the_sooner_a_file_is_known(
    tmp_path: Path, ago_ns: int, whole_seconds: bool, is_settled: bool
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"one")
    written = time.time_ns() - ago_ns
    # Never a whole second by accident, or later than it says.
    written = written // 1_000_000_000 * 1_000_000_000 if whole_seconds else written // 10 * 10 - 1
    os.utime(path, ns=(written, written))
    assert (Unchanged(path).look() is not None) is is_settled
