"""
Work after one answer that nobody waits for: how it passes, steps aside, and comes to be waited for.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from proxy.asked import Prepared
from proxy.turnstile import Turnstile


@dataclass(slots=True, eq=False, kw_only=True)
class Attempt:
    """
    For one event loop.

    Attributes:
        prepared: The request that was answered.
        turnstile: Where requests pass.
        task: The work, once it has begun.
        is_sent: Whether the request for notes went upstream.
        noted: Set once there is nothing more to wait for: the notes are stored, or come to nothing.
        wanted: Requests that wait for the notes.
        is_called: Whether somebody came for whom it should have stepped aside.
    """

    prepared: Prepared
    turnstile: Turnstile
    task: "asyncio.Task[None] | None" = None
    is_sent: bool = False
    noted: asyncio.Event = field(default_factory=asyncio.Event)
    wanted: int = 0
    is_called: bool = False

    @property
    def is_free(self) -> bool:
        """Whether neither anybody waits for it nor came since it began."""
        return not self.wanted and not self.is_called

    def step_aside(self) -> None:
        """End, unless somebody waits for the notes."""
        self.is_called = True
        if not self.wanted and self.task is not None:
            self.task.cancel()

    async def until_noted(self) -> None:
        """Wait for the notes. Who came meanwhile has the way as soon as the last waiter leaves."""
        self.wanted += 1
        try:
            await self.noted.wait()
        finally:
            self.wanted -= 1
            if self.is_called and not self.noted.is_set():
                self.step_aside()

    @asynccontextmanager
    async def gate(self, slots: int | None) -> AsyncIterator[None]:
        """
        Pass to a server of so many *slots*: behind everybody, unless somebody waits for the notes by now.

        Raises:
            TimeoutError: If there is no place for too long.
        """
        if slots is None:
            # Not known to have any: the server keeps prompts wherever it works on them.
            yield
        elif self.wanted and slots == 1:
            async with self.turnstile.alone():
                yield
        else:
            async with self.turnstile.behind_others(slots, self.step_aside):
                yield

    @asynccontextmanager
    async def notes_gate(self, slots: int | None) -> AsyncIterator[None]:
        """The same for the request for notes."""
        async with self.gate(slots):
            self.is_sent = True
            yield
