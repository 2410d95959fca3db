"""
What does a client get, and who tries again, while an answer is not there yet?

A streaming client that waits for notes gets the head of a stream and a heartbeat now and
then. From then on it can see no status and will not try again, so the proxy does.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar
from uuid import uuid4

from proxy.client import Client
from proxy.dialects.base import Dialect, Waiting
from proxy.errors import UpstreamUnreachable
from proxy.relay import STREAM_HEADERS
from proxy.upstream import Headers, Upstream
from proxy.upstream_response import Response

T = TypeVar("T")

_TRIES = 5
_LONGEST_RETRY_AFTER_SECONDS = 60.0
# For a server that is being started again, or does not say how long to wait.
_RETRY_SECONDS = 1.0


class Begun:
    """Whether a request has begun to wait for notes. For one event loop."""

    def __init__(self) -> None:
        self.on_set: Callable[[], None] = lambda: None
        self._is_set = False

    def set(self) -> None:
        """It has."""
        if not self._is_set:
            self._is_set = True
            self.on_set()

    def is_set(self) -> bool:
        """Whether it has."""
        return self._is_set


class Heartbeats:
    """
    Those of one request.

    Args:
        client: Who waits.
        dialect: What a heartbeat looks like.
        is_stream: Whether the client asked for a stream; else none is sent.
        every_seconds: From the moment it begins to wait to the first, and between two.
        on_beat: Told of each.

    Attributes:
        sent: How many.
        waiting: What they look like, and how the stream goes on after them.
    """

    def __init__(
        self,
        client: Client,
        dialect: Dialect,
        *,
        is_stream: bool,
        every_seconds: float,
        on_beat: Callable[[], None],
    ) -> None:
        self.sent = 0
        self._client = client
        self._dialect = dialect
        self._waiting: Waiting | None = None
        self._is_stream = is_stream
        self._every_seconds = every_seconds
        self._on_beat = on_beat

    @property
    def waiting(self) -> Waiting:
        """See the class; made when it is first asked for, which is hardly ever."""
        if self._waiting is None:
            self._waiting = self._dialect.waiting(uuid4().hex)
        return self._waiting

    async def once_begun(self, work: Coroutine[Any, Any, T], begun: Begun) -> T:
        """The result of *work*; once *begun* is set the client is told that we live."""
        beating: tuple[asyncio.Event, asyncio.Future[None]] | None = None

        def begin() -> None:
            nonlocal beating
            stop = asyncio.Event()
            beating = stop, asyncio.ensure_future(self._beat_until(stop))

        begun.on_set = begin
        try:
            return await work
        finally:
            if beating is not None:
                stop, beats = beating
                stop.set()
                # To its end, for half a heartbeat is none.
                await beats

    async def while_open(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of *work*; a client whose stream has begun is told that we live."""
        if not self._client.started:
            return await work
        task = asyncio.ensure_future(work)
        try:
            return await self._beside(task)
        finally:
            await _ended(task)

    async def _beside(self, task: "asyncio.Future[T]") -> T:
        while not task.done():
            await asyncio.wait((task,), timeout=self._every_seconds)
            if not task.done() and self._is_stream:
                await self._beat()
        return task.result()

    async def _beat_until(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            try:
                async with asyncio.timeout(self._every_seconds):
                    await stop.wait()
            except TimeoutError:
                if self._is_stream:
                    await self._beat()

    async def _beat(self) -> None:
        if not self._client.started:
            await self._client.head(200, [(b"content-type", b"text/event-stream"), *STREAM_HEADERS])
        await self._client.chunk(self.waiting.beat())
        self.sent += 1
        self._on_beat()


async def send(upstream: Upstream, url: str, headers: Headers, body: bytes, *, patiently: bool) -> Response:
    """
    The head of the upstream's answer.

    *patiently* is for a client that has the head of a stream already: a refused connection, 429
    and 503 are then waited for, as long as the upstream asks, and given back at last.

    Raises:
        UpstreamUnreachable: If there is no connection, or it closed before an answer.
        UpstreamStalled: If the answer's head does not come in time.
    """
    for left in range(_TRIES - 1 if patiently else 0, -1, -1):
        try:
            response = await upstream.send("POST", url, headers=headers, body=body)
        except UpstreamUnreachable:
            if not left:
                raise
            await asyncio.sleep(_RETRY_SECONDS)
            continue
        if response.status not in (429, 503) or not left:
            return response
        await response.close()
        await asyncio.sleep(retry_after_seconds(response.header("retry-after"), time.time()))
    raise AssertionError("unreachable")


def retry_after_seconds(said: str, now: float) -> float:
    """What a Retry-After header asks for, from 0 to 60; 1 where it says nothing. *now* since the epoch."""
    try:
        seconds = float(said)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(said).timestamp() - now
        except (ValueError, TypeError, OverflowError):
            return _RETRY_SECONDS
    return min(_LONGEST_RETRY_AFTER_SECONDS, max(0.0, seconds))


async def _ended(task: "asyncio.Future[Any]") -> None:
    """Nothing of a request outlives it."""
    if not task.done():
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
