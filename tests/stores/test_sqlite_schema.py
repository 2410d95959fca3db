"""That two processes which make the same file at the same moment agree, whatever the order of their steps."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from proxy.stores.sqlite_schema import is_ours, migrate, read_secret, transaction


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def pair(path: Path) -> Iterator[tuple[sqlite3.Connection, sqlite3.Connection]]:
    """Two connections to an empty file that has its log already."""
    with (
        closing(sqlite3.connect(path, isolation_level=None)) as ours,
        closing(sqlite3.connect(path, isolation_level=None)) as theirs,
    ):
        ours.execute("PRAGMA journal_mode = WAL")
        yield ours, theirs


def just_before(connection: sqlite3.Connection, statement: str, act: Callable[[], object]) -> None:
    """Let *act* happen once, when *connection* is about to run a statement that begins so."""
    acts = [act]

    def traced(running: str) -> None:
        if running.startswith(statement) and acts:
            acts.pop()()

    connection.set_trace_callback(traced)


@pytest.mark.parametrize("statement", ["PRAGMA application_id", "PRAGMA user_version", "SELECT count"])
def test_a_file_that_is_being_made_is_never_taken_for_another_programs(
    path: Path, pair: tuple[sqlite3.Connection, sqlite3.Connection], statement: str
) -> None:
    ours, theirs = pair
    just_before(ours, statement, lambda: migrate(theirs, path))
    is_ours(ours, path)
    migrate(ours, path)
    assert is_ours(ours, path)
    assert is_ours(theirs, path)


@pytest.mark.parametrize("statement", ["PRAGMA user_version", "BEGIN IMMEDIATE"])
def test_tables_are_made_once(
    path: Path, pair: tuple[sqlite3.Connection, sqlite3.Connection], statement: str
) -> None:
    ours, theirs = pair
    just_before(ours, statement, lambda: migrate(theirs, path))
    migrate(ours, path)
    assert is_ours(ours, path)


@pytest.mark.parametrize("statement", ["SELECT value FROM meta", "INSERT OR IGNORE INTO meta"])
def test_the_first_secret_wins(
    path: Path, pair: tuple[sqlite3.Connection, sqlite3.Connection], statement: str
) -> None:
    ours, theirs = pair
    migrate(ours, path)
    just_before(ours, statement, lambda: read_secret(theirs, b"t" * 32))
    assert read_secret(ours, b"o" * 32) == b"t" * 32
    assert read_secret(theirs, None) == b"t" * 32


def test_between_reading_and_writing_of_one_transaction_nobody_else_writes(
    path: Path, pair: tuple[sqlite3.Connection, sqlite3.Connection]
) -> None:
    ours, theirs = pair
    migrate(ours, path)
    theirs.execute("PRAGMA busy_timeout = 0")
    with transaction(ours):
        ours.execute("SELECT value FROM meta").fetchall()
        with pytest.raises(sqlite3.OperationalError, match="locked"), transaction(theirs):
            raise AssertionError("two are writing")
        ours.execute("INSERT INTO meta VALUES ('a', x'00')")
    with transaction(theirs):
        assert theirs.execute("SELECT count(*) FROM meta").fetchall() == [(1,)]


def test_a_transaction_that_fails_leaves_nothing(
    path: Path, pair: tuple[sqlite3.Connection, sqlite3.Connection]
) -> None:
    ours, _ = pair
    migrate(ours, path)
    with pytest.raises(KeyError), transaction(ours):
        ours.execute("INSERT INTO meta VALUES ('a', x'00')")
        raise KeyError
    assert ours.execute("SELECT count(*) FROM meta").fetchall() == [(0,)]
