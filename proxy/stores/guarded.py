"""
Let requests go on when the store fails.

The rest of the proxy sees this store alone. It asks the real one, remembers in memory what
this run has read and added, and answers from there while the real one cannot be reached:
a conversation under way keeps its view. After a pause the real store is tried again, and
what was added meanwhile is written to it.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from proxy.errors import StoreError
from proxy.stores.base import Shelf, Store
from proxy.stores.memory import Key, MemoryStore

T = TypeVar("T")

# Long enough that a store that makes every try wait does not slow a session down.
PAUSE_SECONDS = 30.0

# Longer than a store waits for another process's lock, so that its own words are reported.
PATIENCE_SECONDS = 5.0

# Written to a recovered store within one request; the rest follows with the next ones.
_CATCH_UP = 100


class GuardedStore:
    """
    A `Store` whose methods never raise.

    The secret is fixed when `open` returns and never changes afterwards, because every
    digest of this run depends on it: the real store's if it opened, else the fallback's. A
    real store that opens only later is used under the secret of this run. If it had one of
    its own (a file that was locked when we started), what it held before stays unreachable
    until the next start, and what this run adds is unreachable after it: work is repeated, no
    view changes. If it had none (a full disk when we started), nothing is lost, provided that
    *inner_open* offers it the fallback's secret (`SqliteStore.open(new_secret=...)`).

    Where another process was first to store a value under a digest that this run used without
    the real store, the other's is used from the recovery on: the first stored wins, and both
    processes come to the same view.

    Args:
        inner_open: Opens the real store; called again after a failure to open.
        fallback: Holds what this run knows; used by no other.
        on_error: Told each failure, at most a few per pause. The caller limits its log.
        now: Any clock in seconds that does not jump, for the pause.
        pause_seconds: From a failure to the next try.
        patience_seconds: After which a call counts as failed; a disk may hang for ever.

    Attributes:
        healthy: Whether the real store took part in the last thing asked of it.
        last_error: What the last failure said; empty if there was none.
    """

    def __init__(
        self,
        inner_open: Callable[[], Awaitable[Store]],
        fallback: MemoryStore,
        on_error: Callable[[StoreError], None],
        now: Callable[[], float] = time.monotonic,
        *,
        pause_seconds: float = PAUSE_SECONDS,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self.last_error = ""
        self._inner_open = inner_open
        self._fallback = fallback
        self._on_error = on_error
        self._now = now
        self._pause_seconds = pause_seconds
        self._patience_seconds = patience_seconds
        self._secret = fallback.secret
        self._inner: Store | None = None
        self._closed = False
        self._reaching = False
        # When to try again after a failure; None while there is none. Apart, because a full
        # disk can still be read.
        self._read_again_at: float | None = None
        self._write_again_at: float | None = None
        # Keys that may be missing in the real store, oldest first; their values are in the fallback.
        self._unsaved: dict[Key, None] = {}

    async def open(self) -> None:
        """Open the real store, if it can be; to be called once, before anything is asked."""
        inner = await self._reach()
        if inner is not None:
            self._secret = inner.secret

    @property
    def secret(self) -> bytes:
        """See `Store.secret`; the class says whose."""
        return self._secret

    @property
    def healthy(self) -> bool:
        """See the class."""
        return self._inner is not None and self._read_again_at is None and self._write_again_at is None

    async def recover(self) -> bool:
        """
        Try the real store again if the pause is over; whether it is healthy.

        For a readiness probe: a proxy that is kept out of service gets no requests, and
        would never recover by them.
        """
        await self.size()
        return self.healthy

    async def longest(self, shelf: Shelf, digests: Sequence[bytes]) -> tuple[int, bytes] | None:
        """See `Store.longest`."""
        return (await self.longest_on((shelf,), digests)).get(shelf)

    async def longest_on(
        self, shelves: Sequence[Shelf], digests: Sequence[bytes]
    ) -> Mapping[Shelf, tuple[int, bytes]]:
        """See `Store.longest_on`."""
        if self.has_none(shelves, digests):
            return {}
        known = await self._fallback.longest_on(shelves, digests)
        inner = await self._reach()
        if inner is None:
            return known
        try:
            found = await self._answer(inner.longest_on(shelves, digests))
        except StoreError as error:
            self._failed(error)
            return known
        self._read_again_at = None
        best: dict[Shelf, tuple[int, bytes]] = {}
        for shelf in shelves:
            ours, theirs = known.get(shelf), found.get(shelf)
            if ours is not None and (theirs is None or ours[0] > theirs[0]):
                # The real store could not take it yet, has pruned it, or was replaced.
                self._unsaved[shelf, digests[ours[0]]] = None
                best[shelf] = ours
            elif theirs is not None:
                self._fallback.put((shelf, digests[theirs[0]]), theirs[1])
                best[shelf] = theirs
        return best

    def has_none(self, shelves: Sequence[Shelf], digests: Sequence[bytes]) -> bool:
        """See `Store.has_none`."""
        if self._inner is None or self._closed or not self.healthy or self._unsaved:
            return False
        return self._fallback.has_none(shelves, digests) and self._inner.has_none(shelves, digests)

    async def add(self, shelf: Shelf, digest: bytes, value: bytes) -> bytes:
        """See `Store.add`."""
        key = (shelf, digest)
        # What was answered before, while the real store was away, is what is offered to it.
        first = await self._fallback.add(shelf, digest, value)
        inner = await self._reach()
        if inner is not None and self._write_again_at is None:
            try:
                return await self._save(inner, key, first)
            except StoreError as error:
                self._unsaved[key] = None
                self._failed(error, reading=False)
        else:
            self._unsaved[key] = None
        return first

    async def size(self) -> tuple[int, int]:
        """See `Store.size`; of the fallback while the real store is away."""
        inner = await self._reach()
        if inner is not None:
            try:
                sizes = await self._answer(inner.size())
            except StoreError as error:
                self._failed(error)
            else:
                self._read_again_at = None
                return sizes
        return await self._fallback.size()

    async def close(self) -> None:
        """See `Store.close`; what is unsaved is offered once more."""
        if self._closed:
            return
        self._closed = True
        inner = self._inner
        if inner is None:
            return
        try:
            await self._answer(self._catch_up(inner, len(self._unsaved)))
        except StoreError as error:
            self._failed(error)
        # Also where that failed: what cannot be saved must not keep the file open.
        try:
            await self._answer(inner.close())
        except StoreError as error:
            self._failed(error)

    async def _reach(self) -> Store | None:
        """The real store if it may be read now; opens it and catches up when a pause is over."""
        if self.healthy and not self._unsaved and not self._closed:
            return self._inner
        # While one request tries, the others do not wait for it.
        if not self._closed and not self._reaching:
            self._reaching = True
            try:
                await self._try_again()
            finally:
                self._reaching = False
        return None if self._closed or self._is_paused(self._read_again_at) else self._inner

    async def _try_again(self) -> None:
        if self._inner is None and not self._is_paused(self._read_again_at):
            try:
                self._inner = await self._answer(self._inner_open())
            except StoreError as error:
                self._failed(error)
                return
            self._read_again_at = self._write_again_at = None
        if (
            self._inner is None
            or self._is_paused(self._read_again_at)
            or self._is_paused(self._write_again_at)
        ):
            return
        try:
            await self._answer(self._catch_up(self._inner, _CATCH_UP))
        except StoreError as error:
            # A disk that hangs must not make the same request wait for a read as well.
            self._failed(error, reading=isinstance(error.__cause__, TimeoutError))
        else:
            self._write_again_at = None

    async def _catch_up(self, inner: Store, most: int) -> None:
        for key in list(self._unsaved)[:most]:
            value = self._fallback.get(key)
            if value is None:  # fell out of the fallback: nothing to save any more
                self._unsaved.pop(key, None)
            else:
                await self._save(inner, key, value)

    async def _save(self, inner: Store, key: Key, value: bytes) -> bytes:
        stored = await self._answer(inner.add(*key, value))
        self._fallback.put(key, stored)
        self._unsaved.pop(key, None)
        return stored

    async def _answer(self, asked: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(self._patience_seconds):
                return await asked
        except StoreError:
            raise
        except TimeoutError as error:
            raise StoreError(
                f"store: no answer within {self._patience_seconds:g} s; check the disk that it is on"
            ) from error
        except Exception as error:
            # A fault in a store must not fail a request that needs no store.
            raise StoreError(
                f"store: unexpected {type(error).__name__}: {error}; please report it"
            ) from error

    def _failed(self, error: StoreError, *, reading: bool = True) -> None:
        again_at = self._now() + self._pause_seconds
        self._write_again_at = again_at
        if reading:
            self._read_again_at = again_at
        # Nobody knows what has reached the disk: the file may be a new one when it is next
        # opened. All that this run used is offered again; what is there already stays.
        # First what is known to be missing, so that a disk that is still full is soon met.
        self._unsaved |= dict.fromkeys(self._fallback.keys())
        self.last_error = str(error)
        self._on_error(error)

    def _is_paused(self, again_at: float | None) -> bool:
        return again_at is not None and self._now() < again_at
