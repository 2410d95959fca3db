"""
Do one piece of work once for all who wait for it.

The work is cancelled when the last waiter has gone.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class _Work(Generic[T]):
    def __init__(self, task: asyncio.Task[T]) -> None:
        self.task = task
        self.waiters = 0


class Shared(Generic[T]):
    """Work under way, by key. For one event loop."""

    def __init__(self) -> None:
        self._works: dict[Hashable, _Work[T]] = {}

    async def run(self, key: Hashable, make: Callable[[], Awaitable[T]]) -> T:
        """The result of the work for *key*, begun by *make* unless it is under way."""
        work = self._works.get(key) or self._begin(key, make)
        work.waiters += 1
        try:
            return await asyncio.shield(work.task)
        finally:
            work.waiters -= 1
            if not work.waiters and not work.task.done():
                # Who comes in the meantime must not join what is being cancelled.
                self._forget(key, work)
                work.task.cancel()

    def _begin(self, key: Hashable, make: Callable[[], Awaitable[T]]) -> _Work[T]:
        task: asyncio.Task[T] = asyncio.ensure_future(_of(make))
        work = self._works[key] = _Work(task)
        task.add_done_callback(lambda _: self._forget(key, work))
        return work

    def _forget(self, key: Hashable, work: _Work[T]) -> None:
        # Another piece of work may have taken its place while this one was being cancelled.
        if self._works.get(key) is work:
            del self._works[key]

    def __len__(self) -> int:
        return len(self._works)


async def _of(make: Callable[[], Awaitable[T]]) -> T:
    return await make()
