"""
Can the upstream be connected to at all, and when is it worth a try?

After several attempts in a row that found no connection the circuit is open: requests are
answered at once instead of waiting for the same failure. Nobody is refused without a look,
though: each request then sees the result of a bare connection that is tried at that very
moment, so a server that is started again is found by the first request after it. A server
that is slow, or answers errors, has been connected to and keeps the circuit closed.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from proxy.errors import UpstreamDown
from proxy.events import emit

# One may meet a server that is just being started again; five in a row did not.
FAILURES_TO_OPEN = 5
# What "at once" may take: a server that is up accepts within one round trip, and few are
# this far away.
PATIENCE_SECONDS = 0.5


class Circuit:
    """
    The state of one upstream. For one event loop.

    Args:
        where: The upstream's address, for messages.
        connect: Makes a connection and lets it go; raises OSError or TimeoutError where there is none.
        now: Seconds, monotonic.
        on_change: Told when the circuit opens (True) and closes.
        patience_seconds: How long a request waits for the result of an attempt.
    """

    def __init__(
        self,
        where: str,
        connect: Callable[[], Awaitable[None]],
        *,
        now: Callable[[], float],
        on_change: Callable[[bool], None] = lambda is_open: None,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self._where = where
        self._connect = connect
        self._now = now
        self.on_change = on_change
        self._patience_seconds = patience_seconds
        self._failures = 0
        self._why = ""
        self._opened_at = 0.0
        self._attempt: asyncio.Task[None] | None = None
        self.under_way = 0
        """Answers that are being read: as long as there is one, the upstream is there."""
        self.is_open = False

    def reached(self) -> None:
        """There was a connection, whatever came of it."""
        self._failures = 0
        if self.is_open:
            self.is_open = False
            emit("upstream.up", seconds=round(self._now() - self._opened_at, 3))
            self.on_change(False)

    def failed(self, why: str) -> None:
        """There was no connection; *why* in a few words."""
        if self.under_way:
            # It is there, and has no more connections to give.
            return
        self._failures += 1
        self._why = why
        if self._failures >= FAILURES_TO_OPEN and not self.is_open:
            self.is_open = True
            self._opened_at = self._now()
            emit("upstream.down", level=logging.WARNING, attempts=self._failures, why=why)
            self.on_change(True)

    async def pass_through(self) -> None:
        """
        Go on where the circuit is closed, or closes now.

        Raises:
            UpstreamDown: If it stays open.
        """
        if not self.is_open:
            return
        if self._attempt is None or self._attempt.done():
            self._attempt = asyncio.ensure_future(self._try())
        # Those who come at once look once, and one that leaves does not end it for the others.
        await asyncio.wait((self._attempt,), timeout=self._patience_seconds)
        if self.is_open:
            raise UpstreamDown(
                f"there is still no connection to the upstream at {self._where} ({self._why}); "
                "is it running, and is `upstream.url` right? Requests go through as soon as it accepts one"
            )

    async def close(self) -> None:
        """End an attempt that is under way."""
        if self._attempt is not None:
            self._attempt.cancel()
            await asyncio.gather(self._attempt, return_exceptions=True)

    async def _try(self) -> None:
        try:
            await self._connect()
        except (OSError, TimeoutError):
            self.failed(self._why)
        else:
            self.reached()
