"""
Listen, and tell a person what was found and what to do next.
"""

import asyncio
import contextlib
import gc
import os
import signal
import socket
import sys
from collections.abc import Callable

import uvicorn
from starlette.applications import Starlette

from proxy.app import make_app
from proxy.app_process import Proxy
from proxy.app_reloading import Reloading
from proxy.config import Config
from proxy.connections import Connection
from proxy.core.messages import Conversation
from proxy.discovery import Found
from proxy.errors import ConfigError
from proxy.events import log_to
from proxy.looking import budget_for
from proxy.serve_stopping import Server

_DRAIN_SECONDS = 30
# Agents keep their connections while tools run.
_KEEPALIVE_SECONDS = 75
# A person who starts the server next should soon see it found.
_LOOK_AGAIN_SECONDS = 1.0
_PATIENCE_SECONDS = 5.0


def server_config(app: Starlette, *, host: str = "127.0.0.1", port: int = 0) -> uvicorn.Config:
    """
    How the proxy is served: no Server or Date header beside the upstream's, no access log.
    """
    return uvicorn.Config(
        app,
        host=host,
        port=port,
        server_header=False,
        date_header=False,
        access_log=False,
        # Nothing here asks for the client's address or scheme.
        proxy_headers=False,
        log_level="critical",
        timeout_keep_alive=_KEEPALIVE_SECONDS,
        # For a server that is not `Server`, which takes what is configured when it stops.
        timeout_graceful_shutdown=_DRAIN_SECONDS,
        # It leaves to h11 what is not plain. httptools, uvicorn's own choice, loses the body of a
        # request that offers an upgrade to HTTP/2, as Java's HTTP client does with every one.
        http=Connection,
        ws="none",
        lifespan="on",
    )


def run(config: Config, read_again: Callable[[], Config]) -> int:
    """Serve until a signal, reading the configuration again at a SIGHUP; returns the exit status."""
    log_to(level=config.log.level, style=config.log.format)
    app = make_app(config, os.environ)
    with contextlib.closing(listen(config)) as listening:
        served = server_config(app, host=config.server.host, port=config.server.port)
        server = Server(served, app.state.proxy, _say)
        _spare_the_collector()
        with asyncio.Runner(loop_factory=_new_loop) as runner:
            runner.run(_serve(server, app.state.proxy, listening, read_again))
    return 0


def _spare_the_collector() -> None:
    """
    Have the garbage collector look at less, and less often.

    What was imported stays for good, and a history of some hundred messages is no sign of garbage:
    at Python's own settings each one sets it off several times.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)


def _new_loop() -> asyncio.AbstractEventLoop:
    """uvloop's, which takes half the time for the same; it does not exist for Windows."""
    try:
        import uvloop  # noqa: PLC0415 (where it is missing nothing is to fail)
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


async def _serve(
    server: Server, proxy: Proxy, listening: socket.socket, read_again: Callable[[], Config]
) -> None:
    reloading = Reloading(proxy, read_again)
    if hasattr(signal, "SIGHUP"):
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reloading.run)
    telling = asyncio.ensure_future(_tell(proxy, listening.getsockname()))
    # The vocabulary takes a while to read, and the first request should not wait for it.
    loading = asyncio.ensure_future(asyncio.to_thread(proxy.tokenizer.load))
    await server.serve(sockets=[listening])
    for task in (telling, loading):
        task.cancel()


async def _tell(proxy: Proxy, address: tuple[str, int]) -> None:
    """What a person wants to know first; on standard error, beside the log."""
    host, port = address[:2]
    host = f"[{host}]" if ":" in host else host
    here = "127.0.0.1" if host in ("0.0.0.0", "[::]") else host
    _say(f"compaction-proxy listens on http://{host}:{port}")
    _say(f"point your agent here: base_url = http://{here}:{port}/v1")
    found = await _find(proxy)
    empty = Conversation(messages=(), brief_end=0, turns=())
    budget = budget_for(proxy.config.context, empty, found)
    slots = f", {found.slots} slots" if found.slots and found.slots > 1 else ", 1 slot" if found.slots else ""
    if budget is None:
        _say(
            f"upstream {proxy.upstream.target.root}: {found.kind.value}, window not known: nothing is "
            "compacted until an overflow tells it, or `context.window` is set"
        )
        return
    at = int(budget.compact_at * budget.limit)
    _say(
        f"upstream {proxy.upstream.target.root}: {found.kind.value}, window {found.window} "
        f"({found.window_source}){slots}; prompts may take {budget.limit}, compaction above {at}"
        + ("" if budget.compact_at else " (switched off)")
    )


async def _find(proxy: Proxy) -> Found:
    """What the upstream is, once it answers: it may be started after the proxy."""
    told: set[str] = set()
    while True:
        state = await proxy.health.upstream_state(_PATIENCE_SECONDS)
        # A request may have asked before, in vain; that is kept for a while.
        if state == "ok" and (found := await proxy.windows.of("", ())).answered:
            return found
        why = {"ok": "it does not say what it is", "loading": "it is loading its model"}.get(state, state)
        if why not in told:
            _say(f"upstream not ready yet: {why}")
        told.add(why)
        await asyncio.sleep(_LOOK_AGAIN_SECONDS)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def listen(config: Config) -> socket.socket:
    """
    The listening socket, made before anything else so that a taken port is a clear message.

    Raises:
        ConfigError: If it cannot be had.
    """
    host, port = config.server.host, config.server.port
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return named(socket.create_server((host, port), family=family, backlog=2048))
    except OSError as error:
        raise ConfigError(
            f"server.listen: cannot listen on {config.server.listen} ({error.strerror or error}); "
            "is another proxy running there? Choose another with --listen"
        ) from error


def named(made: socket.socket) -> socket.socket:
    """
    The same TCP socket, knowing its protocol.

    Only then does asyncio have small writes sent at once; else each answer, and each piece of a
    stream, waits some 40 ms for the client's acknowledgement.
    """
    return socket.socket(made.family, made.type, socket.IPPROTO_TCP, fileno=made.detach())
