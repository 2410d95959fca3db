"""
Make everything happen that a metric counts: long runs, failures, overflows, a broken neighbour,
another configuration as it runs.

Two proxies: a healthy one before a scripted upstream, and one whose upstream and store
are both out of reach.
"""

import contextlib
import json
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proxy.app import make_app
from proxy.app_process import Proxy
from proxy.app_reloading import Reloading
from proxy.config import load
from tests.support.answers import Answer
from tests.support.early import EARLY
from tests.support.gate import Gate
from tests.support.raw_client import RawRequest, ask
from tests.support.recorded import Recorded
from tests.support.scripted import ScriptedUpstream
from tests.support.serving import serving

WINDOW = 8192
# Models whose notes are what their names say.
GOOD, SILENT, SLOW, AHEAD = "good", "silent", "slow", "ahead"
# What is planted in contents, and must not be seen by those who watch.
CANARY = "canary-7f3a9"
CHAT = "/v1/chat/completions"

Message = dict[str, Any]


@dataclass(slots=True)
class Watched:
    """
    The proxies, and what stands behind them.

    Attributes:
        url: Of the healthy proxy.
        broken_url: Of the other.
        proxy: The healthy one from inside, for what it logs and holds.
        file: Its configuration.
        reloading: What a SIGHUP runs.
        upstream: Behind the healthy one.
        notes: Opened once a client has seen a heartbeat.
    """

    url: str
    broken_url: str
    proxy: Proxy
    file: Path
    reloading: Reloading
    upstream: ScriptedUpstream
    notes: Gate

    def configure(self, mode: str) -> None:
        """Have the healthy proxy read its configuration again, with this `context.mode`."""
        _write(self.file, self.upstream.url, self.file.parent / "store.sqlite3", mode)
        self.reloading.run()

    async def send(
        self, body: Message | bytes, *, url: str = "", headers: tuple[tuple[str, str], ...] = ()
    ) -> int:
        """One request; the status."""
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        own = (("Content-Type", "application/json"), ("Authorization", f"Bearer key-{CANARY}"))
        answer, _ = await ask(url or self.url, CHAT, body=raw, headers=(*own, *headers))
        return answer.status

    async def metrics(self, accept: str = "text/plain") -> tuple[str, str]:
        """The metrics page, and its content type."""
        answer, page = await ask(self.url, "/metrics", method="GET", headers=[("Accept", accept)])
        assert answer.status == 200
        return page.decode(), answer.header("content-type") or ""


@contextlib.asynccontextmanager
async def watched(folder: Path) -> AsyncIterator[Watched]:
    """Both proxies, running; *folder* takes the store."""
    notes = Gate()

    def script(request: Recorded) -> Answer | None:
        model = request.json.get("model")
        if not upstream.is_notes(request):
            return _CALL if model == AHEAD else None
        if model == SILENT:
            return Answer(text="")
        return Answer(before=notes, text=_SLOW_NOTES) if model == SLOW else None

    upstream = ScriptedUpstream(window=WINDOW, script=script, slots=4)
    (folder / "no folder").write_text("a file where the store's folder should be")
    with socket.socket() as nobody:
        # Bound and not listening: whoever connects is refused.
        nobody.bind(("127.0.0.1", 0))
        dead = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        async with upstream.running():
            file, broken_file = folder / "healthy.toml", folder / "broken.toml"
            _write(file, upstream.url, folder / "store.sqlite3")
            _write(broken_file, dead, folder / "no folder" / "store.sqlite3")
            app, broken = make_app(load(file, {}, {}), {}), make_app(load(broken_file, {}, {}), {})
            reloading = Reloading(app.state.proxy, lambda: load(file, {}, {}))
            async with serving(app) as url, serving(broken) as broken_url:
                yield Watched(url, broken_url, app.state.proxy, file, reloading, upstream, notes)


_READ = {
    "type": "function",
    "function": {
        "name": "read",
        "description": f"Reads a file. {CANARY}",
        "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
    },
}
# Notes are made ahead only while tools run.
_CALL = Answer(text="I read the next one.", calls=(("read", {"path": "module.py"}),))
_SLOW_NOTES = "\n".join(f"- Step {i}: module_{i}.py was read and left as it was." for i in range(8))


def _write(file: Path, url: str, store: Path, mode: str = "inline") -> None:
    tables: dict[str, Message] = {
        "upstream": {"url": url},
        "context": {**EARLY, "keepalive_seconds": 0.02, "mode": mode},
        "store": {"kind": "sqlite", "path": str(store)},
    }
    lines: list[str] = []
    for table, keys in tables.items():
        # JSON's strings and numbers are TOML's as well.
        lines += [f"[{table}]", *(f"{key} = {json.dumps(value)}" for key, value in keys.items())]
    file.write_text("\n".join(lines))


async def begin(it: Watched) -> None:
    """One short request of each model: from here on its counters are there, at 0."""
    for model in (GOOD, SILENT, SLOW, AHEAD):
        assert await it.send(_body(model, history(1, f"Are you {model}?"))) == 200
    assert await it.send(_body(GOOD, history(1)), url=it.broken_url) == 502


async def play(it: Watched) -> None:
    """All of it."""
    for turns in range(2, 42):
        assert await it.send(_body(GOOD, history(turns))) == 200
    for turns in range(2, 42):
        assert await it.send(_body(SILENT, history(turns, "Say nothing of it."))) == 200
    await _with_heartbeats(it)
    await _ahead_of_need(it)
    assert await it.send(_body(GOOD, history(1)), headers=(("x-compaction", "off"),)) == 200
    # The same history under another system prompt: what a date there does.
    assert await it.send(_body(GOOD, [_said("system", f"Today is {CANARY}."), *history(41)[1:]])) == 200
    # The server now holds less than it said.
    it.upstream.window = 3000
    assert await it.send(_body(GOOD, history(11, "Read half of them."))) == 200
    it.upstream.window = WINDOW
    # Nothing can be cut of a brief.
    assert await it.send(_body(GOOD, [_said("user", _text(5 * WINDOW))])) == 400
    assert await it.send(_body(GOOD, history(2)), url=it.broken_url) == 502


def history(turns: int, task: str = "Read every module.") -> list[Message]:
    """A conversation of *turns* calls with their results, about 300 tokens each."""
    messages = [_said("system", f"You work on {CANARY}."), _said("user", f"{task} {CANARY}")]
    for i in range(turns):
        call = {"name": "read", "arguments": json.dumps({"path": f"module_{i}.py", "why": CANARY})}
        messages.append(
            {"role": "assistant", "tool_calls": [{"id": f"c{i}", "type": "function", "function": call}]}
        )
        messages.append({"role": "tool", "tool_call_id": f"c{i}", "content": f"{CANARY} {_text(300)}"})
    return messages


async def _with_heartbeats(it: Watched) -> None:
    body = json.dumps(_body(SLOW, history(20, "Take your time.")) | {"stream": True}).encode()
    async with RawRequest(it.url, CHAT, body=body, headers=[("Content-Type", "application/json")]) as request:
        answer = await request.answer()
        async for chunk in answer.chunks():
            if b": waiting" in chunk:
                it.notes.open()


async def _ahead_of_need(it: Watched) -> None:
    """An agent whose tools take long enough for notes and for a prompt; then back, and once wrongly."""
    it.configure(mode="ahead")
    for turns in range(2, 20):
        assert await it.send(_body(AHEAD, history(turns, "Take your time over each."))) == 200
        await it.proxy.services.compactor.until_idle()
    it.configure(mode="inline")
    it.configure(mode="sometimes")


def _body(model: str, messages: list[Message]) -> Message:
    return {"model": model, "messages": messages, "tools": [_READ]}


def _said(role: str, text: str) -> Message:
    return {"role": role, "content": text}


def _text(tokens: int) -> str:
    """Of about so many tokens for the scripted upstream and for a real tokenizer."""
    return "".join(f"x{i % 1000:03}" for i in range(tokens))
