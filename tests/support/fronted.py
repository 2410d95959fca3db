"""
Put the proxy in front of any upstream, served as `compaction-proxy serve` does it.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any

import pytest

from proxy.app import make_app
from proxy.config import Config, ContextConfig, MetricsConfig, ServerConfig, StoreConfig, UpstreamConfig
from proxy.config_limits import LimitsConfig
from proxy.serve import server_config
from tests.support import wire_bytes
from tests.support.early import EARLY
from tests.support.raw_client import ask
from tests.support.raw_upstream import RawUpstream, Send, Step
from tests.support.recorded import Recorded
from tests.support.serving import serving

CHAT = "/v1/chat/completions"
OTHER = "/v1/embeddings"
# An endpoint that is compacted, and one that is not.
BOTH = pytest.mark.parametrize("path", [CHAT, OTHER])
# Odd on purpose: spaces, an escape that JSON does not need, a float that no parser gives back.
BODY = b'{ "messages" : [ {"role":"user","content":"caf\\u00e9"} ],\n "temperature":0.10, "x":1e400 }'
STREAMED = b'{"stream":true,"messages":[{"role":"user","content":"hello"}]}'

MEMORY = StoreConfig(kind="memory")
# Where a rule is broken a test may wait for what never comes; it is to fail then, not to hang.
_LONGEST_SECONDS = 60


@contextlib.asynccontextmanager
async def fronted(
    upstream: str,
    *,
    server: Mapping[str, Any] | None = None,
    reach: Mapping[str, Any] | None = None,
    context: Mapping[str, Any] | None = None,
    limits: Mapping[str, Any] | None = None,
    store: StoreConfig = MEMORY,
    metrics: bool = True,
    environ: Mapping[str, str] | None = None,
) -> AsyncIterator[str]:
    """
    The base URL of a proxy before *upstream*.

    *server*, *reach*, *context* and *limits* are members of `[server]`, `[upstream]`, `[context]`
    and `[limits]`.
    """
    config = Config(
        server=ServerConfig(**server or {}),
        upstream=UpstreamConfig(url=upstream, **reach or {}),
        context=ContextConfig(**(EARLY | (context or {}))),
        limits=LimitsConfig(**limits or {}),
        store=store,
        metrics=MetricsConfig(enabled=metrics),
    )
    app = make_app(config, environ or {})
    async with asyncio.timeout(_LONGEST_SECONDS):
        async with serving(app, grace_seconds=1, config=server_config(app)) as url:
            yield url


async def sample(url: str, name: str) -> float:
    """A series of the proxy's metrics by its full name with labels, 0 where it does not stand there."""
    _, page = await ask(url, "/metrics", method="GET")
    lines = (line.rpartition(" ") for line in page.decode().splitlines() if not line.startswith("#"))
    return next((float(value) for series, _, value in lines if series == name), 0.0)


def playing(script: Callable[[Recorded], Iterable[Step]]) -> RawUpstream:
    """An upstream that plays *script* for what a test sends, and knows nothing when the proxy asks."""
    unknown = [Send(wire_bytes.status(404))]
    asked = ("/props", "/v1/models", "/api/", "/info", "/get_server_info", "/get_model_info", "/health")
    return RawUpstream(script=lambda r: unknown if r.path.startswith(asked) else script(r))


def saying(body: bytes = b"{}", **answer: object) -> RawUpstream:
    """An upstream that gives everyone the same answer."""
    return playing(lambda _: [Send(wire_bytes.response(body, **answer))])  # type: ignore[arg-type]


def sent(upstream: RawUpstream) -> Recorded:
    """The last request that a test sent."""
    return upstream.requests[-1]
