"""
Run an ASGI app over a real socket inside the test's own loop.

A transport that calls the app directly gathers whole bodies, so streaming and
disconnects can only be tested on a real server.
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Any

import uvicorn


@contextlib.asynccontextmanager
async def serving(
    app: Any, *, grace_seconds: int = 5, port: int = 0, config: uvicorn.Config | None = None
) -> AsyncIterator[str]:
    """
    Serve *app* on *port* of 127.0.0.1, by default a free one; yields its base URL without a trailing slash.

    The app's lifespan has started when this yields and has ended when it returns.
    Answers still under way on leaving get *grace_seconds*, then they are cancelled. *config* is
    for an app that has settings of its own.

    Raises:
        RuntimeError: If the app's lifespan fails to start.
    """
    # Without the protocol's name asyncio would not send small writes at once.
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    # A port that is served anew may still have connections that wait for their end.
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind(("127.0.0.1", port))
    config = config or uvicorn.Config(
        app, log_config=None, access_log=False, server_header=False, date_header=False
    )
    config.timeout_graceful_shutdown = grace_seconds
    server = _Server(config)
    running = asyncio.create_task(server.serve(sockets=[listening]))
    settled = asyncio.create_task(server.settled.wait())
    try:
        await asyncio.wait({running, settled}, return_when=asyncio.FIRST_COMPLETED)
        if not server.started:
            raise RuntimeError("the app's lifespan did not start; its log says why")
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        settled.cancel()
        server.leave()
        await running
        listening.close()


class _Server(uvicorn.Server):
    """uvicorn, told when it has started and when to stop instead of looking every 0.1 s."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.settled = asyncio.Event()
        self._leaving = asyncio.Event()

    def leave(self) -> None:
        """End the main loop."""
        self.should_exit = True
        self._leaving.set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.settled.set()

    async def main_loop(self) -> None:
        await self._leaving.wait()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        # Signals belong to pytest.
        yield
