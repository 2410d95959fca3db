"""
Hold a scripted answer until the test lets it go.

An `asyncio.Event` belongs to one loop; a gate may be opened from any thread, since a
scripted upstream can run in a thread of its own.
"""

import asyncio
import threading


class Gate:
    """Closed until `open()`; every waiter then goes on, and later ones do not stop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_open = False
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    @property
    def is_open(self) -> bool:
        """Whether it was opened."""
        return self._is_open

    def open(self) -> None:
        """Let everyone through, now and later. From any thread."""
        with self._lock:
            self._is_open = True
            waiting, self._waiting = self._waiting, []
        for loop, event in waiting:
            if not loop.is_closed():
                loop.call_soon_threadsafe(event.set)

    async def wait(self) -> None:
        """Stop here until the gate is open."""
        event = asyncio.Event()
        with self._lock:
            if self._is_open:
                return
            self._waiting.append((asyncio.get_running_loop(), event))
        await event.wait()
