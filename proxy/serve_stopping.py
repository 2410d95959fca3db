"""
Stop serving: at the first signal let answers that have begun end by themselves, at the second at once.

From the first signal on nothing new is begun: who still has a connection is told to come
back, who waits in line too, and what nobody waits for is ended. Whatever happens, the store is
closed in the end.
"""

import asyncio
import contextlib
import socket
from collections.abc import Callable
from types import FrameType
from typing import Any

import uvicorn

from proxy.app_process import Proxy

# What ends by itself within this is not worth a word.
_STOPS_SOON_SECONDS = 0.5
# For the store, where it is not to be waited for.
_LAST_SECONDS = 5.0


class Server(uvicorn.Server):
    """
    uvicorn's, which would leave the store open at a second Ctrl-C, and take no second SIGTERM for one.

    Args:
        config: How it serves the application of *proxy*.
        proxy: What is to be stopped.
        say: Tells a person.
    """

    def __init__(self, config: uvicorn.Config, proxy: Proxy, say: Callable[[str], None]) -> None:
        super().__init__(config)
        self._proxy = proxy
        self._say = say
        self._loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Called by uvicorn."""
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Called by uvicorn for SIGINT and SIGTERM, between any two steps of the program."""
        self._captured_signals.append(sig)
        if self.should_exit:
            self.force_exit = True
        self.should_exit = True
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._cut_off if self.force_exit else self._proxy.stop)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Called by uvicorn once it is to stop."""
        self._proxy.stop()
        # uvicorn names whole seconds only, and waits as long as any number says.
        drain: Any = self._proxy.config.server.drain_seconds
        self.config.timeout_graceful_shutdown = drain
        telling = asyncio.ensure_future(self._tell_of_waiting(drain))
        await super().shutdown(sockets)
        telling.cancel()
        if self.force_exit:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._proxy.close(), _LAST_SECONDS)

    def _cut_off(self) -> None:
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        # Else they would tell that the upstream went away, when it is we who go.
        for task in list(self.server_state.tasks):
            task.cancel()

    async def _tell_of_waiting(self, drain_seconds: float) -> None:
        """Whoever pressed Ctrl-C would take the silence for a hang."""
        await asyncio.sleep(_STOPS_SOON_SECONDS)
        if self.server_state.tasks:
            self._say(
                f"stopping: open answers have up to {drain_seconds:g} seconds to end; "
                "Ctrl-C cuts them off at once"
            )
