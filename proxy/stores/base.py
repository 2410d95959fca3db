"""
Keep small values under digests, so that a restart changes no byte of a view.

A store knows nothing of conversations: it finds the value of the longest history and
keeps the first value that was stored. `memory` and `sqlite` pass one contract test.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Protocol


class Shelf(StrEnum):
    """
    What a digest is a digest of.

    `SEEN` holds compactions under the whole history that was seen, `RANGE` under the
    replaced range alone, `TRIMMED` trims under the history that was seen, `FAILED` the
    attempts that came to nothing. `AHEAD` holds compactions that are not in use yet.
    """

    SEEN = "seen"
    RANGE = "range"
    TRIMMED = "trimmed"
    FAILED = "failed"
    AHEAD = "ahead"


class Store(Protocol):
    """
    Values under digests. Every method may raise `StoreError`; none blocks the event loop.

    Digests carry the caller's scope already: who does not know the digest finds nothing.
    """

    @property
    def secret(self) -> bytes:
        """32 random bytes that live with the store; they key the hash of the caller's credentials."""
        ...

    async def longest(self, shelf: Shelf, digests: Sequence[bytes]) -> tuple[int, bytes] | None:
        """
        The value under the last of *digests* that has one, with that digest's index.

        Reading an entry counts as use of it (`sqlite` prunes by age since last use,
        to within a day).
        """
        ...

    async def longest_on(
        self, shelves: Sequence[Shelf], digests: Sequence[bytes]
    ) -> Mapping[Shelf, tuple[int, bytes]]:
        """What `longest` finds on each of *shelves*, asked at once; a shelf without a value is left out."""
        ...

    def has_none(self, shelves: Sequence[Shelf], digests: Sequence[bytes]) -> bool:
        """Whether it is certain, without asking anybody, that `longest_on` finds nothing."""
        ...

    async def add(self, shelf: Shelf, digest: bytes, value: bytes) -> bytes:
        """Store *value* unless the digest has one already; returns what is stored, the first."""
        ...

    async def size(self) -> tuple[int, int]:
        """Number of entries, and bytes they take."""
        ...

    async def close(self) -> None:
        """Flush and let go; a second call does nothing."""
        ...
