"""
Run a proxy with its status page before a scripted upstream, and agents that work through it.

Shared by the tests of the page and by the script that takes its picture.
"""

import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from proxy.app import make_app
from proxy.app_process import Proxy
from proxy.config import Config, ContextConfig, StatusConfig, StoreConfig, UpstreamConfig
from tests.support.early import EARLY
from tests.support.raw_client import ask
from tests.support.scripted import ScriptedUpstream
from tests.support.serving import serving

WINDOW = 8192
# Planted into everything that a conversation says; no page may show it.
CANARY = "canary-3f9a-quetzal"
# Part of the notes instruction, by which a notes request is known.
_NOTES_MARKER = "record that you write now"
_LINES = "the invoice total of row {i} differs from the ledger by {i} cents and was rounded half up"


@dataclass(slots=True)
class Agent:
    """An agent whose turns are one call of a tool with a long result each."""

    task: str
    model: str = "qwen3-coder-30b"
    lines: int = 24
    messages: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.messages = [
            {"role": "system", "content": f"You are a careful engineer. {CANARY}"},
            {"role": "user", "content": f"{self.task} {CANARY}"},
        ]

    def work(self, lines: int | None = None) -> None:
        """One turn: a call, and a result of so many *lines*."""
        n = len(self.messages)
        result = "\n".join(
            _LINES.format(i=n * 100 + i) for i in range(self.lines if lines is None else lines)
        )
        call = {"name": "read_file", "arguments": json.dumps({"path": f"ledger/{CANARY}/{n}.csv"})}
        self.messages += [
            {
                "role": "assistant",
                "content": f"I read the next part. {CANARY}",
                "tool_calls": [{"id": f"c{n}", "type": "function", "function": call}],
            },
            {"role": "tool", "tool_call_id": f"c{n}", "content": f"{CANARY}\n{result}"},
        ]


@dataclass(slots=True)
class Watched:
    """A proxy that runs, and the upstream behind it."""

    url: str
    proxy: Proxy
    upstream: ScriptedUpstream
    stop_upstream: Callable[[], Awaitable[None]]

    async def send(self, agent: Agent) -> str:
        """One request of *agent*; returns the header `x-compaction`."""
        body = {"model": agent.model, "messages": agent.messages}
        answer, _ = await ask(self.url, "/v1/chat/completions", body=body)
        assert answer.status == 200, answer.status_line
        return answer.header("x-compaction") or ""

    async def until_compacted(self, agent: Agent) -> int:
        """Turns of *agent* until a request is compacted."""
        for turn in range(1, 40):
            if await self.send(agent) == "compacted":
                return turn
            agent.work()
        raise AssertionError("nothing was compacted within 40 turns")

    async def get(self, path: str) -> bytes:
        """The body of one of the proxy's own pages."""
        _, body = await ask(self.url, path, method="GET")
        return body


@contextlib.asynccontextmanager
async def watched(
    *, show_content: bool = False, window: int = WINDOW, enabled: bool = True, port: int = 0, **context: Any
) -> AsyncIterator[Watched]:
    """A proxy with its status page, for as long as the context lasts."""
    async with contextlib.AsyncExitStack() as stack:
        upstream = ScriptedUpstream(window=window, notes_marker=_NOTES_MARKER)
        await stack.enter_async_context(upstream.running())
        config = Config(
            upstream=UpstreamConfig(url=upstream.url),
            store=StoreConfig(kind="memory"),
            context=ContextConfig(**(EARLY | context)),
            status=StatusConfig(show_content=show_content, enabled=enabled),
        )
        app = make_app(config, {})
        async with serving(app, port=port) as url:
            try:
                yield Watched(url, app.state.proxy, upstream, stack.aclose)
            finally:
                app.state.proxy.status.close()
