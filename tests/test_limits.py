"""What is too large, too slow or too much: what passes untouched, what waits, and what is sent away."""

import asyncio
import functools
import gzip
import json

import brotli
import pytest
import zstandard

from proxy.app import make_app
from proxy.config import Config, UpstreamConfig
from proxy.config_limits import LimitsConfig
from tests.support import wire_bytes
from tests.support.agent_sessions import AgentSession, remembering_upstream
from tests.support.formats import FORMATS, Format
from tests.support.fronted import BODY, BOTH, CHAT, OTHER, fronted, playing, sample, saying
from tests.support.gate import Gate
from tests.support.raw_client import RawAnswer, RawRequest, ask
from tests.support.raw_upstream import RawUpstream, Send, Step, Wait
from tests.support.recorded import Recorded
from tests.support.watched import watched

COUNT = "/v1/messages/count_tokens"
FORM = pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
CHUNKED = [("Transfer-Encoding", "chunked")]


def at(upstream: RawUpstream, path: str) -> list[Recorded]:
    return [request for request in upstream.requests if request.path == path]


async def untouched(url: str, dialect: str, reason: str) -> float:
    labels = f'dialect="{dialect}",reason="{reason}"'
    return await sample(url, f"proxy_untouched_requests_total{{{labels}}}")


# What is not looked into


@pytest.mark.parametrize("path", [*(form.path for form in FORMATS), COUNT])
@pytest.mark.parametrize("chunked", [False, True], ids=["declared", "chunked"])
async def test_a_body_that_is_too_large_to_be_understood_goes_through(path: str, chunked: bool) -> None:
    body = b'{"messages":[' + b" " * 500 + b"]}"
    wire = (
        wire_bytes.chunk(body[:300]) + wire_bytes.chunk(body[300:]) + wire_bytes.LAST_CHUNK
        if chunked
        else body
    )
    headers = [("X-Kept", "1"), *(CHUNKED if chunked else [])]
    async with (
        saying(b"yes").running() as upstream,
        fronted(upstream.url, limits={"understood_bytes": 100}) as url,
    ):
        answer, got = await ask(url, path, body=wire, headers=headers)
        request = at(upstream, path)[-1]
    assert (answer.status, got, answer.header("x-compaction")) == (200, b"yes", "none")
    assert (request.body, request.header("x-kept")) == (body, "1")
    assert request.header("content-length") == (None if chunked else str(len(body)))


async def test_it_is_passed_on_while_it_comes() -> None:
    """So it takes no memory, however large it is."""
    first_is_there = asyncio.Event()

    async def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"first")
        first_is_there.set()
        await reader.readuntil(b"second")
        writer.write(wire_bytes.response(b"{}"))
        writer.close()

    server = await asyncio.start_server(meet, "127.0.0.1", 0)
    upstream = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server, fronted(upstream, limits={"understood_bytes": 4}) as url:
        wire = wire_bytes.chunk(b"first")
        async with RawRequest(url, CHAT, body=wire, headers=CHUNKED) as request:
            await first_is_there.wait()
            request.write(wire_bytes.chunk(b"second") + wire_bytes.LAST_CHUNK)
            assert (await request.answer()).status == 200


async def test_it_is_counted_with_its_reason() -> None:
    async with saying().running() as upstream, fronted(upstream.url, limits={"understood_bytes": 4}) as url:
        await ask(url, CHAT, body=BODY)
        assert await untouched(url, "chat", "too_large") == 1


@FORM
@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        pytest.param({"understood_messages": 4}, "too_many_messages", id="messages"),
        pytest.param({"understood_values": 20}, "too_large", id="values"),
    ],
)
async def test_a_conversation_of_too_many_parts_goes_through(
    form: Format, limits: dict[str, int], reason: str
) -> None:
    messages = [{"role": role, "content": "x"} for role in ("user", "assistant") * 10]
    body = form.wire({"model": "m", "messages": messages})
    async with saying(b"yes").running() as upstream, fronted(upstream.url, limits=limits) as url:
        answer, _ = await ask(url, form.path, body=body)
        assert at(upstream, form.path)[-1].body == body
        assert await untouched(url, form.dialect.name, reason) == 1
    assert (answer.status, answer.header("x-compaction")) == (200, "none")


def nested(depth: int, opening: str, closing: str) -> str:
    return opening * depth + "1" + closing * depth


@FORM
@pytest.mark.parametrize("depth", [1015, 1024, 50_000])
@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")], ids=["lists", "objects"])
async def test_no_depth_of_nesting_is_a_fault(form: Format, depth: int, opening: str, closing: str) -> None:
    """The JSON parser ends at 1024; what lies deeper is not understood, and goes through."""
    deep = nested(depth, opening, closing)
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": deep}}
    schema = {"name": "f", "parameters": {"type": "object", "x": "DEEP"}}
    chat = {
        "model": "m",
        "tools": [{"type": "function", "function": schema}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "x", "y": "DEEP"}]},
            {"role": "assistant", "content": "y", "tool_calls": [call]}
            if depth < 900
            else {"role": "assistant", "content": "y"},
            {"role": "user", "content": "z"},
        ],
    }
    body = form.wire(chat).replace(b'"DEEP"', deep.encode())
    async with saying(b"yes").running() as upstream, fronted(upstream.url, context={"window": 4096}) as url:
        answer, _ = await ask(url, form.path, body=body)
        assert (answer.status, at(upstream, form.path)[-1].body) == (200, body)
        assert await sample(url, "context_faults_total") == 0


# Who is slow


@BOTH
@pytest.mark.parametrize(
    ("headers", "begun"),
    [
        pytest.param([("Content-Length", "100")], b'{"half', id="declared"),
        pytest.param([("Content-Length", "100")], b"", id="nothing of it"),
        pytest.param([("Content-Length", "2000000")], b"x" * 70_000, id="long"),
        pytest.param(CHUNKED, wire_bytes.chunk(b'{"half'), id="chunked"),
    ],
)
async def test_a_body_that_stops_coming_is_a_408(
    path: str, headers: list[tuple[str, str]], begun: bytes
) -> None:
    async with (
        playing(lambda _: [Wait(Gate())]).running() as upstream,
        fronted(upstream.url, limits={"body_silence_seconds": 0.1}) as url,
        RawRequest(url, path, body=begun, headers=headers) as request,
    ):
        answer = await request.answer()
        error = (await answer.json())["error"]
        assert (answer.status, error["code"], answer.header("connection")) == (
            408,
            "request_timeout",
            "close",
        )
        assert "`limits.body_silence_seconds`" in error["message"]
        assert await request.is_closed()
        assert await sample(url, "proxy_in_flight_requests") == 0


async def test_a_body_that_drips_is_a_408() -> None:
    """Each piece comes in time, and all of it never would."""
    async with (
        saying().running() as upstream,
        fronted(upstream.url, limits={"body_silence_seconds": 0.1}) as url,
        RawRequest(url, CHAT, body=b"{", headers=[("Content-Length", "1000")]) as request,
    ):
        answered = asyncio.ensure_future(request.answer())
        for _ in range(500):
            if answered.done():
                break
            request.write(b" ")
            await asyncio.sleep(0.01)
        # Not only once it had stopped.
        assert answered.done()
        assert (await answered).status == 408


async def test_a_pause_that_is_no_silence_is_waited_for() -> None:
    headers = [("Content-Length", str(len(BODY)))]
    async with (
        saying(b"yes").running() as upstream,
        fronted(upstream.url) as url,
        RawRequest(url, CHAT, body=BODY[:10], headers=headers) as request,
    ):
        await asyncio.sleep(0.05)
        request.write(BODY[10:])
        assert (await request.answer()).status == 200


async def test_a_body_that_the_upstream_takes_slowly_is_no_silence() -> None:
    """Then it is not the client that is waited for."""
    gate = Gate()

    async def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await gate.wait()
        await reader.readexactly(8_000_000)
        writer.write(wire_bytes.response(b"{}"))
        writer.close()

    server = await asyncio.start_server(meet, "127.0.0.1", 0, limit=1024)
    upstream = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server, fronted(upstream, limits={"body_silence_seconds": 0.1}) as url:
        sending = asyncio.ensure_future(ask(url, OTHER, body=b"x" * 8_000_000))
        done, _ = await asyncio.wait((sending,), timeout=0.4)
        assert not done
        gate.open()
        assert (await sending)[0].status == 200


# Who is too many


def holding(gate: Gate) -> RawUpstream:
    def script(_: Recorded) -> list[Step]:
        return [Wait(gate), Send(wire_bytes.response(b"there"))]

    return playing(script)


@FORM
async def test_who_finds_the_line_full_is_sent_away_in_its_format(form: Format) -> None:
    gate = Gate()
    limits = {"requests_at_once": 1, "requests_waiting": 1}
    async with holding(gate).running() as upstream, fronted(upstream.url, limits=limits) as url:
        first = asyncio.ensure_future(ask(url, OTHER, body=BODY))
        await upstream.until(lambda u: len(at(u, OTHER)) == 1)
        second = asyncio.ensure_future(ask(url, form.path, body=b"{}"))
        while await sample(url, "proxy_waiting_requests") < 1:
            pass
        answer, raw = await ask(url, form.path, body=b"{}")
        assert (answer.status, answer.header("retry-after")) == (503, "2")
        message = (
            "1 requests are under way and 1 wait for their turn; try again soon, or raise "
            "`limits.requests_at_once` or `limits.requests_waiting` of the proxy"
        )
        assert json.loads(raw) == json.loads(form.dialect.error(503, "overloaded", message))
        assert await sample(url, 'proxy_refused_total{code="overloaded"}') == 1
        assert (await ask(url, "/livez", method="GET"))[0].status == 200
        assert len(at(upstream, form.path)) == 0
        gate.open()
        assert [(await got)[1] for got in (first, second)] == [b"there", b"there"]


async def test_who_leaves_the_line_is_not_sent_on() -> None:
    gate = Gate()
    async with (
        holding(gate).running() as upstream,
        fronted(upstream.url, limits={"requests_at_once": 1}) as url,
    ):
        first = asyncio.ensure_future(ask(url, OTHER, body=BODY))
        await upstream.until(lambda u: len(at(u, OTHER)) == 1)
        for path in (CHAT, OTHER):
            async with RawRequest(url, path, body=b"{}") as leaving:
                while not await sample(url, "proxy_waiting_requests"):
                    pass
                leaving.reset()
            while await sample(url, "proxy_waiting_requests"):
                pass
        gate.open()
        await first
        assert await sample(url, "proxy_in_flight_requests") == 0
    assert len(at(upstream, CHAT)) == 0 and len(at(upstream, OTHER)) == 1


async def test_a_client_that_still_sends_holds_up_nobody() -> None:
    async with (
        saying(b"yes").running() as upstream,
        fronted(upstream.url, limits={"requests_at_once": 1}) as url,
        RawRequest(url, CHAT, body=b"{", headers=[("Content-Length", "2")]) as slow,
    ):
        assert (await ask(url, CHAT, body=BODY))[0].status == 200
        slow.write(b"}")
        assert (await slow.answer()).status == 200


async def test_bodies_that_have_no_room_are_sent_away() -> None:
    gate = Gate()
    limits = {"bodies_at_once_bytes": 150}
    body = b'{"messages":[]}'.ljust(100)
    async with holding(gate).running() as upstream, fronted(upstream.url, limits=limits) as url:
        first = asyncio.ensure_future(ask(url, CHAT, body=body))
        await upstream.until(lambda u: len(at(u, CHAT)) == 1)
        answer, raw = await ask(url, CHAT, body=body)
        assert (answer.status, json.loads(raw)["error"]["code"]) == (503, "overloaded")
        gate.open()
        assert (await first)[0].status == 200
        assert (await ask(url, CHAT, body=body))[0].status == 200


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        pytest.param(
            gzip.compress(b'{"messages":[{"role":"user","content":"hello"}]}' + b" " * 900_000),
            [("Content-Encoding", "gzip")],
            id="decompressed",
        ),
        pytest.param(
            b'{"messages":[{"role":"user","content":"hello"}],"x":[' + b"1," * 600_000 + b"1]}",
            [],
            id="parsed",
        ),
    ],
)
async def test_what_a_body_becomes_needs_room_as_well(body: bytes, headers: list[tuple[str, str]]) -> None:
    gate = Gate()
    async with (
        holding(gate).running() as upstream,
        fronted(upstream.url, limits={"bodies_at_once_bytes": 1_500_000}) as url,
    ):
        # A single one is always let in.
        first = asyncio.ensure_future(ask(url, CHAT, body=body, headers=headers))
        await upstream.until(lambda u: len(at(u, CHAT)) == 1)
        assert (await ask(url, CHAT, body=body, headers=headers))[0].status == 503
        gate.open()
        assert (await first)[0].status == 200
        assert (await ask(url, CHAT, body=body, headers=headers))[0].status == 200


async def test_notes_wait_for_each_other() -> None:
    gate = Gate()
    good = remembering_upstream(window=4096, slots=4)
    async with good.running():

        def script(request: Recorded) -> list[Step] | None:
            is_notes = request.is_chat and good.is_notes(request)
            return (
                [Wait(gate), Send(wire_bytes.response(wire_bytes.completion("Nothing.")))]
                if is_notes
                else None
            )

        upstream = RawUpstream(script=script, behind=good.url)

        def notes(u: RawUpstream) -> int:
            return len([request for request in u.requests if request.is_chat and good.is_notes(request)])

        async with upstream.running(), watched(upstream.url) as proxy:
            places = proxy.proxy.turnstile.notes
            places.most = 2
            bodies = [AgentSession(name=name).step(16).body() for name in ("alice", "bob", "carol")]
            asked = [asyncio.ensure_future(proxy.send(body)) for body in bodies]
            async with asyncio.timeout(30):
                while not places.waiting:
                    await asyncio.sleep(0)
                await upstream.until(lambda u: notes(u) == 2)
                gate.open()
                assert [got.status for got in await asyncio.gather(*asked)] == [200, 200, 200]
            assert notes(upstream) >= 3


async def test_so_many_notes_at_once_are_configured() -> None:
    config = Config(upstream=UpstreamConfig(url="http://127.0.0.1:9"), limits=LimitsConfig(notes_at_once=3))
    assert make_app(config, {}).state.proxy.turnstile.notes.most == 3


# What the upstream may say


@pytest.mark.parametrize("header", ["gzip", "br", "zstd"])
@pytest.mark.parametrize("status", ["200 OK", "400 Bad Request"])
async def test_a_bomb_for_an_answer_is_relayed_as_it_came(header: str, status: str) -> None:
    fast = functools.partial(brotli.compress, quality=1)
    encode = {"gzip": gzip.compress, "br": fast, "zstd": zstandard.compress}[header]
    bomb = encode(b'{"error":' + b" " * 30_000_000)
    headers = [("Content-Encoding", header)]
    async with (
        saying(bomb, status=status, headers=headers).running() as upstream,
        fronted(upstream.url) as url,
    ):
        answer, got = await ask(url, CHAT, body=BODY)
        assert (answer.status, got, answer.header("content-encoding")) == (int(status[:3]), bomb, header)
        assert await sample(url, "context_faults_total") == 0


async def test_an_answer_has_no_limit() -> None:
    async def whole(answer: RawAnswer) -> int:
        return sum([len(piece) async for piece in answer.chunks()])

    async with (
        saying(b"x" * 20_000_000).running() as upstream,
        fronted(upstream.url) as url,
        RawRequest(url, CHAT, body=BODY) as request,
    ):
        assert await whole(await request.answer()) == 20_000_000
