"""At rest no word of a conversation, and what no key opens is simply not there."""

import json
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from proxy.app_store import store_for
from proxy.config import StoreConfig, load
from proxy.errors import ConfigError
from proxy.stores.base import Shelf
from proxy.stores.encrypted import EncryptedStore
from proxy.stores.guarded import GuardedStore
from proxy.stores.sealing import Seal, is_sealed
from proxy.stores.sqlite import SqliteStore
from proxy.stores.sqlite_sealing import BATCH, seal_some, wipe
from tests.support.agent_sessions import AgentSession, remembering_upstream
from tests.support.fronted import fronted
from tests.support.raw_client import ask

OLD, NEW, OTHER = "an-old-key-of-32-characters-0001", "a-new-key-of-32-characters-00002", "another-key-0003"
CHECKOUT = Path(__file__).parent.parent.parent
WORDS = b"reconcile-the-ledger-of-tuesday"
VALUE = json.dumps({"block": WORDS.decode() * 50}).encode()


class Told(list[str]):
    """What was said of entries that no key opens."""

    def __call__(self, what: str) -> None:
        self.append(what)


async def opened(path: Path, *keys: str, told: Told | None = None) -> EncryptedStore:
    return await EncryptedStore.open(await SqliteStore.open(path), keys, Told() if told is None else told)


async def add(path: Path, keys: Sequence[str], *digests: bytes) -> None:
    """Store VALUE under each of *digests*; without keys in the clear."""
    store = await opened(path, *keys) if keys else await SqliteStore.open(path)
    for digest in digests:
        await store.add(Shelf.SEEN, digest, VALUE)
    await store.close()


def on_disk(folder: Path) -> bytes:
    """All files, the log that SQLite keeps beside its own included."""
    return b"".join(file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file())


async def test_neither_words_nor_digests_are_on_disk_while_it_is_open_or_after(tmp_path: Path) -> None:
    path = tmp_path / "f" / "s.db"
    store = await opened(path, NEW)
    digest = b"\xd1\x9e\x57" * 5 + b"!"
    await store.add(Shelf.SEEN, digest, VALUE)
    for _ in range(2):
        kept = on_disk(path.parent)
        assert WORDS not in kept and digest not in kept and NEW.encode() not in kept
        assert {stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()} == {0o600}
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        await store.close()
    again = await opened(path, NEW)
    assert await again.longest(Shelf.SEEN, [b"x", digest, b"y"]) == (1, VALUE)
    await again.close()


async def test_the_same_value_is_never_written_the_same_way_twice(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    await add(path, [NEW], b"a" * 16, b"b" * 16)
    with sqlite3.connect(path) as connection:
        values = [row[0] for row in connection.execute("SELECT value FROM entries")]
    connection.close()
    assert len(values) == len({value[:40] for value in values}) == 2
    assert all(map(is_sealed, values))


async def test_with_another_key_there_is_nothing_and_the_log_says_so_once(tmp_path: Path) -> None:
    path, told = tmp_path / "s.db", Told()
    await add(path, [OLD], b"a" * 16, b"b" * 16)
    store = await opened(path, OTHER, told=told)
    for _ in range(3):
        assert await store.longest(Shelf.SEEN, [b"a" * 16, b"b" * 16]) is None
        assert await store.longest_on(list(Shelf), [b"a" * 16]) == {}
    # It is used as if it were new, beside what is there.
    assert await store.add(Shelf.SEEN, b"a" * 16, b"mine") == b"mine"
    assert await store.longest(Shelf.SEEN, [b"a" * 16]) == (0, b"mine")
    await store.close()
    assert len(told) == 1
    assert "notes are made again; give the old key after the new one" in told[0]
    assert OLD not in told[0] and OTHER not in told[0]
    back = await opened(path, OLD, told=(old_told := Told()))
    assert await back.longest(Shelf.SEEN, [b"a" * 16]) == (0, VALUE)
    await back.close()
    assert old_told == []


@pytest.mark.parametrize(("keys", "is_told"), [([OLD], True), ([], False)], ids=["sealed", "in the clear"])
async def test_a_key_that_is_left_out_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, keys: list[str], is_told: bool
) -> None:
    """Else the next entries would stand readable beside the sealed ones, and nobody would know."""
    path = tmp_path / "s.db"
    await add(path, keys, b"a" * 16)
    store = store_for(StoreConfig(path=str(path)), {}, lambda error: None)
    assert isinstance(store, GuardedStore)
    await store.open()
    await store.close()
    assert ("store.unreadable" in [record.getMessage() for record in caplog.records]) is is_told


async def test_a_new_key_before_the_old_one_loses_nothing(tmp_path: Path) -> None:
    path, told = tmp_path / "s.db", Told()
    await add(path, [OLD], b"a" * 16, b"b" * 16)
    store = await opened(path, NEW, OLD, told=told)
    assert await store.longest(Shelf.SEEN, [b"a" * 16, b"b" * 16, b"c" * 16]) == (1, VALUE)
    assert await store.add(Shelf.SEEN, b"a" * 16, b"later") == VALUE, "the first stored wins"
    assert await store.add(Shelf.SEEN, b"c" * 16, b"new") == b"new"
    assert await store.longest(Shelf.SEEN, [b"a" * 16, b"c" * 16]) == (1, b"new")
    await store.close()
    with_new_alone = await opened(path, NEW, told=told)
    assert await with_new_alone.longest(Shelf.SEEN, [b"a" * 16, b"c" * 16]) == (1, b"new")
    assert await with_new_alone.longest(Shelf.SEEN, [b"a" * 16]) is None
    await with_new_alone.close()
    assert told == []


async def test_what_was_stored_in_the_clear_is_sealed_and_still_found(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    digests = [i.to_bytes(16, "big") for i in range(BATCH + 10)]
    await add(path, [], *digests)
    assert WORDS in on_disk(tmp_path)
    store = await opened(path, NEW)
    assert WORDS not in on_disk(tmp_path)
    assert await store.longest(Shelf.SEEN, digests) == (len(digests) - 1, VALUE)
    assert await store.longest(Shelf.SEEN, digests[:1]) == (0, VALUE)
    assert (await store.size())[0] == len(digests)
    await store.close()
    assert WORDS not in on_disk(tmp_path)


async def test_nothing_is_left_by_an_sqlite_that_does_not_overwrite_what_it_deletes(tmp_path: Path) -> None:
    """Many builds do; with those this test would pass whatever we did."""
    path = tmp_path / "s.db"
    await add(path, [], *[i.to_bytes(16, "big") for i in range(50)])
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA secure_delete = OFF")
    connection.execute("DELETE FROM entries WHERE rowid > 1")
    assert seal_some(connection, Seal(NEW, b"s" * 32)) == 1
    assert seal_some(connection, Seal(NEW, b"s" * 32)) == 0
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert WORDS in on_disk(tmp_path)
    wipe(connection)
    assert WORDS not in on_disk(tmp_path)
    connection.close()


async def test_an_entry_that_was_changed_or_moved_is_not_there(tmp_path: Path) -> None:
    path, told = tmp_path / "s.db", Told()
    await add(path, [NEW], b"a" * 16, b"b" * 16, b"c" * 16)
    with sqlite3.connect(path) as connection:
        rows = connection.execute("SELECT rowid, value FROM entries ORDER BY rowid").fetchall()
        connection.execute("UPDATE entries SET value = ? WHERE rowid = ?", (rows[0][1], rows[2][0]))
        connection.execute("UPDATE entries SET value = ? WHERE rowid = ?", (b"\x01short", rows[1][0]))
    connection.close()
    store = await opened(path, NEW, told=told)
    assert await store.longest(Shelf.SEEN, [b"a" * 16, b"b" * 16, b"c" * 16]) == (0, VALUE)
    assert await store.longest(Shelf.SEEN, [b"b" * 16]) is None
    assert await store.add(Shelf.SEEN, b"b" * 16, b"mine") == b"mine"
    await store.close()
    assert len(told) == 1


async def test_one_key_seals_differently_for_another_file(tmp_path: Path) -> None:
    first, second = Seal(NEW, b"s" * 32), Seal(NEW, b"t" * 32)
    sealed = first.closed(Shelf.SEEN, b"p" * 16, VALUE)
    assert second.opened(Shelf.SEEN, b"p" * 16, sealed) is None
    assert first.place(b"d") != second.place(b"d")
    assert first.opened(Shelf.RANGE, b"p" * 16, sealed) is None
    assert first.opened(Shelf.SEEN, b"p" * 16, sealed) == VALUE


# As it is configured


@pytest.mark.parametrize(
    ("environ", "fault"),
    [
        pytest.param({}, "STORE_KEY, which is not set", id="not set"),
        pytest.param({"STORE_KEY": " , "}, "STORE_KEY, which is not set", id="nothing but commas"),
        pytest.param({"STORE_KEY": "swordfish"}, "fewer than 16 characters", id="short"),
        pytest.param(
            {"STORE_KEY": f"{NEW},swordfish"}, "fewer than 16 characters", id="an older one is short"
        ),
    ],
)
def test_a_key_that_keeps_no_secret_is_refused(environ: dict[str, str], fault: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load(None, {"COMPACTION_PROXY_STORE_ENCRYPT_WITH_ENV": "STORE_KEY", **environ}, {})
    assert fault in str(refused.value) and "swordfish" not in str(refused.value)


def test_the_variable_may_have_a_name_like_those_of_settings() -> None:
    environ = {
        "COMPACTION_PROXY_STORE_ENCRYPT_WITH_ENV": "COMPACTION_PROXY_STORE_KEY",
        "COMPACTION_PROXY_STORE_KEY": f"{NEW}, {OLD},{NEW}",
    }
    assert load(None, environ, {}).store.encryption_keys(environ) == (NEW, OLD)


async def test_a_session_goes_on_over_a_restart_and_starts_anew_with_another_key(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    upstream = remembering_upstream(window=4096)
    store = StoreConfig(path=str(tmp_path / "s.db"), encrypt_with_env="K")
    body = AgentSession(name="alice").step(14).body()
    outcomes = []
    async with upstream.running():
        for key in (OLD, OLD, OTHER, f"{NEW},{OLD}"):
            async with fronted(upstream.url, store=store, environ={"K": key}) as url:
                answer, _ = await ask(url, "/v1/chat/completions", body=body)
                outcomes.append(answer.header("x-compaction"))
                assert b"mark-alice" not in on_disk(tmp_path)
    assert outcomes == ["compacted", "reused", "compacted", "reused"]
    said = [record for record in caplog.records if record.getMessage() == "store.unreadable"]
    assert len(said) == 1


def test_without_the_package_nothing_is_started_and_the_remedy_is_told(tmp_path: Path) -> None:
    blocked = (
        "import sys; sys.modules['cryptography'] = None; from proxy.__main__ import main; sys.exit(main())"
    )
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            blocked,
            "serve",
            "--upstream",
            "http://127.0.0.1:9",
            "--listen",
            "127.0.0.1:0",
        ],
        env={
            "PYTHONPATH": str(CHECKOUT),
            "COMPACTION_PROXY_STORE_PATH": str(tmp_path / "s.db"),
            "COMPACTION_PROXY_STORE_ENCRYPT_WITH_ENV": "K",
            "K": NEW,
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "pip install 'compaction-proxy[encryption]'" in done.stderr
    assert not list(tmp_path.iterdir())
