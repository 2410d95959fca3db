"""
Keep the most recently used entries in this process, up to a number of bytes.

For runs that need nothing after them, and as what `guarded` answers from while the
file cannot be reached. What falls out is lost; a lost entry is no error, only work
done again.
"""

import secrets
from collections import OrderedDict
from collections.abc import Mapping, Sequence

from proxy.stores.base import Shelf

SECRET_BYTES = 32

# Measured with sys.getsizeof on CPython 3.11: key tuple, digest and value objects and the
# dictionary's slot. Without it many tiny entries would take several times the bound.
ENTRY_OVERHEAD_BYTES = 300

Key = tuple[Shelf, bytes]


class MemoryStore:
    """
    A `Store` that forgets the entry unused for longest when it holds more than *max_bytes*.

    The newest entry is always kept, even if it alone is larger: whoever adds a value may
    count on reading it back. Never raises `StoreError`, and works on after `close`.

    Args:
        secret: 32 bytes; None for random ones.
        max_bytes: Bound on digests, values and their overhead together.
    """

    def __init__(self, secret: bytes | None = None, max_bytes: int = 256 * 1024 * 1024) -> None:
        self._secret = secret if secret is not None else secrets.token_bytes(SECRET_BYTES)
        self._max_bytes = max_bytes
        self._bytes = 0
        self._values: OrderedDict[Key, bytes] = OrderedDict()
        self._digests: dict[Shelf, set[bytes]] = {shelf: set() for shelf in Shelf}

    @property
    def secret(self) -> bytes:
        """The same for the life of the object."""
        return self._secret

    async def longest(self, shelf: Shelf, digests: Sequence[bytes]) -> tuple[int, bytes] | None:
        """See `Store.longest`."""
        if self._digests[shelf].isdisjoint(digests):
            return None
        for index in range(len(digests) - 1, -1, -1):
            value = self.get((shelf, digests[index]))
            if value is not None:
                return index, value
        return None

    async def longest_on(
        self, shelves: Sequence[Shelf], digests: Sequence[bytes]
    ) -> Mapping[Shelf, tuple[int, bytes]]:
        """See `Store.longest_on`."""
        found = {shelf: await self.longest(shelf, digests) for shelf in shelves}
        return {shelf: entry for shelf, entry in found.items() if entry is not None}

    def has_none(self, shelves: Sequence[Shelf], digests: Sequence[bytes]) -> bool:
        """See `Store.has_none`."""
        return all(self._digests[shelf].isdisjoint(digests) for shelf in shelves)

    async def add(self, shelf: Shelf, digest: bytes, value: bytes) -> bytes:
        """See `Store.add`."""
        first = self.get((shelf, digest))
        if first is not None:
            return first
        self.put((shelf, digest), value)
        return value

    async def size(self) -> tuple[int, int]:
        """See `Store.size`; the overhead counts."""
        return len(self._values), self._bytes

    async def close(self) -> None:
        """There is nothing to let go."""

    def get(self, key: Key) -> bytes | None:
        """The value under *key*, which counts as use of it."""
        value = self._values.get(key)
        if value is not None:
            self._values.move_to_end(key)
        return value

    def put(self, key: Key, value: bytes) -> None:
        """Store *value*, also in the place of another."""
        old = self._values.pop(key, None)
        if old is not None:
            self._bytes -= _cost(key, old)
        self._values[key] = value
        self._digests[key[0]].add(key[1])
        self._bytes += _cost(key, value)
        while self._bytes > self._max_bytes and len(self._values) > 1:
            oldest, dropped = self._values.popitem(last=False)
            self._digests[oldest[0]].discard(oldest[1])
            self._bytes -= _cost(oldest, dropped)

    def keys(self) -> tuple[Key, ...]:
        """Every key, the one unused for longest first."""
        return tuple(self._values)


def _cost(key: Key, value: bytes) -> int:
    return len(key[1]) + len(value) + ENTRY_OVERHEAD_BYTES
