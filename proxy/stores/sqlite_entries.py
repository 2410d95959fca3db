"""
Find, add and prune entries in an open SQLite file.

Connections are in autocommit mode; `now` is in seconds since the epoch. Everything here
blocks, and raises `sqlite3.Error`.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from proxy.stores.base import Shelf
from proxy.stores.sqlite_schema import transaction

DAY_SECONDS = 24 * 60 * 60

# SQLite before 3.32 takes 999 parameters in one statement.
_DIGESTS_PER_QUERY = 500

# Room made beyond what is needed, so that the next entry does not make it necessary again.
_PRUNE_TO = 0.9

# Deleted in one transaction, so that other processes get their turn in between.
_PRUNE_STEP = 200

# Pages given back to the file system by one pruning: 8 MB, some milliseconds.
_VACUUM_PAGES = 2000

# What a row and its places in two indexes take beside digest and value, about.
ROW_BYTES = 150


def longest(
    connection: sqlite3.Connection, shelf: Shelf, digests: Sequence[bytes], now: float
) -> tuple[int, bytes] | None:
    """The value under the last of *digests* that has one, with that digest's index."""
    for end in range(len(digests), 0, -_DIGESTS_PER_QUERY):
        places = {digests[i]: i for i in range(max(0, end - _DIGESTS_PER_QUERY), end)}
        marks = ",".join("?" * len(places))
        # Digests alone come from the index; most of the values are not wanted.
        rows = connection.execute(
            f"SELECT digest FROM entries WHERE shelf = ? AND digest IN ({marks})", (shelf.value, *places)
        ).fetchall()
        for digest in sorted((row[0] for row in rows), key=places.__getitem__, reverse=True):
            value = _use(connection, shelf, digest, int(now))
            if value is not None:  # another process may have pruned it meanwhile
                return places[digest], value
    return None


def add(connection: sqlite3.Connection, shelf: Shelf, digest: bytes, value: bytes, now: float) -> bytes:
    """Store *value* unless the digest has one already; returns the first."""
    with transaction(connection):
        row = connection.execute(
            "SELECT value FROM entries WHERE shelf = ? AND digest = ?", (shelf.value, digest)
        ).fetchone()
        if row is not None:
            return bytes(row[0])
        connection.execute(
            "INSERT INTO entries (shelf, digest, value, bytes, used) VALUES (?, ?, ?, ?, ?)",
            (shelf.value, digest, value, len(digest) + len(value) + ROW_BYTES, int(now)),
        )
    return value


def size(connection: sqlite3.Connection) -> tuple[int, int]:
    """Number of entries, and bytes they take."""
    entries, taken = connection.execute("SELECT count(*), coalesce(sum(bytes), 0) FROM entries").fetchone()
    return int(entries), int(taken)


def prune(connection: sqlite3.Connection, *, unused_since: float, max_bytes: int) -> None:
    """
    Drop what was not used since, and then what was unused for longest until the rest fits.

    The newest entry always stays. Costs one sum over an index where there is nothing to do;
    where the file cannot be written just now, it is left for the next time.
    """
    with _in_passing(connection):
        while _drop_oldest(connection, "used < ?", (int(unused_since),), None):
            pass
        entries, taken = size(connection)
        if taken > max_bytes:
            while entries > 1 and taken > max_bytes * _PRUNE_TO:
                # Not the newest: whoever has added a value counts on reading it back.
                keep = "rowid <> (SELECT max(rowid) FROM entries)"
                _drop_oldest(connection, keep, (), taken - int(max_bytes * _PRUNE_TO))
                entries, taken = size(connection)
        # As a script: a page is given back with each step of the statement, and `execute` takes one
        # step of a statement without columns.
        connection.executescript(f"PRAGMA incremental_vacuum({_VACUUM_PAGES})")


def _use(connection: sqlite3.Connection, shelf: Shelf, digest: bytes, now: int) -> bytes | None:
    row = connection.execute(
        "SELECT rowid, value, used FROM entries WHERE shelf = ? AND digest = ?", (shelf.value, digest)
    ).fetchone()
    if row is None:
        return None
    # Once a day: reading is far more frequent than writing, and a prune looks at days. In both
    # directions: a clock that was wrong once must not make an entry immortal.
    if abs(now - row[2]) >= DAY_SECONDS:
        with _in_passing(connection):
            connection.execute("UPDATE entries SET used = ? WHERE rowid = ?", (now, row[0]))
    return bytes(row[1])


def _drop_oldest(
    connection: sqlite3.Connection, where: str, values: tuple[int, ...], enough: int | None
) -> int:
    """Drop one step's worth of the entries unused for longest; returns how many."""
    with transaction(connection):
        rows = connection.execute(
            f"SELECT rowid, bytes FROM entries WHERE {where} ORDER BY used, rowid LIMIT {_PRUNE_STEP}", values
        ).fetchall()
        freed = 0
        dropped = []
        for rowid, taken in rows:
            if enough is not None and freed >= enough:
                break
            freed += taken
            dropped.append((rowid,))
        connection.executemany("DELETE FROM entries WHERE rowid = ?", dropped)
    return len(dropped)


@contextmanager
def _in_passing(connection: sqlite3.Connection) -> Iterator[None]:
    """A write that can as well be made another time: no waiting, no failure but for damage."""
    waits = int(connection.execute("PRAGMA busy_timeout").fetchone()[0])
    connection.execute("PRAGMA busy_timeout = 0")
    try:
        yield
    except sqlite3.OperationalError:
        pass
    finally:
        connection.execute(f"PRAGMA busy_timeout = {waits}")
