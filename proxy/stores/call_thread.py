"""
Run blocking calls one after another on a thread of their own.

A thread pool is no substitute: its threads are joined when the interpreter ends, so a
disk that hangs would keep the whole process from ending. This thread is a daemon; what
it runs has to survive being cut off, as a SQLite commit does.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")

_Job = tuple["Future[Any]", Callable[[], Any]]


class CallThread:
    """One daemon thread with a queue. Nothing may be run after `stop`."""

    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        threading.Thread(target=_work, args=(self._jobs,), name=name, daemon=True).start()

    async def run(self, call: Callable[[], T], *, finish: bool = False) -> T:
        """
        What *call* returns or raises, once the calls before it are done.

        Args:
            call: Runs on the thread.
            finish: Whether a call that has not begun is made even if the caller is
                cancelled; without it such a call is dropped. One that has begun always ends.
        """
        future: Future[T] = Future()
        self._jobs.put((future, call))
        waited = asyncio.wrap_future(future)
        if not finish:
            return await waited
        # Without a reader, asyncio would log the failure of an abandoned call as never retrieved.
        waited.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(waited)

    def stop(self, last: Callable[[], object]) -> None:
        """Let the thread end after the calls that are queued and *last*; does not wait for it."""
        self._jobs.put((Future(), last))
        self._jobs.put(None)


def _work(jobs: "SimpleQueue[_Job | None]") -> None:
    while (job := jobs.get()) is not None:
        future, call = job
        if not future.set_running_or_notify_cancel():
            continue
        try:
            result = call()
        except BaseException as error:  # the caller gets it, whatever it is
            future.set_exception(error)
        else:
            future.set_result(result)
        # An idle thread must not keep the last value, or the store itself, alive.
        del job, future, call
