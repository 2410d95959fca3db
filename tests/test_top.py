"""The status list in a terminal: what it writes, and what it says where there is nothing to write."""

import asyncio
import contextlib
import io
import os
import pty
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from proxy import top
from proxy.errors import ConfigError, ProxyError
from proxy.terminal import Screen
from tests.support.answers import Answer
from tests.watching.watched import Agent, watched

CHECKOUT = Path(__file__).parent.parent


def row(**other: Any) -> dict[str, Any]:
    """One conversation as /status.json tells it."""
    totals = {"requests": 3, "compactions": 2, "trims": 1, "failures": 0}
    return {
        "id": "0123456789ab",
        "model": "qwen3-coder",
        "tokens": 4300,
        "budget": 7168,
        "compact_at": 0.6,
        "compact_to": 0.25,
        "totals": totals,
        "last": {"what": "compacted", "before": 4300, "after": 1200, "why": "threshold", "at": 90.0},
        "last_outcome": "compacted",
        "is_noting": False,
        "last_at": 95.0,
    } | other


def told(*rows: dict[str, Any], **other: Any) -> dict[str, Any]:
    """What /status.json tells."""
    totals = {"requests": 57, "compactions": 4, "trims": 0, "failures": 1}
    health = {"upstream": "ok", "store": "ok"}
    status = {"version": "1.2", "now": 100.0, "health": health, "totals": totals}
    return status | {"conversations": list(rows)} | other


async def once(url: str) -> str:
    """What `top URL` writes into a pipe."""
    out = io.StringIO()
    assert await asyncio.to_thread(top.run, url, out=out) == 0
    return out.getvalue()


async def test_into_a_pipe_goes_one_snapshot_without_escapes() -> None:
    agent = Agent("Reconcile.")
    async with watched() as proxy:
        await proxy.until_compacted(agent)
        written = await once(proxy.url)
    assert "\x1b" not in written
    head, columns, conversation = written.splitlines()
    assert "1 compactions" in head and "last event" in columns
    assert agent.model in conversation and "compacted" in conversation


def test_masks_are_told_where_there_are_any() -> None:
    totals = {"requests": 3, "compactions": 2, "masks": 3, "trims": 1, "failures": 0}
    last = {"what": "masked", "before": 4300, "after": 1200, "why": "threshold", "at": 90.0}
    head, _, line = top.lines(told(row(totals=totals, last=last), totals=totals), Screen(width=120))
    assert "2 compactions, 3 masks, 1 trims" in head
    assert "masked 4,300" in line and " 5    1    0" in line
    assert "mask" not in "".join(top.lines(told(row()), Screen(width=120)))


async def test_without_a_conversation_it_says_so() -> None:
    async with watched() as proxy:
        assert (await once(proxy.url)).endswith("no conversation yet\n")


@pytest.mark.parametrize(
    ("url", "asked"),
    [
        pytest.param("http://h:1", "http://h:1/status.json", id="an address"),
        pytest.param("http://h:1/", "http://h:1/status.json", id="with a slash"),
        pytest.param("http://h:1/v1", "http://h:1/status.json", id="as clients are configured"),
        pytest.param("http://h:1/status", "http://h:1/status.json", id="the page"),
        pytest.param("http://h:1/status.json", "http://h:1/status.json", id="the very file"),
        pytest.param("h:1", "http://h:1/status.json", id="without a scheme"),
        pytest.param("https://h/at/v1", "https://h/at/status.json", id="below a path"),
    ],
)
def test_the_address_may_be_given_in_any_form(url: str, asked: str) -> None:
    assert top.status_url(url) == asked


@pytest.mark.parametrize(
    "url", ["", "http://", "ftp://h", "http://h:x", "http://h:0", "http://h /", "http://h\x1b"]
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="no address of a proxy"):
        top.status_url(url)


def test_nothing_there_is_said_with_a_remedy() -> None:
    with pytest.raises(ProxyError, match="is the proxy running there"):
        top.run("http://127.0.0.1:9", once=True, out=io.StringIO())


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(Answer(status=404, body={}), id="not found"),
        pytest.param(Answer(status=418, body=b"<html>", content_type="text/html"), id="another page"),
        pytest.param(Answer(status=201, body=b"<html>", content_type="text/html"), id="no JSON"),
        pytest.param(Answer(status=201, body=b"[" * 100_000), id="nested too deeply"),
        pytest.param(Answer(status=201, body=b"[1]"), id="no object"),
        pytest.param(Answer(status=201, body={"conversations": 1}), id="no list"),
    ],
)
async def test_what_is_no_proxy_is_told_from_one_that_is_gone(answer: Answer) -> None:
    async with watched(enabled=False) as proxy:
        proxy.upstream.others = lambda _: answer
        with pytest.raises(top.NotAProxy, match=r"status\.enabled"):
            await once(proxy.url)


@pytest.mark.parametrize("rows", [[1], [{}], [None], [row(tokens="x")], [row(totals=None)]], ids=repr)
def test_a_status_of_another_version_is_an_error_and_no_traceback(rows: list[Any]) -> None:
    with pytest.raises(top.NotAProxy, match="another version"):
        top.lines(told(*rows), Screen())


@pytest.mark.parametrize("width", [60, 70, 80, 100, 200])
def test_no_line_is_wider_than_the_screen(width: int) -> None:
    shown = top.lines(told(row(model="m" * 100), row(is_noting=True), row(last=None)), Screen(width=width))
    assert max(map(len, shown)) <= width


def test_names_cannot_move_the_cursor() -> None:
    shown = top.lines(told(row(model="a\x1b[2Jb\r\nc")), Screen(width=200))
    assert "a?[2Jb??c" in shown[2]


def test_without_unicode_everything_is_ascii() -> None:
    shown = top.lines(told(row(model="模型")), Screen(width=120, unicode=False))
    assert "".join(shown).isascii()


def test_trouble_stands_in_the_first_line() -> None:
    shown = top.lines(told(health={"upstream": "no answer", "store": "ok"}), Screen(width=200))
    assert "upstream: no answer" in shown[0]


async def test_in_a_terminal_it_goes_on_until_it_is_interrupted() -> None:
    agent = Agent("Reconcile.")
    async with watched() as proxy, contextlib.AsyncExitStack() as stack:
        await proxy.send(agent)
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, "-m", "proxy", "top", proxy.url],
            cwd=CHECKOUT,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "160", "PYTHONIOENCODING": "utf-8"},
            stdin=theirs,
            stdout=theirs,
            stderr=subprocess.PIPE,
        )
        os.close(theirs)
        stack.callback(process.kill)
        seen = await asyncio.to_thread(_until, ours, agent.model.encode())
        other = Agent("Port.", model="another-model")
        await proxy.send(other)
        seen += await asyncio.to_thread(_until, ours, other.model.encode())
        process.send_signal(signal.SIGINT)
        seen += await asyncio.to_thread(_until, ours, b"\x1b[?1049l")
        assert await asyncio.to_thread(process.wait, 30) == 0
        assert process.stderr is not None
        assert process.stderr.read() == b""
        process.stderr.close()
        os.close(ours)
    assert seen.startswith(b"\x1b[?1049h")


def _until(terminal: int, what: bytes) -> bytes:
    """What a terminal shows until *what* was shown; a list that never shows it is drawn again and again."""
    seen = b""
    while what not in seen and len(seen) < 50_000:
        ready, _, _ = select.select([terminal], [], [], 30)
        assert ready, seen
        seen += os.read(terminal, 65536)
    assert what in seen, seen[-2000:]
    return seen
