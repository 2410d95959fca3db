"""The status routes over HTTP: what they say, what they never say, and when a stream ends."""

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from proxy.board import Board
from proxy.status import MOST_STREAMS, Status
from tests.support.answers import Answer
from tests.support.raw_client import RawAnswer, RawRequest, ask
from tests.support.serving import serving
from tests.watching.watched import CANARY, Agent, watched

PAGES = (
    "/status",
    "/status/page.css",
    "/status/page.js",
    "/status/plot.js",
    "/status/rows.js",
    "/status/text.js",
)

CHECKOUT = Path(__file__).parent.parent


async def events(answer: RawAnswer) -> AsyncIterator[tuple[str, Any]]:
    """Name and data of each event of a stream."""
    text = ""
    async for chunk in answer.chunks():
        text += chunk.decode()
        while (at := text.find("\n\n")) >= 0:
            lines, text = text[:at].split("\n"), text[at + 2 :]
            fields = dict(line.split(": ", 1) for line in lines)
            if "event" in fields:
                yield fields["event"], json.loads(fields["data"])


@pytest.mark.parametrize("path", PAGES)
async def test_the_page_may_load_nothing_from_elsewhere(path: str) -> None:
    async with watched() as proxy:
        answer, body = await ask(proxy.url, path, method="GET")
    policy = answer.header("content-security-policy") or ""
    assert "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy
    assert answer.header("x-content-type-options") == "nosniff"
    # Names of XML namespaces are no addresses.
    assert re.sub(rb"http://www\.w3\.org/2000/svg", b"", body).count(b"://") == 0


async def test_the_json_says_what_the_board_holds() -> None:
    agent = Agent("Reconcile.")
    async with watched() as proxy:
        await proxy.until_compacted(agent)
        told = json.loads(await proxy.get("/status.json"))
        (row,) = told["conversations"]
        story = json.loads(await proxy.get(f"/status.json?conversation={row['id']}"))["story"]
    assert told["health"] == {"upstream": "ok", "store": "ok"}
    assert row["totals"]["compactions"] == told["totals"]["compactions"] == 1
    assert row["last"]["what"] == "compacted"
    assert [change["what"] for change in story["changes"]] == ["compacted"]
    assert len(story["requests"]) == row["totals"]["requests"]
    assert story["requests"][-1]["outcome"] == "compacted"
    assert story["block"] is None


async def test_an_unknown_conversation_is_not_found() -> None:
    async with watched() as proxy:
        answer, _ = await ask(proxy.url, "/status.json?conversation=%00%ff", method="GET")
    assert answer.status == 404


async def test_switched_off_the_paths_go_upstream() -> None:
    async with watched(enabled=False) as proxy:
        proxy.upstream.others = lambda _: Answer(status=418, body={"upstream": True})
        statuses = [
            (await ask(proxy.url, path, method="GET"))[0].status
            for path in ("/status", "/status.json", "/status/events")
        ]
    assert statuses == [418, 418, 418]


async def test_a_stream_begins_with_everything_and_goes_on_with_what_changes() -> None:
    agent, other = Agent("Reconcile."), Agent("Port.", model="other")
    async with watched() as proxy:
        await proxy.send(agent)
        async with RawRequest(proxy.url, "/status/events", method="GET") as request:
            answer = await request.answer()
            assert answer.header("content-type") == "text/event-stream; charset=utf-8"
            told = events(answer)
            name, state = await anext(told)
            assert (name, [row["model"] for row in state["conversations"]]) == ("state", [agent.model])
            await proxy.send(other)
            async for name, data in told:
                if name == "changes":
                    assert [row["model"] for row in data["conversations"]] == ["other"]
                    break


async def test_streams_end_when_the_proxy_stops() -> None:
    async with watched() as proxy:
        async with RawRequest(proxy.url, "/status/events", method="GET") as request:
            answer = await request.answer()
            told = events(answer)
            await anext(told)
            proxy.proxy.status.close()
            # It ends by itself; a stream that goes on would hang here.
            assert {name async for name, _ in told} <= {"changes", "health"}
        refused, _ = await ask(proxy.url, "/status/events", method="GET")
    assert refused.status == 503


def test_a_page_that_is_open_does_not_hold_up_a_proxy_that_stops(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = {"COMPACTION_PROXY_STORE_KIND": "memory", "PYTHONPATH": str(CHECKOUT)}
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "proxy",
            "serve",
            "--upstream",
            "http://127.0.0.1:9",
            "--listen",
            f"127.0.0.1:{port}",
        ],
        cwd=tmp_path,
        env={**os.environ, **settings},
        stderr=subprocess.PIPE,
    )
    try:
        assert process.stderr is not None
        assert b"listens on" in process.stderr.readline()
        with socket.create_connection(("127.0.0.1", port), timeout=20) as page:
            page.sendall(b"GET /status/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            seen = b""
            while b"event: state" not in seen:
                more = page.recv(65536)
                assert more, seen
                seen += more
            process.send_signal(signal.SIGTERM)
            # Until the end of its patience for other streams are 30 s.
            process.wait(timeout=20)
    finally:
        process.kill()
        process.communicate()


async def test_there_are_only_so_many_streams() -> None:
    async with watched() as proxy:
        requests = [RawRequest(proxy.url, "/status/events", method="GET") for _ in range(MOST_STREAMS)]
        for request in requests:
            await request.__aenter__()
            await anext(events(await request.answer()))
        answer, _ = await ask(proxy.url, "/status/events", method="GET")
        assert answer.status == 503
        for request in requests:
            request.close()


@pytest.mark.parametrize("show_content", [False, True], ids=["off: nowhere", "on: in the block alone"])
async def test_content_is_told_only_where_it_is_switched_on(show_content: bool) -> None:
    agent = Agent("Reconcile.")
    async with watched(show_content=show_content) as proxy:
        stream = RawRequest(proxy.url, "/status/events", method="GET")
        async with stream as request:
            answer = await request.answer()
            told = events(answer)
            streamed = [await anext(told)]
            await proxy.until_compacted(agent)
            # A failure has words of its own.
            proxy.upstream.script = lambda asked: (
                Answer(text=CANARY) if proxy.upstream.is_notes(asked) else None
            )
            for _ in range(12):
                await proxy.send(agent)
                agent.work()
            async for name, data in told:
                streamed.append((name, data))
                rows = data.get("conversations") or [{"totals": {"requests": 0}}]
                if rows[0]["totals"]["requests"] == proxy.proxy.board.totals.requests:
                    break
        (row,) = proxy.proxy.board.summaries()
        story = (await proxy.get(f"/status.json?conversation={row.id}")).decode()
        others = [(await proxy.get(path)).decode() for path in ("/status.json", "/metrics", *PAGES)]
    assert CANARY not in json.dumps(streamed) + "".join(others)
    assert (CANARY in story) is show_content


async def test_a_slow_upstream_holds_no_change_back() -> None:
    async def never(_: float) -> str:
        await asyncio.Event().wait()
        return "ok"

    board = Board(now=time.time)
    status = Status(board, now=time.time, upstream_url="", upstream_state=never, store_state=lambda: "ok")
    routes = [Route(path, page) for path, page in status.pages().items()]
    async with serving(Starlette(routes=routes)) as url:
        async with RawRequest(url, "/status/events", method="GET") as request:
            told = events(await request.answer())
            assert (await anext(told))[0] == "state"
            board.noting("a", "m", begins=True)
            assert (await anext(told))[0] == "changes"
        status.close()
