"""
Bring a SQLite file to the schema that this version reads.

The file says what it is in its header: `application_id` names us, `user_version` the
schema. Both change in the transaction that changes the tables, so that a killed process
leaves the old file or the new one.
"""

import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from proxy.errors import StoreError
from proxy.stores.memory import SECRET_BYTES

# "CPXY", so that `file` and a second program can tell whose database this is.
APPLICATION_ID = 0x43505859

# Step n takes schema n to n + 1; never change one that was released, add another.
# `bytes` is what an entry counts for when the store is kept below its size: it stands in a
# column, and in an index, because summing the values themselves would read the whole file.
# `used` is in seconds since the epoch.
STEPS: tuple[tuple[str, ...], ...] = (
    (
        "CREATE TABLE meta (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID",
        "CREATE TABLE entries (shelf TEXT NOT NULL, digest BLOB NOT NULL, value BLOB NOT NULL,"
        " bytes INTEGER NOT NULL, used INTEGER NOT NULL, UNIQUE (shelf, digest))",
    ),
    ("CREATE INDEX entries_by_use ON entries (used, bytes)",),
)
SCHEMA = len(STEPS)


class Damaged(Exception):
    """The file is ours by its header, but not by what it holds."""


def is_ours(connection: sqlite3.Connection, path: Path) -> bool:
    """
    Whether the file carries our mark; False for an empty one.

    Raises:
        StoreError: It belongs to another program, or to a newer version of this one.
    """
    with _one_moment(connection):
        marked = _pragma(connection, "application_id")
        schema = _pragma(connection, "user_version")
        tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if marked == APPLICATION_ID and schema > SCHEMA:
        raise StoreError(
            f"store {path}: it has schema {schema}, this version knows up to {SCHEMA}; "
            f"run the newer compaction-proxy, or give this one another path"
        )
    if marked == APPLICATION_ID:
        return True
    if marked or schema or tables:
        raise StoreError(
            f"store {path}: it is a database of another program; give a path of its own to this one"
        )
    return False


def migrate(connection: sqlite3.Connection, path: Path) -> None:
    """Run the steps that the file, ours or empty, has not seen. Two processes may do so at once."""
    if _pragma(connection, "user_version") == SCHEMA:
        return
    with transaction(connection):
        # Asked again under the lock: another process may have been first.
        is_ours(connection, path)
        for step in STEPS[_pragma(connection, "user_version") :]:
            for statement in step:
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {SCHEMA}")


def read_secret(connection: sqlite3.Connection, new_secret: bytes | None) -> bytes:
    """
    The file's secret; *new_secret*, or random bytes, become it where there is none yet.

    Raises:
        Damaged: What stands there cannot be a secret, or a table is missing.
    """
    try:
        connection.execute("SELECT shelf, digest, value, bytes, used FROM entries LIMIT 0")
        found = _secret(connection)
        if found is None:
            # The first process wins; the others read what it wrote.
            offered = new_secret if new_secret is not None else secrets.token_bytes(SECRET_BYTES)
            connection.execute("INSERT OR IGNORE INTO meta (name, value) VALUES ('secret', ?)", (offered,))
            found = _secret(connection)
    except sqlite3.OperationalError as error:
        if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_ERROR:  # no such table or column
            raise Damaged(str(error)) from error
        raise
    if not isinstance(found, bytes) or len(found) != SECRET_BYTES:
        raise Damaged("its secret is damaged")
    return found


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """A write transaction: committed at the end, rolled back on any exception."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # After a full disk SQLite has rolled back by itself.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@contextmanager
def _one_moment(connection: sqlite3.Connection) -> Iterator[None]:
    """Reads that see the same state, while another process may be making the tables."""
    if connection.in_transaction:
        yield
        return
    connection.execute("BEGIN")
    try:
        yield
    finally:
        if connection.in_transaction:  # after an I/O error SQLite has rolled back by itself
            connection.execute("ROLLBACK")


def _secret(connection: sqlite3.Connection) -> object:
    row = connection.execute("SELECT value FROM meta WHERE name = 'secret'").fetchone()
    return row[0] if row else None


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    value = connection.execute(f"PRAGMA {name}").fetchone()[0]
    return int(value)
