"""A proxy that stops begins nothing new, lets what has begun end by itself for a while, and loses nothing."""

import asyncio
import contextlib
import json
import signal
from pathlib import Path

import pytest

from proxy.stores.sqlite import SqliteStore
from tests.support import wire_bytes
from tests.support.agent_sessions import AgentSession, remembering_upstream
from tests.support.ahead import working
from tests.support.answers import Answer
from tests.support.formats import FORMATS, Format
from tests.support.fronted import BODY, CHAT, OTHER, STREAMED, playing
from tests.support.gate import Gate
from tests.support.processes import ProxyProcess, proxy_process
from tests.support.raw_client import RawRequest, ask
from tests.support.raw_upstream import Stall, Step, Wait
from tests.support.watched import Watched, watched

EVENTS = wire_bytes.stream(wire_bytes.sse("An answer that goes on for a while"))
MESSAGE = "the proxy is stopping and takes no more requests; try again once it is back"


async def until(proxy: Watched, name: str, value: float) -> None:
    while proxy.counted(name) != value:
        await asyncio.sleep(0)


async def is_refused(url: str) -> bool:
    try:
        await ask(url, "/livez", method="GET")
    except OSError:
        return True
    return False


# Within the process


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
async def test_who_comes_then_is_told_to_come_back(form: Format) -> None:
    async with playing(lambda _: []).running() as upstream, watched(upstream.url) as proxy:
        proxy.proxy.stop()
        answer, raw = await ask(proxy.url, form.path, body=BODY)
    assert (answer.status, answer.header("retry-after"), answer.header("connection")) == (503, "5", "close")
    assert json.loads(raw) == json.loads(form.dialect.error(503, "stopping", MESSAGE))


async def test_who_waits_in_line_is_told_too_and_who_has_begun_goes_on() -> None:
    gate = Gate()
    steps = [EVENTS[0], Wait(gate), *EVENTS[1:]]
    async with playing(lambda _: steps).running() as upstream, watched(upstream.url) as proxy:
        proxy.proxy.places.most = 1
        async with RawRequest(proxy.url, CHAT, body=STREAMED) as begun:
            await upstream.until(lambda u: any(r.path == CHAT for r in u.requests))
            waiting = asyncio.ensure_future(ask(proxy.url, OTHER, body=BODY))
            await until(proxy, "proxy_waiting_requests", 1)
            proxy.proxy.stop()
            assert (await waiting)[0].status == 503
            gate.open()
            answer = await begun.answer()
            assert answer.status == 200 and (await answer.read()).endswith(b"data: [DONE]\n\n")
    assert [r for r in upstream.requests if r.path == OTHER] == []


async def test_it_is_ready_no_more_and_still_alive() -> None:
    async with playing(lambda _: []).running() as upstream, watched(upstream.url) as proxy:
        proxy.proxy.stop()
        ready, raw = await ask(proxy.url, "/readyz", method="GET")
        alive, _ = await ask(proxy.url, "/livez", method="GET")
    assert (ready.status, json.loads(raw)["upstream"]) == (503, "not asked: the proxy is stopping")
    assert alive.status == 200


async def test_notes_that_nobody_waits_for_end_at_once() -> None:
    never = Gate()
    async with working() as at:
        at.notes = lambda _: Answer(before=never)
        await at.until_noting()
        at.proxy.proxy.stop()
        await at.upstream.until(lambda upstream: upstream.notes[0].is_cancelled)


async def test_stopping_twice_is_stopping_once() -> None:
    async with playing(lambda _: []).running() as upstream, watched(upstream.url) as proxy:
        proxy.proxy.stop()
        proxy.proxy.stop()
        await proxy.proxy.close()
        await proxy.proxy.close()


# As a process


def streaming(gate: Gate) -> list[Step]:
    return [EVENTS[0], EVENTS[1], Wait(gate), *EVENTS[2:]]


async def ended(proxy: ProxyProcess) -> int:
    async with asyncio.timeout(20):
        return await proxy.process.wait()


async def test_at_a_sigterm_a_stream_ends_by_itself_and_nobody_else_is_let_in() -> None:
    gate = Gate()
    async with (
        playing(lambda _: streaming(gate)).running() as upstream,
        proxy_process(upstream.url, {}) as proxy,
        RawRequest(proxy.url, CHAT, body=STREAMED) as request,
        RawRequest(proxy.url, "/livez", method="GET") as idle,
    ):
        assert await (await idle.answer()).read() == b"ok\n"
        answer = await request.answer()
        proxy.process.send_signal(signal.SIGTERM)
        while not await is_refused(proxy.url):
            await asyncio.sleep(0.01)
        assert await idle.is_closed()
        gate.open()
        assert (await answer.read()).endswith(b"data: [DONE]\n\n")
        assert await request.is_closed()
        assert await ended(proxy) == -signal.SIGTERM


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
async def test_a_second_signal_ends_it_at_once_and_the_store_is_whole(
    second: signal.Signals, tmp_path: Path
) -> None:
    good = remembering_upstream(window=4096)
    async with good.running():
        upstream = playing(lambda _: [])
        upstream.behind = good.url
        # What passes untouched never ends.
        upstream.script = lambda r: [EVENTS[0], Stall()] if r.path == OTHER else None
        async with (
            upstream.running(),
            proxy_process(upstream.url, {"server.drain_seconds": 600}, state=tmp_path) as proxy,
            RawRequest(proxy.url, OTHER, body=STREAMED) as stream,
        ):
            await stream.answer()
            long = AgentSession(name="alice").step(30).body()
            compacted, _ = await ask(proxy.url, CHAT, body=long)
            assert compacted.header("x-compaction") == "compacted"
            proxy.process.send_signal(signal.SIGTERM)
            while not await is_refused(proxy.url):
                await asyncio.sleep(0.01)
            proxy.process.send_signal(second)
            assert await ended(proxy) in (-signal.SIGTERM, 130)
    # It was closed, not left behind: nothing of it stands beside the file.
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store.sqlite3"]
    store = await SqliteStore.open(tmp_path / "store.sqlite3", max_age_days=30, max_bytes=10**9)
    assert (await store.size())[0] > 0
    await store.close()


async def test_what_does_not_end_within_drain_seconds_is_cut_off() -> None:
    async with (
        playing(lambda _: [EVENTS[0], EVENTS[1], Stall()]).running() as upstream,
        proxy_process(upstream.url, {"server.drain_seconds": 0.2}) as proxy,
        RawRequest(proxy.url, CHAT, body=STREAMED) as request,
    ):
        answer = await request.answer()
        proxy.process.send_signal(signal.SIGTERM)
        with contextlib.suppress(ConnectionError), pytest.raises(asyncio.IncompleteReadError):
            await answer.read()
        assert await ended(proxy) == -signal.SIGTERM
        await upstream.until(lambda u: all(r.is_cancelled for r in u.requests if r.path == CHAT))
