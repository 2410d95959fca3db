"""
Keep entries in a SQLite file so that at rest no word of a conversation can be read.

What does not open with the key counts as not there: notes are made again, and no request
fails. Of several keys the first seals, and the others still open what they sealed.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Mapping, Sequence

from proxy.stores.base import Shelf
from proxy.stores.sealing import Seal
from proxy.stores.sqlite import SqliteStore
from proxy.stores.sqlite_sealing import fits, seal_some, wipe

OnUnreadable = Callable[[str], None]

_REMEDY = (
    "they count as not there, and notes are made again; give the old key after the new one, parted by a "
    "comma, in the variable that store.encrypt_with_env names"
)


class EncryptedStore:
    """A `Store` around a `SqliteStore`. Made by `open`."""

    def __init__(self, inner: SqliteStore, seals: Sequence[Seal], on_unreadable: OnUnreadable) -> None:
        self._inner = inner
        self._seals = tuple(seals)
        self._on_unreadable = on_unreadable
        self._has_told = False

    @classmethod
    async def open(
        cls, inner: SqliteStore, keys: Sequence[str], on_unreadable: OnUnreadable
    ) -> "EncryptedStore":
        """
        Take *inner*, which was just opened, over: what it holds in the clear is sealed.

        Args:
            inner: Closed with the store, and at once where that fails.
            keys: At least one.
            on_unreadable: Told once, in words for the log, that there is what no key opens.

        Raises:
            StoreError: The file cannot be read or written.
        """
        try:
            seals = await asyncio.to_thread(lambda: [Seal(key, inner.secret) for key in keys])
            store = cls(inner, seals, on_unreadable)
            sealed = 0
            while some := await inner.do("sealing", lambda connection: seal_some(connection, seals[0])):
                sealed += some
            if sealed:
                await inner.do("sealing", wipe)
            if not await inner.do("reading", store._fits):
                store._tell("none of the newest entries was encrypted with a key that is given")
        except BaseException:
            await inner.close()
            raise
        return store

    @property
    def secret(self) -> bytes:
        """See `Store.secret`."""
        return self._inner.secret

    async def longest(self, shelf: Shelf, digests: Sequence[bytes]) -> tuple[int, bytes] | None:
        """See `Store.longest`."""
        return (await self.longest_on((shelf,), digests)).get(shelf)

    async def longest_on(
        self, shelves: Sequence[Shelf], digests: Sequence[bytes]
    ) -> Mapping[Shelf, tuple[int, bytes]]:
        """See `Store.longest_on`."""
        places = [seal.place(digest) for digest in digests for seal in reversed(self._seals)]
        found: dict[Shelf, tuple[int, bytes]] = {}
        for shelf, entry in (await self._inner.longest_on(shelves, places)).items():
            opened = await self._first_that_opens(shelf, places, entry)
            if opened is not None:
                found[shelf] = opened
        return found

    def has_none(self, shelves: Sequence[Shelf], digests: Sequence[bytes]) -> bool:
        """See `Store.has_none`: places have to be made first, and `longest_on` makes the same ones."""
        return False

    async def add(self, shelf: Shelf, digest: bytes, value: bytes) -> bytes:
        """See `Store.add`."""
        if len(self._seals) > 1 and (before := await self.longest(shelf, (digest,))) is not None:
            return before[1]
        seal = self._seals[0]
        place = seal.place(digest)
        sealed = seal.closed(shelf, place, value)
        stored = await self._inner.add(shelf, place, sealed)
        opened = value if stored == sealed else seal.opened(shelf, place, stored)
        return value if opened is None else opened

    async def size(self) -> tuple[int, int]:
        """See `Store.size`; what cannot be read counts too."""
        return await self._inner.size()

    async def close(self) -> None:
        """See `Store.close`."""
        await self._inner.close()

    async def _first_that_opens(
        self, shelf: Shelf, places: Sequence[bytes], entry: tuple[int, bytes] | None
    ) -> tuple[int, bytes] | None:
        """From *entry* down, by digest instead of place."""
        while entry is not None:
            at, sealed = entry
            opened = self._opened(shelf, places[at], sealed)
            if opened is not None:
                return at // len(self._seals), opened
            # Somebody has changed the file, or the disk has.
            self._tell("an entry is not what was encrypted there")
            entry = await self._inner.longest(shelf, places[:at]) if at else None
        return None

    def _fits(self, connection: sqlite3.Connection) -> bool:
        return fits(connection, self._opened)

    def _opened(self, shelf: Shelf, place: bytes, sealed: bytes) -> bytes | None:
        for seal in self._seals:
            opened = seal.opened(shelf, place, sealed)
            if opened is not None:
                return opened
        return None

    def _tell(self, what: str) -> None:
        if not self._has_told:
            self._has_told = True
            self._on_unreadable(f"{what}: {_REMEDY}")
