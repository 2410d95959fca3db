"""Clients that leave, wait or come again: nothing stays behind, and nothing is done twice."""

import asyncio
import logging
from collections.abc import Callable

import pytest

from proxy.config import ContextConfig
from tests.cases.table import case
from tests.support import wire_bytes as wire
from tests.support.agent_sessions import AgentSession, remembering_upstream
from tests.support.answers import Answer
from tests.support.formats import FORMATS, Format
from tests.support.fronted import CHAT, fronted, playing
from tests.support.gate import Gate
from tests.support.raw_client import RawRequest
from tests.support.raw_upstream import Send, Stall, Step
from tests.support.recorded import Recorded
from tests.support.scripted import ScriptedUpstream
from tests.support.watched import Watched, read, watched

EACH_FORMAT = pytest.mark.parametrize("wire_format", FORMATS, ids=lambda f: f.name)
STREAM = wire.sse("A rather long answer that comes in a good number of pieces, so that one can leave in it")
GOOD = "The agent read one part after the other."
TASK = {"messages": [{"role": "user", "content": "go"}]}
Leave = Callable[[RawRequest], None]


# The upstream's work ends with the client


@pytest.mark.parametrize(
    ("steps", "stream", "pieces", "leave"),
    [
        case(
            "S22", "killed after two pieces", [*wire.stream(STREAM)[:5], Stall()], True, 2, RawRequest.reset
        ),
        case("S23", "closed before the first word", [Stall()], True, 0, RawRequest.close),
        case(
            "S23",
            "closed between head and first word",
            [Send(wire.stream_head()), Stall()],
            True,
            0,
            RawRequest.close,
        ),
        case("S24", "closed while a whole answer is written", [Stall()], False, 0, RawRequest.close),
        case("S24", "killed while a whole answer is written", [Stall()], False, 0, RawRequest.reset),
    ],
)
@EACH_FORMAT
async def test_the_request_upstream_is_cancelled(
    wire_format: Format, steps: list[Step], stream: bool, pieces: int, leave: Leave
) -> None:
    body = wire_format.wire(TASK | {"stream": stream})
    async with (
        playing(lambda _: steps).running() as upstream,
        fronted(upstream.url) as url,
        RawRequest(url, wire_format.path, body=body) as request,
    ):
        if pieces:
            await has_heard(request, pieces)
        else:
            await upstream.until(lambda u: any(r.is_chat for r in u.requests))
        leave(request)
        await upstream.until(lambda u: any(r.is_chat and r.is_cancelled for r in u.requests))


async def has_heard(request: RawRequest, events: int) -> None:
    """Read so many events; what is sent in pieces may come in one."""
    heard = b""
    async for piece in (await request.answer()).chunks():
        heard += piece
        if heard.count(b"data:") >= events:
            return


@pytest.mark.parametrize(
    "stream",
    [case("S23", "of a streaming client", True), case("S24", "of a client that does not stream", False)],
)
async def test_notes_are_cancelled_with_the_only_request_that_waits(stream: bool) -> None:
    upstream = remembering_upstream(window=4096)
    upstream.script = lambda r: Answer(text="never", before=Gate()) if upstream.is_notes(r) else None
    body = AgentSession(name="alice").step(16).body(stream=stream)
    async with (
        upstream.running(),
        watched(upstream.url) as proxy,
        RawRequest(proxy.url, CHAT, body=body) as sent,
    ):
        await upstream.until(lambda u: bool(u.notes))
        sent.close()
        await upstream.until(lambda u: u.notes[0].is_cancelled)
        assert not upstream.turns


async def test_s26_twenty_aborted_streams_leave_nothing_behind(caplog: pytest.LogCaptureFixture) -> None:
    steps = [*wire.stream(STREAM)[:6], Stall()]

    def script(request: Recorded) -> list[Step]:
        return steps if request.json and request.json.get("stream") else [Send(wire.response(b"{}"))]

    caplog.set_level(logging.WARNING)
    async with playing(script).running() as upstream, watched(upstream.url) as proxy:
        await proxy.send(TASK)
        before = len(asyncio.all_tasks())
        for _ in range(20):
            async with RawRequest(proxy.url, CHAT, body=TASK | {"stream": True}) as request:
                await has_heard(request, 5)
                request.reset()
        await upstream.until(lambda u: sum(r.is_cancelled for r in u.requests) == 20)
        while proxy.counted("proxy_in_flight_requests"):
            await asyncio.sleep(0)
        got = await proxy.send(TASK)
        assert (got.status, got.body) == (200, b"{}")
        async with asyncio.timeout(30):
            while len(asyncio.all_tasks()) > before:
                await asyncio.sleep(0.01)
    assert [record.getMessage() for record in caplog.records] == []


# Clients that wait, and come again


@pytest.mark.parametrize(
    "context",
    [
        case("S28", "where the upstream is silent", {"notes_idle_timeout_seconds": 0.2}),
        case("S28", "where its own patience is shorter than that", {"notes_wait_seconds": 0.2}),
    ],
)
async def test_a_client_without_a_stream_waits_for_notes_only_so_long(context: dict[str, float]) -> None:
    """Nothing can be sent to it meanwhile, so the wait has an end of its own, below what clients allow."""
    assert ContextConfig().notes_wait_seconds < 300
    upstream = remembering_upstream(window=4096)
    upstream.script = lambda r: Answer(text="never", before=Gate()) if upstream.is_notes(r) else None
    body = AgentSession(name="alice").step(16).body()
    async with upstream.running(), watched(upstream.url, **context) as proxy:
        got = await proxy.send(body)
        await upstream.until(lambda u: u.notes[0].is_done)
        assert proxy.names() == ["context.compaction_failed"]
    assert (got.status, got.outcome) == (200, "failed")
    assert upstream.turns[0].json == body
    assert upstream.notes[0].is_cancelled


async def test_s28_a_client_that_streams_is_told_that_we_live_and_waits_on() -> None:
    upstream, gate = remembering_upstream(window=4096), Gate()
    upstream.script = lambda r: Answer(text=GOOD, before=gate) if upstream.is_notes(r) else None
    body = AgentSession(name="alice").step(16).body(stream=True)
    settings = {"notes_wait_seconds": 0.05, "keepalive_seconds": 0.1}
    async with (
        upstream.running(),
        watched(upstream.url, **settings) as proxy,
        RawRequest(proxy.url, CHAT, body=body) as request,
    ):
        answer = await request.answer()
        gate.open()
        got = await read(answer)
    assert got.is_whole and got.body.endswith(b"data: [DONE]\n\n")
    assert proxy.names() == ["context.compacted"]


async def test_s29_a_client_that_gives_up_and_asks_again_costs_one_set_of_notes() -> None:
    upstream = remembering_upstream(window=4096)
    held = [Gate()]
    upstream.script = lambda r: Answer(text=GOOD) if upstream.is_notes(r) else Answer(before=held[0])
    body = AgentSession(name="alice").step(16).body(stream=True)
    async with upstream.running(), watched(upstream.url) as proxy:
        for i in range(4):
            async with RawRequest(proxy.url, CHAT, body=body) as request:
                await upstream.until(lambda u, n=i: len(u.turns) == n + 1)  # type: ignore[misc]
                request.close()
                await upstream.until(lambda u, n=i: u.turns[n].is_cancelled)  # type: ignore[misc]
        held[0].open()
        got = await proxy.send(body)
    assert (got.status, got.outcome, len(upstream.notes)) == (200, "reused", 1)
    assert upstream.most_in_flight == 1
    assert len({turn.body for turn in upstream.turns}) == 1


async def test_s29_notes_that_were_given_up_are_not_begun_again_for_each_try() -> None:
    upstream = remembering_upstream(window=4096)
    upstream.script = lambda r: Answer(text="never", before=Gate()) if upstream.is_notes(r) else None
    body = AgentSession(name="alice").step(16).body(stream=True)
    async with upstream.running(), watched(upstream.url) as proxy:
        async with RawRequest(proxy.url, CHAT, body=body) as request:
            await upstream.until(lambda u: bool(u.notes))
            request.close()
            await upstream.until(lambda u: u.notes[0].is_cancelled)
        got = [await proxy.send(body) for _ in range(3)]
    assert {one.status for one in got} == {200}
    assert len(upstream.notes) == 1


@pytest.mark.parametrize("leaving", [0, 1, 2], ids=["all stay", "one leaves", "two leave"])
async def test_p12_copies_of_one_request_share_their_notes(leaving: int) -> None:
    upstream, gate = remembering_upstream(window=4096, slots=3), Gate()
    upstream.script = lambda r: Answer(text=GOOD, before=gate) if upstream.is_notes(r) else None
    body = AgentSession(name="alice").step(16).body()
    async with upstream.running(), watched(upstream.url) as proxy:
        copies = [RawRequest(proxy.url, CHAT, body=body) for _ in range(3)]
        for copy in copies:
            await copy.__aenter__()
        await are_in_flight(proxy, 3)
        await upstream.until(lambda u: bool(u.notes))
        for copy in copies[:leaving]:
            copy.reset()
        await are_in_flight(proxy, 3 - leaving)
        gate.open()
        got = [await read(await copy.answer()) for copy in copies[leaving:]]
        for copy in copies:
            copy.close()
    assert {one.status for one in got} == {200}
    assert len(upstream.notes) == 1
    assert len(upstream.turns) == 3 - leaving


async def test_p12_a_copy_that_leaves_stops_its_own_request_only() -> None:
    upstream, gate = ScriptedUpstream(slots=3, script=lambda _: Answer(text="ok", before=gate)), Gate()
    async with (
        upstream.running(),
        watched(upstream.url) as proxy,
        RawRequest(proxy.url, CHAT, body=TASK) as first,
        RawRequest(proxy.url, CHAT, body=TASK) as second,
    ):
        await upstream.until(lambda u: len(u.turns) == 2)
        first.close()
        await upstream.until(lambda u: any(turn.is_cancelled for turn in u.turns))
        gate.open()
        assert (await second.answer()).status == 200
    assert sum(turn.is_cancelled for turn in upstream.turns) == 1


async def are_in_flight(proxy: Watched, number: int) -> None:
    while proxy.counted("proxy_in_flight_requests") != number:
        await asyncio.sleep(0)
