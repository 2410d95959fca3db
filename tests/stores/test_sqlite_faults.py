"""What becomes of a file that cannot be used: a clear error, or a new one beside it."""

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from proxy.errors import StoreError
from proxy.stores.base import Shelf
from proxy.stores.sqlite import SqliteStore
from proxy.stores.sqlite_errors import failed
from proxy.stores.sqlite_file import MOST_SET_ASIDE, move_aside
from proxy.stores.sqlite_schema import APPLICATION_ID


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def run(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        connection.execute(statement)
    connection.close()


def is_a_folder(path: Path) -> None:
    path.mkdir()


def is_below_a_file(path: Path) -> None:
    path.parent.rmdir()
    path.parent.write_text("in the way")


def belongs_to_another(path: Path) -> None:
    run(path, "PRAGMA application_id = 7", "CREATE TABLE bookmarks (url)")


def has_tables_and_no_mark(path: Path) -> None:
    run(path, "CREATE TABLE bookmarks (url)")


def is_newer(path: Path) -> None:
    run(path, f"PRAGMA application_id = {APPLICATION_ID}", "PRAGMA user_version = 99")


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        pytest.param(is_a_folder, "it is no regular file; give the path of a file", id="a folder"),
        pytest.param(
            is_below_a_file, "opening failed: Not a directory; make the path a file", id="below a file"
        ),
        pytest.param(belongs_to_another, "it is a database of another program; give a path", id="of another"),
        pytest.param(has_tables_and_no_mark, "it is a database of another program", id="unmarked"),
        pytest.param(is_newer, "it has schema 99, this version knows up to 2; run the newer", id="newer"),
    ],
)
async def test_what_cannot_be_a_store_is_left_alone_and_named(
    tmp_path: Path, spoil: Callable[[Path], None], says: str
) -> None:
    path = tmp_path / "folder" / "store.db"
    path.parent.mkdir()
    spoil(path)
    before = sorted((p, p.read_bytes() if p.is_file() else b"") for p in tmp_path.rglob("*"))
    with pytest.raises(StoreError) as raised:
        await SqliteStore.open(path)
    assert str(raised.value).startswith(f"store {path}: {says}")
    assert sorted((p, p.read_bytes() if p.is_file() else b"") for p in tmp_path.rglob("*")) == before


def garbage(path: Path) -> None:
    path.write_bytes(b"this is no database\n" * 500)


def a_few_bytes(path: Path) -> None:
    path.write_bytes(b"xy")


def half_a_file(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))


def lost_table(path: Path) -> None:
    run(path, "DROP TABLE entries")


def short_secret(path: Path) -> None:
    run(path, "UPDATE meta SET value = x'00'")


@pytest.mark.parametrize("spoil", [garbage, a_few_bytes, half_a_file, lost_table, short_secret])
async def test_a_damaged_file_is_set_aside_and_a_new_one_begun(
    path: Path, spoil: Callable[[Path], None]
) -> None:
    await (await SqliteStore.open(path)).close()
    spoil(path)
    content = path.read_bytes()
    told: list[tuple[Path, str]] = []
    store = await SqliteStore.open(path, on_set_aside=lambda aside, damage: told.append((aside, damage)))

    aside = path.with_name("store.db.corrupt-1")
    assert store.set_aside == [aside] == [where for where, _ in told]
    assert told[0][1]
    assert aside.read_bytes() == content
    assert await store.size() == (0, 0)
    assert await store.add(Shelf.SEEN, b"a", b"1") == b"1"
    await store.close()


async def test_a_new_file_that_another_process_has_made_meanwhile_is_not_set_aside(path: Path) -> None:
    path.write_bytes(b"garbage" * 99)
    found = path.stat()
    path.with_name("new").write_bytes(b"made by the other process")
    path.with_name("new").replace(path)
    assert move_aside(path, (found.st_dev, found.st_ino)) is None
    assert path.read_bytes() == b"made by the other process"


async def test_an_empty_file_is_a_new_one(path: Path) -> None:
    path.touch()
    store = await SqliteStore.open(path)
    assert store.set_aside == []
    await store.close()


async def test_each_damaged_file_keeps_its_own_name_until_there_are_too_many(path: Path) -> None:
    for number in range(1, MOST_SET_ASIDE + 1):
        path.write_bytes(b"garbage %d" % number * 99)
        await (await SqliteStore.open(path)).close()
        assert path.with_name(f"store.db.corrupt-{number}").read_bytes() == b"garbage %d" % number * 99
    path.write_bytes(b"one more" * 99)
    with pytest.raises(
        StoreError, match=r"so were 10 files before it; check the disk, then remove store\.db"
    ):
        await SqliteStore.open(path)
    assert path.read_bytes() == b"one more" * 99


async def test_damage_met_in_use_is_an_error_once_and_then_a_new_file_with_the_same_secret(
    path: Path,
) -> None:
    store = await SqliteStore.open(path)
    for number in range(50):
        await store.add(Shelf.SEEN, bytes([number]), b"x" * 5000)
    await store.close()
    store = await SqliteStore.open(path)
    secret = store.secret
    half_a_file(path)

    with pytest.raises(StoreError, match=r"set aside as store\.db\.corrupt-\*, a new one is begun"):
        for number in range(50):
            await store.longest(Shelf.SEEN, [bytes([number])])
    assert store.set_aside == [path.with_name("store.db.corrupt-1")]
    assert await store.size() == (0, 0)
    assert await store.add(Shelf.SEEN, b"a", b"1") == b"1"
    assert store.secret == secret
    await store.close()
    store = await SqliteStore.open(path)
    assert store.secret == secret
    assert await store.longest(Shelf.SEEN, [b"a"]) == (0, b"1")
    await store.close()


async def test_a_file_removed_in_use_is_an_error_once_and_then_a_new_file(path: Path) -> None:
    store = await SqliteStore.open(path)
    secret = store.secret
    await store.add(Shelf.SEEN, b"a", b"1")
    for file in path.parent.glob("store.db*"):
        file.unlink()
    with pytest.raises(StoreError, match="removed or replaced while in use"):
        await store.add(Shelf.SEEN, b"b", b"2")
    assert await store.add(Shelf.SEEN, b"b", b"2") == b"2"
    await store.close()
    store = await SqliteStore.open(path)
    assert store.secret == secret
    assert await store.longest(Shelf.SEEN, [b"a", b"b"]) == (1, b"2")
    await store.close()


async def test_a_folder_that_is_gone_is_made_again(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "state" / "store.db")
    shutil.rmtree(tmp_path / "state")
    with pytest.raises(StoreError):
        await store.size()
    assert await store.size() == (0, 0)
    await store.close()


async def test_a_closed_store_says_so(path: Path) -> None:
    store = await SqliteStore.open(path)
    await store.close()
    with pytest.raises(StoreError, match="writing failed: it is closed"):
        await store.add(Shelf.SEEN, b"a", b"1")


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        pytest.param(sqlite3.SQLITE_FULL, "free space on its disk", id="full"),
        pytest.param(sqlite3.SQLITE_BUSY_SNAPSHOT, "end the program that keeps it locked", id="locked"),
        pytest.param(
            sqlite3.SQLITE_READONLY_DIRECTORY, "make the file and its folder writable", id="read-only"
        ),
        pytest.param(sqlite3.SQLITE_CANTOPEN, "make the file and its folder readable", id="cannot open"),
        pytest.param(sqlite3.SQLITE_IOERR_FSYNC, "check its disk", id="disk fault"),
        pytest.param(sqlite3.SQLITE_ERROR, "move the file away to begin a new one", id="anything else"),
    ],
)
def test_each_failure_names_its_remedy(code: int, remedy: str) -> None:
    error = sqlite3.OperationalError("what SQLite says")
    error.sqlite_errorcode = code
    text = str(failed("writing", Path("/state/store.db"), error))
    assert text.startswith(f"store /state/store.db: writing failed: what SQLite says; {remedy}")
