"""
Seal what an open SQLite file holds in the clear, and look whether a key fits the rest.

What was readable must not stay readable in what SQLite no longer uses: the file is written
anew, and its log cut off. Everything here blocks, and raises `sqlite3.Error`.
"""

import sqlite3
from collections.abc import Callable

from proxy.stores.base import Shelf
from proxy.stores.sealing import Seal, is_sealed
from proxy.stores.sqlite_entries import ROW_BYTES
from proxy.stores.sqlite_schema import transaction

# In one transaction, so that other processes, and the patience of a request, get their turn.
BATCH = 200
# Enough to tell whether the key fits: after a change of keys the newest are of the old one.
_SAMPLE = 50


def seal_some(connection: sqlite3.Connection, seal: Seal) -> int:
    """Seal up to `BATCH` entries that are readable; returns how many there were."""
    with transaction(connection):
        rows = connection.execute(
            "SELECT rowid, shelf, digest, value, used FROM entries"
            f" WHERE substr(value, 1, 1) <> x'01' LIMIT {BATCH}"
        ).fetchall()
        for rowid, shelf, digest, value, used in rows:
            place = seal.place(digest)
            sealed = seal.closed(Shelf(shelf), place, value)
            # First out, then in: with a new number, so that other processes see it as new.
            connection.execute("DELETE FROM entries WHERE rowid = ?", (rowid,))
            connection.execute(
                "INSERT OR IGNORE INTO entries (shelf, digest, value, bytes, used) VALUES (?, ?, ?, ?, ?)",
                (shelf, place, sealed, len(place) + len(sealed) + ROW_BYTES, used),
            )
    return len(rows)


def wipe(connection: sqlite3.Connection) -> None:
    """Leave nothing of what the file held before: neither in pages that are free, nor in the log."""
    connection.execute("VACUUM")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def fits(connection: sqlite3.Connection, opened: Callable[[Shelf, bytes, bytes], bytes | None]) -> bool:
    """Whether any of the newest sealed entries can be opened, or there is none."""
    rows = connection.execute(
        f"SELECT shelf, digest, value FROM entries ORDER BY rowid DESC LIMIT {_SAMPLE}"
    ).fetchall()
    sealed = [(shelf, place, value) for shelf, place, value in rows if is_sealed(value)]
    return not sealed or any(opened(Shelf(shelf), place, value) is not None for shelf, place, value in sealed)
