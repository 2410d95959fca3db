"""
Serve the proxy inside the demo's own loop, in front of the demo's model server.
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator

import uvicorn

from proxy.app import make_app
from proxy.config import Config, ContextConfig, StoreConfig, UpstreamConfig
from proxy.errors import ProxyError
from proxy.serve import named, server_config


@contextlib.asynccontextmanager
async def proxy_before(upstream_url: str) -> AsyncIterator[str]:
    """
    The proxy with its defaults on a free port of 127.0.0.1; yields its base URL without `/v1`.

    Each demo begins without a memory of the one before. No room is kept for the model's
    thoughts, since this one has none; and its notes, which it never ends by itself, are kept
    short.

    Raises:
        ProxyError: If it does not start.
    """
    config = Config(
        upstream=UpstreamConfig(url=upstream_url),
        context=ContextConfig(notes_reasoning_tokens=0, notes_max_tokens=192),
        store=StoreConfig(kind="memory"),
    )
    app = make_app(config, {})
    with named(socket.create_server(("127.0.0.1", 0))) as listening:
        server = _Quiet(server_config(app))
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        started = asyncio.create_task(server.is_started.wait())
        try:
            await asyncio.wait({serving, started}, return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                raise ProxyError("the proxy did not start; `compaction-proxy serve` shows its log")
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            started.cancel()
            server.should_exit = True
            server.force_exit = True
            await serving


class _Quiet(uvicorn.Server):
    """uvicorn that says when it has started and leaves Ctrl-C to the demo."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_started = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.is_started.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
