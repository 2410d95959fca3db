"""What holds when more than one process uses the file, and when one is killed."""

import asyncio
import sqlite3
import sys
from pathlib import Path

import pytest

from proxy.errors import StoreError
from proxy.stores.base import Shelf
from proxy.stores.sqlite import SqliteStore
from tests.stores.other_process import value_of

SCRIPT = Path(__file__).with_name("other_process.py")
ROOT = Path(__file__).parents[2]
KILLS = 20


class Other:
    """A second process, told and heard line by line."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    @classmethod
    async def start(cls, command: str, path: Path, argument: str = "") -> "Other":
        return cls(
            await asyncio.create_subprocess_exec(
                sys.executable,
                str(SCRIPT),
                command,
                str(path),
                argument,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env={"PYTHONPATH": str(ROOT)},
            )
        )

    async def line(self) -> str:
        assert self.process.stdout is not None
        return (await self.process.stdout.readline()).decode().strip()

    async def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")
        await self.process.stdin.drain()

    async def rest(self) -> list[str]:
        out, _ = await self.process.communicate()
        return out.decode().splitlines()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "store.db"


@pytest.mark.parametrize(
    "before", [pytest.param(b"", id="no file"), pytest.param(b"garbage" * 99, id="a damaged file")]
)
async def test_processes_that_begin_at_once_agree_on_secret_and_first_value(
    path: Path, before: bytes
) -> None:
    if before:
        path.parent.mkdir()
        path.write_bytes(before)
    others = [await Other.start("add", path, f"value-{number}") for number in range(4)]
    for other in others:
        assert await other.line() == "ready"
    for other in others:
        await other.go()
    answers = {(await other.line()) for other in others}
    for other in others:
        assert await other.process.wait() == 0

    assert len(answers) == 1, answers
    value, secret = answers.pop().split()
    store = await SqliteStore.open(path)
    assert (value.encode(), bytes.fromhex(secret)) == (
        (await store.add(Shelf.SEEN, b"digest", b"too late")),
        store.secret,
    )
    await store.close()
    aside = [name.name for name in path.parent.glob("*.corrupt-*")]
    assert aside == (["store.db.corrupt-1"] if before else [])


async def test_an_entry_of_another_process_is_found_at_once_and_stays(path: Path) -> None:
    ours = await SqliteStore.open(path)
    theirs = await SqliteStore.open(path)
    assert await ours.longest(Shelf.SEEN, [b"a"]) is None
    await theirs.add(Shelf.SEEN, b"a", b"theirs")
    assert await ours.add(Shelf.SEEN, b"a", b"ours") == b"theirs"
    assert await ours.longest(Shelf.SEEN, [b"a"]) == (0, b"theirs")
    await theirs.close()
    await ours.close()


async def test_killing_a_writer_loses_nothing_that_was_committed(path: Path) -> None:
    written = 0
    for kill in range(KILLS):
        other = await Other.start("hammer", path, str(written))
        for _ in range(kill % 5 + 1):
            assert await other.line() == str(written)
            written += 1
        other.process.kill()
        written += len(await other.rest())

    store = await SqliteStore.open(path)
    assert store.set_aside == []
    for number in range(written):
        assert await store.longest(Shelf.SEEN, [number.to_bytes(4, "big")]) == (0, value_of(number))
    # One more may have been committed by each that was killed before it could say so.
    assert written <= (await store.size())[0] <= written + KILLS
    await store.close()
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()


async def test_a_lock_held_by_another_process_stops_writing_and_not_reading(path: Path) -> None:
    store = await SqliteStore.open(path, wait_seconds=0.05)
    await store.add(Shelf.SEEN, b"a", b"1")
    other = await Other.start("lock", path)
    assert await other.line() == "locked"

    with pytest.raises(StoreError) as raised:
        await store.add(Shelf.SEEN, b"b", b"2")
    assert str(raised.value) == (
        f"store {path}: writing failed: database is locked; end the program that keeps it locked"
    )
    assert await store.longest(Shelf.SEEN, [b"a", b"b"]) == (0, b"1")
    second = await SqliteStore.open(path, wait_seconds=0.05)
    assert await second.longest(Shelf.SEEN, [b"a"]) == (0, b"1")
    await second.close()

    await other.go()
    assert await other.line() == "free"
    assert await store.add(Shelf.SEEN, b"b", b"2") == b"2"
    await other.process.wait()
    await store.close()


async def test_a_reader_under_a_lock_answers_even_where_the_day_of_use_is_due(path: Path) -> None:
    store = await SqliteStore.open(path, wait_seconds=3600, now=lambda: 0.0)
    await store.add(Shelf.SEEN, b"a", b"1")
    await store.close()
    # With an hour to wait: were the note of use to wait for the lock, this would not end.
    store = await SqliteStore.open(path, wait_seconds=3600, max_age_days=10**6)
    other = await Other.start("lock", path)
    assert await other.line() == "locked"
    assert await store.longest(Shelf.SEEN, [b"a"]) == (0, b"1")
    await other.go()
    await other.process.wait()
    assert await store.add(Shelf.SEEN, b"b", b"2") == b"2"
    await store.close()


async def test_a_disk_that_takes_no_more_stops_writing_and_not_reading(path: Path) -> None:
    other = await Other.start("fill", path, "300000")
    error, found = await other.rest()
    assert error.startswith(f"store {path}: writing failed: ")
    assert "disk" in error.partition("; ")[2]
    assert found == "(0, b'kept')"
    assert other.process.returncode == 0
    store = await SqliteStore.open(path)
    assert await store.longest(Shelf.SEEN, [b"first"]) == (0, b"kept")
    assert await store.add(Shelf.SEEN, b"later", b"1") == b"1"
    await store.close()
