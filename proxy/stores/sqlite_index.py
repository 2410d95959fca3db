"""
Know which digests a SQLite file holds without asking it for each.

Nearly every request asks for hundreds of digests of which the file holds none or a few. What is
in the file is read once, and what was added since whenever SQLite says that something changed,
by this process or another. What was dropped meanwhile may still be named here: the file has the
last word.
"""

import sqlite3
from collections.abc import Sequence

from proxy.stores.base import Shelf

# About 20 MB when full; a file that holds more is asked itself.
MOST_INDEXED = 200_000


class Index:
    """The digests of one open file. For the thread that holds its connection, but for `may_hold`."""

    def __init__(self, *, most: int = MOST_INDEXED) -> None:
        self._most = most
        self._shelves: dict[str, set[bytes]] = {}
        self._count = 0
        self._last_row = 0
        self._seen: tuple[int, int] | None = None

    def may_hold(self, shelves: Sequence[Shelf], digests: Sequence[bytes]) -> bool:
        """Whether any of *shelves* may hold any of *digests*, by what was read last; from any thread."""
        if self._seen is None or self._count > self._most:
            return True
        sets = (self._shelves.get(shelf.value) for shelf in shelves)
        return any(held is not None and not held.isdisjoint(digests) for held in sets)

    def among(self, connection: sqlite3.Connection, shelf: Shelf, digests: Sequence[bytes]) -> list[int]:
        """Indices of those of *digests* that *shelf* may hold; all of them where the file is too large."""
        self._read_on(connection)
        if self._count > self._most:
            return list(range(len(digests)))
        held = self._shelves.get(shelf.value)
        if held is None or held.isdisjoint(digests):
            return []
        return [i for i, digest in enumerate(digests) if digest in held]

    def _read_on(self, connection: sqlite3.Connection) -> None:
        # The first counts the commits of others, the second the changes of our own.
        now = (connection.execute("PRAGMA data_version").fetchone()[0], connection.total_changes)
        if now == self._seen or self._count > self._most:
            return
        rows = connection.execute(
            "SELECT rowid, shelf, digest FROM entries WHERE rowid > ? ORDER BY rowid LIMIT ?",
            (self._last_row, self._most + 1 - self._count),
        )
        for row, shelf, digest in rows:
            self._shelves.setdefault(shelf, set()).add(digest)
            self._last_row = row
            self._count += 1
        self._seen = now
        if self._count > self._most:
            self._shelves = {}
