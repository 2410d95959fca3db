"""That no failure of a store reaches a request, and that none changes a view for longer than it must."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from proxy.errors import StoreError
from proxy.stores.base import Shelf
from proxy.stores.guarded import PAUSE_SECONDS, GuardedStore
from proxy.stores.memory import MemoryStore
from proxy.stores.sqlite import SqliteStore

SEEN = Shelf.SEEN


class Disk:
    """A store on a disk with faults: holds its entries outside the process, counts what is asked of it."""

    def __init__(self) -> None:
        self.entries = MemoryStore()
        self.open_fault: Exception | None = None
        self.read_fault: Exception | None = None
        self.write_fault: Exception | None = None
        self.hangs = False
        self.asked: list[str] = []
        self.closed = 0

    async def open(self) -> "Disk":
        await self._do("open", self.open_fault)
        return self

    async def _do(self, what: str, fault: Exception | None) -> None:
        self.asked.append(what)
        if self.hangs:
            await asyncio.Event().wait()
        if fault is not None:
            raise fault

    @property
    def secret(self) -> bytes:
        return self.entries.secret

    async def longest(self, shelf: Shelf, digests: Sequence[bytes]) -> tuple[int, bytes] | None:
        await self._do("longest", self.read_fault)
        return await self.entries.longest(shelf, digests)

    async def longest_on(
        self, shelves: Sequence[Shelf], digests: Sequence[bytes]
    ) -> Mapping[Shelf, tuple[int, bytes]]:
        await self._do("longest", self.read_fault)
        return await self.entries.longest_on(shelves, digests)

    def has_none(self, shelves: Sequence[Shelf], digests: Sequence[bytes]) -> bool:
        return False

    async def add(self, shelf: Shelf, digest: bytes, value: bytes) -> bytes:
        await self._do("add", self.write_fault)
        return await self.entries.add(shelf, digest, value)

    async def size(self) -> tuple[int, int]:
        await self._do("size", self.read_fault)
        return await self.entries.size()

    async def close(self) -> None:
        await self._do("close", None)
        self.closed += 1


class Rig:
    """A guarded store over a `Disk`, with a clock that is moved by hand."""

    def __init__(self) -> None:
        self.disk = Disk()
        self.fallback = MemoryStore()
        self.errors: list[str] = []
        self.now = 0.0
        self.store = GuardedStore(
            self.disk.open,
            self.fallback,
            lambda error: self.errors.append(str(error)),
            lambda: self.now,
            patience_seconds=0.02,
        )

    def pause(self) -> None:
        self.now += PAUSE_SECONDS
        self.disk.asked.clear()


@pytest.fixture
def rig() -> Rig:
    return Rig()


FULL = StoreError("store x: writing failed: disk is full")
BROKEN = StoreError("store x: reading failed: disk I/O error")


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(StoreError("store x: locked"), id="StoreError"),
        pytest.param(OSError("a cable was pulled"), id="OSError"),
        pytest.param(KeyError("a mistake of ours"), id="a mistake in the store"),
        pytest.param(None, id="hangs"),
    ],
)
@pytest.mark.parametrize("where", ["open", "read", "write", "all"])
async def test_whatever_fails_wherever_requests_go_on(rig: Rig, fault: Exception | None, where: str) -> None:
    if where in {"read", "write"}:
        await rig.store.open()
    if fault is None:
        rig.disk.hangs = True
    for fails in ("open", "read", "write"):
        if where in {fails, "all"}:
            setattr(rig.disk, f"{fails}_fault", fault)
    await rig.store.open()

    assert await rig.store.longest(SEEN, [b"a"]) is None
    assert await rig.store.add(SEEN, b"a", b"1") == b"1"
    assert await rig.store.add(SEEN, b"a", b"2") == b"1"
    assert await rig.store.longest(SEEN, [b"a", b"b"]) == (0, b"1")
    assert len(await rig.store.size()) == 2
    assert not rig.store.healthy
    assert rig.store.last_error == rig.errors[-1]
    await rig.store.close()


async def test_without_a_failure_everything_is_in_the_real_store(rig: Rig) -> None:
    await rig.store.open()
    assert rig.store.healthy
    assert rig.store.last_error == ""
    assert rig.store.secret == rig.disk.secret != rig.fallback.secret
    await rig.store.add(SEEN, b"a", b"1")
    assert await rig.disk.entries.longest(SEEN, [b"a"]) == (0, b"1")
    assert rig.errors == []


async def test_what_this_run_read_and_added_before_a_failure_is_found_during_it(rig: Rig) -> None:
    await rig.disk.entries.add(SEEN, b"read", b"1")
    await rig.store.open()
    await rig.store.longest(SEEN, [b"read"])
    await rig.store.add(SEEN, b"added", b"2")
    rig.disk.read_fault = BROKEN
    assert await rig.store.longest(SEEN, [b"read", b"x"]) == (0, b"1")
    assert await rig.store.longest(SEEN, [b"read", b"added"]) == (1, b"2")


async def test_after_a_failure_the_real_store_is_left_alone_for_the_pause(rig: Rig) -> None:
    await rig.store.open()
    rig.disk.read_fault = BROKEN
    await rig.store.longest(SEEN, [b"a"])
    rig.disk.asked.clear()
    rig.now += PAUSE_SECONDS - 1
    for _ in range(3):
        await rig.store.longest(SEEN, [b"a"])
        await rig.store.add(SEEN, b"a", b"1")
        await rig.store.recover()
    assert rig.disk.asked == []
    assert rig.errors == [str(BROKEN)]


async def test_after_the_pause_what_was_added_meanwhile_is_written(rig: Rig) -> None:
    await rig.store.open()
    rig.disk.read_fault = rig.disk.write_fault = BROKEN
    await rig.store.longest(SEEN, [b"a"])
    await rig.store.add(SEEN, b"a", b"1")
    await rig.store.add(Shelf.FAILED, b"b", b"2")
    rig.disk.read_fault = rig.disk.write_fault = None
    rig.pause()
    assert await rig.store.longest(SEEN, [b"a"]) == (0, b"1")
    assert await rig.disk.entries.longest(SEEN, [b"a"]) == (0, b"1")
    assert await rig.disk.entries.longest(Shelf.FAILED, [b"b"]) == (0, b"2")
    assert rig.store.healthy
    rig.pause()
    await rig.store.longest(SEEN, [b"a"])
    assert rig.disk.asked == ["longest"]


async def test_a_readiness_probe_alone_brings_recovery(rig: Rig) -> None:
    rig.disk.open_fault = BROKEN
    await rig.store.open()
    assert await rig.store.recover() is False
    rig.disk.open_fault = None
    assert await rig.store.recover() is False
    rig.pause()
    assert await rig.store.recover() is True


async def test_a_failure_that_lasts_is_told_once_a_pause(rig: Rig) -> None:
    rig.disk.open_fault = BROKEN
    await rig.store.open()
    for told in range(1, 4):
        for _ in range(5):
            await rig.store.longest(SEEN, [b"a"])
            await rig.store.add(SEEN, b"a", b"1")
        assert len(rig.errors) == told
        rig.pause()


async def test_a_disk_that_is_full_is_still_read(rig: Rig) -> None:
    await rig.disk.entries.add(SEEN, b"old", b"1")
    await rig.disk.entries.add(SEEN, b"older", b"0")
    await rig.store.open()
    rig.disk.write_fault = FULL
    assert await rig.store.add(SEEN, b"new", b"2") == b"2"
    assert not rig.store.healthy
    assert await rig.store.longest(SEEN, [b"old"]) == (0, b"1")
    assert await rig.store.longest(SEEN, [b"old", b"new"]) == (1, b"2")
    rig.pause()
    assert await rig.store.longest(SEEN, [b"older"]) == (0, b"0")
    assert not rig.store.healthy


async def test_however_much_was_missed_it_is_all_written_in_the_end(rig: Rig) -> None:
    rig.disk.open_fault = BROKEN
    await rig.store.open()
    digests = [number.to_bytes(2, "big") for number in range(350)]
    for digest in digests:
        await rig.store.add(SEEN, digest, b"v" + digest)
    rig.disk.open_fault = None
    rig.pause()
    await rig.store.recover()
    assert 0 < rig.disk.asked.count("add") < len(digests), "one request does not wait for all of it"
    await rig.store.close()
    for digest in digests:
        assert await rig.disk.entries.longest(SEEN, [digest]) == (0, b"v" + digest)
    assert rig.disk.closed == 1


async def test_where_another_process_was_first_its_value_is_used_from_the_recovery_on(rig: Rig) -> None:
    rig.disk.open_fault = BROKEN
    await rig.store.open()
    assert await rig.store.add(SEEN, b"a", b"ours") == b"ours"
    await rig.disk.entries.add(SEEN, b"a", b"theirs")
    rig.disk.open_fault = None
    rig.pause()
    assert await rig.store.recover()
    rig.disk.read_fault = BROKEN
    assert await rig.store.longest(SEEN, [b"a"]) == (0, b"theirs")


async def test_what_was_answered_while_away_stays_the_first_value(rig: Rig) -> None:
    await rig.store.open()
    rig.disk.write_fault = FULL
    assert await rig.store.add(SEEN, b"a", b"1") == b"1"
    rig.disk.write_fault = None
    rig.pause()
    assert await rig.store.add(SEEN, b"a", b"2") == b"1"
    assert await rig.disk.entries.longest(SEEN, [b"a"]) == (0, b"1")


async def test_what_the_real_store_has_lost_stays_the_first_value(rig: Rig) -> None:
    await rig.store.open()
    await rig.store.add(SEEN, b"a", b"1")
    rig.disk.entries = MemoryStore()
    assert await rig.store.add(SEEN, b"a", b"2") == b"1"
    assert await rig.disk.entries.longest(SEEN, [b"a"]) == (0, b"1")


async def test_a_store_that_lost_everything_gets_back_what_this_run_used(rig: Rig) -> None:
    await rig.disk.entries.add(SEEN, b"read", b"1")
    await rig.store.open()
    await rig.store.longest(SEEN, [b"read"])
    await rig.store.add(SEEN, b"added", b"2")
    rig.disk.entries = MemoryStore()
    assert await rig.store.longest(SEEN, [b"read", b"added"]) == (1, b"2")
    rig.disk.read_fault = BROKEN
    await rig.store.longest(SEEN, [b"x"])
    rig.disk.read_fault = None
    rig.pause()
    await rig.store.recover()
    assert await rig.disk.entries.longest(SEEN, [b"read"]) == (0, b"1")
    assert await rig.disk.entries.longest(SEEN, [b"added"]) == (0, b"2")


async def test_the_secret_of_a_store_that_opens_late_is_not_taken(rig: Rig) -> None:
    rig.disk.open_fault = BROKEN
    await rig.store.open()
    assert rig.store.secret == rig.fallback.secret
    rig.disk.open_fault = None
    rig.pause()
    assert await rig.store.recover()
    assert rig.store.secret == rig.fallback.secret != rig.disk.secret


async def test_while_one_request_tries_the_store_again_the_others_do_not_wait(rig: Rig) -> None:
    rig.disk.open_fault = BROKEN
    await rig.store.open()
    await rig.store.add(SEEN, b"a", b"1")
    rig.disk.hangs = True
    rig.pause()
    trying = asyncio.create_task(rig.store.longest(SEEN, [b"a"]))
    while not rig.disk.asked:
        await asyncio.sleep(0)
    assert await rig.store.longest(SEEN, [b"a"]) == (0, b"1")
    assert not trying.done()
    assert await trying == (0, b"1")
    assert rig.disk.asked == ["open"]


async def test_a_client_that_goes_away_during_a_try_leaves_the_next_one_free_to_try(rig: Rig) -> None:
    rig.disk.open_fault = BROKEN
    await rig.store.open()
    rig.disk.hangs = True
    rig.pause()
    trying = asyncio.create_task(rig.store.longest(SEEN, [b"a"]))
    while not rig.disk.asked:
        await asyncio.sleep(0)
    trying.cancel()
    with pytest.raises(asyncio.CancelledError):
        await trying
    rig.disk.hangs = False
    rig.disk.open_fault = None
    assert await rig.store.recover()


async def test_after_closing_it_still_answers(rig: Rig) -> None:
    await rig.store.open()
    await rig.store.add(SEEN, b"a", b"1")
    await rig.store.close()
    rig.disk.asked.clear()
    assert await rig.store.longest(SEEN, [b"a"]) == (0, b"1")
    assert await rig.store.add(SEEN, b"b", b"2") == b"2"
    await rig.store.close()
    assert rig.disk.asked == []


async def test_a_real_file_that_comes_back_continues_the_run_and_the_next_one_finds_it_all(
    tmp_path: Path,
) -> None:
    path = tmp_path / "state" / "store.db"
    path.parent.write_text("a file where the folder should be")
    now = 0.0
    errors: list[StoreError] = []
    fallback = MemoryStore()
    store = GuardedStore(
        lambda: SqliteStore.open(path, new_secret=fallback.secret), fallback, errors.append, lambda: now
    )
    await store.open()
    secret = store.secret
    await store.add(SEEN, b"a", b"1")
    assert "Not a directory" in store.last_error
    path.parent.unlink()
    now += PAUSE_SECONDS
    assert await store.recover()
    await store.add(SEEN, b"b", b"2")
    await store.close()

    real = await SqliteStore.open(path)
    assert real.secret == secret
    assert await real.longest(SEEN, [b"a"]) == (0, b"1")
    assert await real.longest(SEEN, [b"b"]) == (0, b"2")
    await real.close()


async def test_a_real_file_that_breaks_in_use_is_begun_anew_with_what_this_run_used(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    now = 0.0
    errors: list[str] = []
    store = GuardedStore(
        lambda: SqliteStore.open(path), MemoryStore(), lambda e: errors.append(str(e)), lambda: now
    )
    await store.open()
    secret = store.secret
    for number in range(40):
        await store.add(SEEN, bytes([number]), b"x" * 5000)
    for file in tmp_path.glob("store.db*"):
        file.unlink()
    assert await store.longest(SEEN, [bytes([7])]) == (0, b"x" * 5000)
    assert len(errors) == 1
    now += PAUSE_SECONDS
    assert await store.recover()
    await store.close()

    real = await SqliteStore.open(path)
    assert real.secret == secret == store.secret
    assert (await real.size())[0] == 40
    await real.close()
