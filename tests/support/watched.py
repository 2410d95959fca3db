"""
Run the proxy in front of any upstream, and see what it logs, counts and stores.

For tests of what goes wrong: an answer may break off, and that is a result like any other.
"""

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from proxy.app import make_app
from proxy.app_process import Proxy
from proxy.config import Config, ContextConfig, StoreConfig, UpstreamConfig
from tests.support.early import EARLY
from tests.support.raw_client import RawAnswer, RawRequest
from tests.support.serving import serving

CHAT = "/v1/chat/completions"
MEMORY = StoreConfig(kind="memory")


@dataclass(frozen=True, slots=True, kw_only=True)
class Got:
    """
    What a client got.

    Attributes:
        status: 0 where the connection ended before one came.
        headers: Names in lower case.
        body: As far as it came.
        is_whole: Whether it came to its end.
    """

    status: int
    headers: dict[str, str]
    body: bytes
    is_whole: bool

    @property
    def outcome(self) -> str:
        """The header `x-compaction`."""
        return self.headers.get("x-compaction", "")

    @property
    def error(self) -> dict[str, Any]:
        """The error object of a body that is one."""
        error: dict[str, Any] = json.loads(self.body)["error"]
        return error


async def read(answer: RawAnswer, on_body: Callable[[bytes], object] = lambda _: None) -> Got:
    """The answer as far as it comes; *on_body* is told of the body so far after each piece."""
    body = b""
    is_whole = False
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        async for piece in answer.chunks():
            body += piece
            on_body(body)
        is_whole = True
    headers = {name.lower(): value for name, value in answer.headers}
    return Got(status=answer.status, headers=headers, body=body, is_whole=is_whole)


@dataclass(slots=True)
class Watched:
    """
    A running proxy.

    Attributes:
        url: Where it listens.
        proxy: Its insides.
        log: Every event with its fields, in order.
    """

    url: str
    proxy: Proxy
    log: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    async def send(
        self, body: Mapping[str, Any] | bytes, on_body: Callable[[bytes], object] = lambda _: None
    ) -> Got:
        """Ask for a completion."""
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        sent = [("Content-Type", "application/json")]
        async with RawRequest(self.url, CHAT, body=raw, headers=sent) as request:
            try:
                answer = await request.answer()
            except (asyncio.IncompleteReadError, ConnectionError):
                return Got(status=0, headers={}, body=b"", is_whole=False)
            return await read(answer, on_body)

    def events(self, name: str) -> list[dict[str, Any]]:
        """The fields of every event *name*."""
        return [fields for event, fields in self.log if event == name]

    def names(self, prefix: str = "context.") -> list[str]:
        """The names of the events that begin with *prefix*."""
        return [event for event, _ in self.log if event.startswith(prefix)]

    def counted(self, name: str, **labels: str) -> float:
        """The sum over every series of *name* that has these labels."""
        return sum(
            sample.value
            for metric in self.proxy.metrics.registry.collect()
            for sample in metric.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )

    async def stored(self) -> int:
        """Number of entries in the store."""
        return (await self.proxy.store.size())[0]


class _Log(logging.Handler):
    def __init__(self, watched: Watched) -> None:
        super().__init__()
        self._watched = watched

    def emit(self, record: logging.LogRecord) -> None:
        self._watched.log.append((record.getMessage(), dict(getattr(record, "fields", {}))))


@contextlib.asynccontextmanager
async def watched(
    upstream_url: str,
    *,
    store: StoreConfig = MEMORY,
    upstream: Mapping[str, Any] | None = None,
    change: Callable[[Proxy], Awaitable[None] | None] = lambda _: None,
    **context: Any,
) -> AsyncIterator[Watched]:
    """
    A proxy of its own.

    *upstream* and *context* are members of the tables of these names; *change* may
    put a part of the proxy in the place of another before it starts.
    """
    config = Config(
        upstream=UpstreamConfig(url=upstream_url, **(upstream or {})),
        context=ContextConfig(**(EARLY | context)),
        store=store,
    )
    app = make_app(config, {})
    change(app.state.proxy)
    logger = logging.getLogger("proxy")
    before = logger.level
    running = Watched("", app.state.proxy)
    handler = _Log(running)
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        async with serving(app, grace_seconds=1) as url:
            running.url = url
            yield running
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
