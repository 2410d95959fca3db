"""
Let requests to the upstream pass side by side, some alone, and some only while nobody needs the place.

A server with a single slot must not be given notes and an agent's own call at once, and a
call that found the shared pool full is asked again alone. Work that nobody waits for yet is
told to step aside as soon as somebody comes for whom there would be no slot. Waiting is
bounded: a stream that its client does not read must not hold up the others for good.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from proxy.admission import Places

LONGEST_WAIT_SECONDS = 120.0


@dataclass(frozen=True, slots=True, eq=False)
class _Behind:
    """Work that nobody waits for: slots of its server, and whom to tell to step aside."""

    places: int
    step_aside: Callable[[], None]


class Turnstile:
    """
    For one event loop.

    Args:
        longest_wait_seconds: Until one passes all the same.
        notes: Sets of notes that may be written at once.

    Attributes:
        notes: The places for them.
    """

    def __init__(self, longest_wait_seconds: float = LONGEST_WAIT_SECONDS, notes: int = 16) -> None:
        self._longest_wait = longest_wait_seconds
        self.notes = Places(notes)
        self._waiters: list[asyncio.Future[None]] = []
        self._inside = 0
        self._alone = 0
        self._waiting_alone = 0
        self._waiting_beside = 0
        self._behind: list[_Behind] = []

    @asynccontextmanager
    async def beside_others(self) -> AsyncIterator[None]:
        """Pass when nobody is alone, or waits to be."""
        self._call_aside(all_of_them=False)
        self._waiting_beside += 1
        try:
            await self._until(lambda: not self._alone and not self._waiting_alone)
        finally:
            self._waiting_beside -= 1
            self._wake()
        self._inside += 1
        try:
            yield
        finally:
            self._inside -= 1
            self._wake()

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Pass when nobody else is inside."""
        self._call_aside(all_of_them=True)
        self._waiting_alone += 1
        try:
            await self._until(lambda: not self._alone and not self._inside)
        finally:
            self._waiting_alone -= 1
            self._wake()
        self._alone += 1
        try:
            yield
        finally:
            self._alone -= 1
            self._wake()

    @asynccontextmanager
    async def behind_others(self, places: int, step_aside: Callable[[], None]) -> AsyncIterator[None]:
        """
        Pass when nobody needs the place, for work that nobody waits for.

        Args:
            places: Slots of the server. With a single one the others wait until this has left.
            step_aside: Called when somebody comes for whom there is no slot beside this; it should
                end the work, unless somebody waits for it by now.

        Raises:
            TimeoutError: If there is no place for too long.
        """
        behind = _Behind(places, step_aside)
        self._behind.append(behind)
        try:
            if not await self._until(lambda: self._has_place(places)):
                raise TimeoutError
            blocks = places == 1
            self._alone += blocks
            try:
                yield
            finally:
                self._alone -= blocks
                self._wake()
        finally:
            self._behind.remove(behind)

    def make_way(self) -> None:
        """Somebody comes who does not pass here, and takes a slot all the same."""
        self._call_aside(all_of_them=False)

    def _has_place(self, places: int) -> bool:
        waiting = self._waiting_alone + self._waiting_beside
        return not self._alone and not waiting and self._inside < places

    def _call_aside(self, *, all_of_them: bool) -> None:
        """Somebody comes: tell those who are in the way."""
        taken = self._inside + self._waiting_beside + len(self._behind)
        for behind in list(self._behind):
            if all_of_them or taken >= behind.places:
                behind.step_aside()

    async def _until(self, free: Callable[[], bool]) -> bool:
        """Wait until it is *free*; False where that took too long."""
        if free():
            return True
        try:
            async with asyncio.timeout(self._longest_wait):
                while not free():
                    waiter = asyncio.get_running_loop().create_future()
                    self._waiters.append(waiter)
                    await waiter
        except TimeoutError:
            return False
        return True

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
