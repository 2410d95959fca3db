"""
Let requests to the upstream pass side by side, and some of them alone.

A server with a single slot must not be given notes and an agent's own call at once, and a
call that found the shared pool full is asked again alone. Waiting is bounded: a stream
that its client does not read must not hold up the others for good.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

LONGEST_WAIT_SECONDS = 120.0


class Turnstile:
    """For one event loop."""

    def __init__(self, longest_wait_seconds: float = LONGEST_WAIT_SECONDS) -> None:
        self._longest_wait = longest_wait_seconds
        self._waiters: list[asyncio.Future[None]] = []
        self._inside = 0
        self._alone = 0
        self._waiting_alone = 0

    @asynccontextmanager
    async def beside_others(self) -> AsyncIterator[None]:
        """Pass when nobody is alone, or waits to be."""
        await self._until(lambda: not self._alone and not self._waiting_alone)
        self._inside += 1
        try:
            yield
        finally:
            self._inside -= 1
            self._wake()

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Pass when nobody else is inside."""
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

    async def _until(self, free: Callable[[], bool]) -> None:
        if free():
            return
        try:
            async with asyncio.timeout(self._longest_wait):
                while not free():
                    waiter = asyncio.get_running_loop().create_future()
                    self._waiters.append(waiter)
                    await waiter
        except TimeoutError:
            return

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
