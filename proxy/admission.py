"""
How much is worked on at once, and what happens to the rest?

Who finds no place waits in line for as long as the client does, as it would in the upstream's
own; only who finds the line full, or no room for its body, is sent away for a moment.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from proxy.errors import Overloaded, Stopping


class Places:
    """
    A number of places, and a line before them. For one event loop.

    Args:
        most: Places that there are.
        line: How many may wait for one; None for any number.

    Attributes:
        most: The same; a new value counts for who comes from then on.
        line: The same.
        taken: Places that are taken.
    """

    def __init__(self, most: int, line: int | None = None) -> None:
        self.most = most
        self.line = line
        self.taken = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_closed = False

    @property
    def waiting(self) -> int:
        """How many are in line."""
        return len(self._waiting)

    @asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """
        A place, once there is one; first come, first served.

        Raises:
            Overloaded: If the line is full.
            Stopping: If the proxy stops first.
        """
        if self.taken < self.most and not self._waiting and not self._is_closed:
            self.taken += 1
        else:
            await self._wait()
        try:
            yield
        finally:
            self.taken -= 1
            self._next()

    def close(self) -> None:
        """Send away those who wait, and all who come later."""
        self._is_closed = True
        for turn in self._waiting:
            if not turn.done():
                turn.set_exception(Stopping())
        self._waiting.clear()

    async def _wait(self) -> None:
        if self._is_closed:
            raise Stopping()
        # More places than before may be free while some still wait: those come first.
        if self.line is not None and self.waiting >= self.line:
            raise Overloaded(
                f"{self.taken} requests are under way and {self.waiting} wait for their turn; try again "
                "soon, or raise `limits.requests_at_once` or `limits.requests_waiting` of the proxy"
            )
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        self._next()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                # It had just been given the place that it does not want any more.
                self.taken -= 1
            elif turn in self._waiting:
                self._waiting.remove(turn)
            self._next()
            raise

    def _next(self) -> None:
        while self._waiting and self.taken < self.most:
            turn = self._waiting.popleft()
            # One that is being cancelled has not had the time to leave the line.
            if not turn.done():
                self.taken += 1
                turn.set_result(None)


class Room:
    """
    Memory for the bodies of requests. For one event loop.

    Args:
        most: Bytes of all bodies that are held together; a single one is always let in.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.taken = 0

    def take(self, size: int, own: int = 0) -> None:
        """
        Have room for *size* more bytes, for a request that has *own* already.

        Raises:
            Overloaded: If there is none.
        """
        if self.taken > own and self.taken + size > self.most:
            raise Overloaded(
                f"the bodies of the requests under way take {self.taken} bytes; try again soon, or raise "
                "`limits.bodies_at_once_bytes` of the proxy"
            )
        self.taken += size

    def give_back(self, size: int) -> None:
        """Let go of as many bytes."""
        self.taken -= size
