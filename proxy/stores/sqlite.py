"""
Keep entries in one SQLite file that survives restarts and is shared between processes.

One thread holds the one connection; the event loop never waits for the disk. Whether and
how the file opens is `sqlite_file`'s question, its tables are `sqlite_schema`'s.
"""

import os
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from proxy.errors import StoreError
from proxy.stores import sqlite_entries as entries
from proxy.stores.base import Shelf
from proxy.stores.call_thread import CallThread
from proxy.stores.sqlite_errors import failed, is_corrupt, is_moved
from proxy.stores.sqlite_file import OpenFile, is_in_place, move_aside, open_file
from proxy.stores.sqlite_index import Index
from proxy.stores.sqlite_unchanged import Unchanged

T = TypeVar("T")

OnSetAside = Callable[[Path, str], None]

MAX_BYTES = 512 * 1024 * 1024

# Another process holds the lock for the milliseconds of one entry; one that keeps it for
# longer than this hangs, and a request is waiting.
WAIT_SECONDS = 2.0

# Looking whether there is something to prune costs a sum over an index.
ADDS_BETWEEN_PRUNES = 100


class SqliteStore:
    """
    A `Store` in one file. Made by `open`.

    When the file turns out to be damaged, or is deleted or replaced while it is open, the
    call that noticed raises `StoreError`, and the next one opens the path again, with a new
    file if need be. `secret` stays what it was: views of a run do not change under it.

    Attributes:
        path: The file, symbolic links resolved.
        set_aside: Where damaged files were renamed to, in order.
    """

    def __init__(
        self,
        path: Path,
        *,
        new_secret: bytes | None,
        max_age_days: float,
        max_bytes: int,
        now: Callable[[], float],
        wait_seconds: float,
        on_set_aside: OnSetAside | None,
    ) -> None:
        self.path = path
        self.set_aside: list[Path] = []
        self._secret: bytes | None = None
        self._new_secret = new_secret
        self._max_age_seconds = max_age_days * entries.DAY_SECONDS
        self._max_bytes = max_bytes
        self._now = now
        self._wait_seconds = wait_seconds
        self._on_set_aside = on_set_aside
        self._damage: list[tuple[Path, str]] = []
        self._file: OpenFile | None = None
        self._index = Index()
        self._unchanged = Unchanged(path)
        self._adds = 0
        self._closed = False
        self._thread = CallThread(f"store {path.name}")

    @classmethod
    async def open(
        cls,
        path: str | os.PathLike[str],
        *,
        max_age_days: float = 30,
        max_bytes: int = MAX_BYTES,
        now: Callable[[], float] = time.time,
        new_secret: bytes | None = None,
        wait_seconds: float = WAIT_SECONDS,
        on_set_aside: OnSetAside | None = None,
    ) -> "SqliteStore":
        """
        Open the file at *path*; it and its folders are made where they are missing.

        Args:
            max_age_days: Entries that were not used for longer are dropped.
            max_bytes: About what the file may take; beyond it the entries unused for longest
                are dropped. The newest entry always stays.
            now: Seconds since the epoch.
            new_secret: The secret to give a file that has none yet; None for a random one.
            wait_seconds: How long a call waits for another process's lock.
            on_set_aside: Told, on the event loop, where a damaged file went and what was wrong.

        Raises:
            StoreError: It cannot be used.
        """
        store = cls(
            Path(os.path.realpath(path)),
            new_secret=new_secret,
            max_age_days=max_age_days,
            max_bytes=max_bytes,
            now=now,
            wait_seconds=wait_seconds,
            on_set_aside=on_set_aside,
        )
        try:
            await store._call("opening", store._prune)
        except BaseException:
            # Without waiting: whoever gives up on a disk that hangs must be able to go on.
            store._closed = True
            store._thread.stop(store._disconnect)
            raise
        return store

    @property
    def secret(self) -> bytes:
        """See `Store.secret`; the same for the life of the object."""
        assert self._secret is not None, "set by open()"
        return self._secret

    async def longest(self, shelf: Shelf, digests: Sequence[bytes]) -> tuple[int, bytes] | None:
        """See `Store.longest`."""
        return (await self.longest_on((shelf,), digests)).get(shelf)

    async def longest_on(
        self, shelves: Sequence[Shelf], digests: Sequence[bytes]
    ) -> Mapping[Shelf, tuple[int, bytes]]:
        """See `Store.longest_on`; one call on the thread, and none where it is known to find nothing."""
        if self.has_none(shelves, digests):
            return {}
        wanted = tuple(digests)
        return await self._call("reading", lambda c: self._longest_on(c, shelves, wanted))

    def has_none(self, shelves: Sequence[Shelf], digests: Sequence[bytes]) -> bool:
        """See `Store.has_none`."""
        is_open = not self._closed
        return is_open and not self._index.may_hold(shelves, digests) and self._unchanged.holds()

    async def add(self, shelf: Shelf, digest: bytes, value: bytes) -> bytes:
        """See `Store.add`. Done even if the caller is cancelled: the value was paid for."""
        return await self._call("writing", lambda c: self._add(c, shelf, digest, value), finish=True)

    async def size(self) -> tuple[int, int]:
        """See `Store.size`."""
        return await self._call("reading", entries.size)

    async def do(self, doing: str, job: Callable[[sqlite3.Connection], T]) -> T:
        """
        *job* with the file's connection, on the store's thread.

        Raises:
            StoreError: The file cannot be used, or *job* raised `sqlite3.Error`.
        """
        return await self._call(doing, job)

    async def close(self) -> None:
        """See `Store.close`; calls made before it are done first."""
        if self._closed:
            return
        self._closed = True
        try:
            await self._thread.run(self._disconnect, finish=True)
        finally:
            self._thread.stop(self._disconnect)

    async def _call(self, doing: str, job: Callable[[sqlite3.Connection], T], *, finish: bool = False) -> T:
        if self._closed:
            raise StoreError(f"store {self.path}: {doing} failed: it is closed")
        try:
            return await self._thread.run(lambda: self._do(doing, job), finish=finish)
        finally:
            while self._damage:
                aside, what = self._damage.pop(0)
                self.set_aside.append(aside)
                if self._on_set_aside is not None:
                    self._on_set_aside(aside, what)

    # What follows runs on the thread.

    def _do(self, doing: str, job: Callable[[sqlite3.Connection], T]) -> T:
        file = self._opened()
        if not is_in_place(self.path, file.identity):
            self._disconnect()
            raise StoreError(
                f"store {self.path}: {doing} failed: the file was removed or replaced while in use; "
                f"it is opened again on the next use"
            )
        try:
            return job(file.connection)
        except sqlite3.Error as error:
            if is_moved(error):
                self._disconnect()
            if is_corrupt(error):
                self._disconnect()
                aside = move_aside(self.path, file.identity)
                if aside is not None:
                    self._damage.append((aside, str(error)))
                raise StoreError(
                    f"store {self.path}: {doing} failed: {error}; the file was set aside as "
                    f"{self.path.name}.corrupt-*, a new one is begun on the next use"
                ) from error
            raise failed(doing, self.path, error) from error

    def _opened(self) -> OpenFile:
        if self._file is None:
            file = open_file(self.path, new_secret=self._new_secret, wait_seconds=self._wait_seconds)
            self._file = file
            self._index = Index()
            self._unchanged.read(None)
            if file.set_aside is not None:
                self._damage.append((file.set_aside, file.damage))
            if self._secret is None:
                # A file begun later in this run carries on with the same.
                self._secret = self._new_secret = file.secret
        return self._file

    def _disconnect(self) -> None:
        if self._file is not None:
            with suppress(sqlite3.Error):  # nothing is lost by it: what was committed is in the log
                self._file.connection.close()
            self._file = None

    def _longest_on(
        self, connection: sqlite3.Connection, shelves: Sequence[Shelf], digests: Sequence[bytes]
    ) -> dict[Shelf, tuple[int, bytes]]:
        mark = self._unchanged.look()
        found = {}
        for shelf in shelves:
            entry = self._longest(connection, shelf, digests)
            if entry is not None:
                found[shelf] = entry
        self._unchanged.read(mark)
        return found

    def _longest(
        self, connection: sqlite3.Connection, shelf: Shelf, digests: Sequence[bytes]
    ) -> tuple[int, bytes] | None:
        places = self._index.among(connection, shelf, digests)
        if not places:
            return None
        found = entries.longest(connection, shelf, [digests[i] for i in places], self._now())
        return None if found is None else (places[found[0]], found[1])

    def _add(self, connection: sqlite3.Connection, shelf: Shelf, digest: bytes, value: bytes) -> bytes:
        stored = entries.add(connection, shelf, digest, value, self._now())
        self._adds += 1
        if self._adds % ADDS_BETWEEN_PRUNES == 0:
            self._prune(connection)
        return stored

    def _prune(self, connection: sqlite3.Connection) -> None:
        unused_since = self._now() - self._max_age_seconds
        entries.prune(connection, unused_since=unused_since, max_bytes=self._max_bytes)
