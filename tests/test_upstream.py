"""An upstream that fails is told as an error with its remedy, and what can be put right is."""

import asyncio
import json

import pytest

from tests.support import wire_bytes
from tests.support.fronted import BODY, BOTH, CHAT, STREAMED, fronted, playing
from tests.support.gate import Gate
from tests.support.raw_client import RawAnswer, RawRequest, ask
from tests.support.raw_upstream import Close, Reset, Send, Stall, Step, Wait
from tests.support.recorded import Recorded


async def rest_of(answer: RawAnswer) -> bytes:
    """What arrives until the answer breaks off."""
    got = b""
    with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
        async for piece in answer.chunks():
            got += piece
    return got


async def error_of(url: str, path: str, body: bytes = BODY) -> tuple[int, dict[str, object]]:
    """Status and error object of a refusal."""
    answer, raw = await ask(url, path, body=body)
    assert answer.header("content-type") == "application/json"
    assert answer.header("content-length") == str(len(raw))
    error = json.loads(raw)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return answer.status, error


@BOTH
async def test_an_upstream_that_is_not_there_is_a_502_with_the_remedy(path: str) -> None:
    closed = wire_bytes.closed_port()
    async with fronted(closed) as url:
        status, error = await error_of(url, path)
    assert (status, error["code"], error["type"]) == (502, "upstream_unreachable", "server_error")
    said = str(error["message"])
    assert said == (
        f"no answer from the upstream at {closed} (connection refused); "
        "is it running, and is `upstream.url` right?"
    )


@BOTH
@pytest.mark.parametrize(
    "steps",
    [
        pytest.param([Reset()], id="reset"),
        pytest.param([Close()], id="closed"),
        pytest.param([Send(b"nonsense\r\n\r\n"), Close()], id="not HTTP"),
        pytest.param([Send(b"HTTP/1.1 999 Odd\r\nContent-Length: 0\r\n\r\n")], id="no status of HTTP"),
        pytest.param([Send(b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"), Close()], id="no length"),
    ],
)
async def test_an_upstream_that_breaks_before_it_answers_is_a_502(path: str, steps: list[Step]) -> None:
    async with playing(lambda _: steps).running() as upstream, fronted(upstream.url) as url:
        status, error = await error_of(url, path)
    assert (status, error["code"]) == (502, "upstream_unreachable")
    assert "`upstream.url`" in str(error["message"])


@BOTH
async def test_an_upstream_that_is_silent_is_a_504(path: str) -> None:
    async with (
        playing(lambda _: [Stall()]).running() as upstream,
        fronted(upstream.url, reach={"idle_timeout_seconds": 0.2}) as url,
    ):
        status, error = await error_of(url, path)
    assert (status, error["code"]) == (504, "upstream_stalled")
    assert "`upstream.idle_timeout_seconds`" in str(error["message"])


@BOTH
@pytest.mark.parametrize(
    "steps", [wire_bytes.reset_in_body(), wire_bytes.length_too_long()], ids=["reset", "short"]
)
async def test_a_body_that_breaks_off_breaks_off(path: str, steps: list[Step]) -> None:
    async with (
        playing(lambda _: steps).running() as upstream,
        fronted(upstream.url) as url,
        RawRequest(url, path, body=BODY) as request,
    ):
        got = await rest_of(await request.answer())
    assert got and wire_bytes.completion("Half of an answer").startswith(got[:40])


@BOTH
@pytest.mark.parametrize(
    "steps", [wire_bytes.reset_in_stream(), wire_bytes.closed_in_stream()], ids=["reset", "closed"]
)
async def test_a_stream_that_breaks_off_says_why_and_is_not_ended(path: str, steps: list[Step]) -> None:
    async with (
        playing(lambda _: steps).running() as upstream,
        fronted(upstream.url) as url,
        RawRequest(url, path, body=STREAMED) as request,
    ):
        got = await rest_of(await request.answer())
    whole = b"".join(wire_bytes.sse("Half of an answer, as events")[:3])
    assert got.startswith(whole + b'data: {"error":{"message":"the upstream went away in the middle')


@BOTH
async def test_a_stream_that_turns_into_something_else_ends(path: str) -> None:
    # aiohttp closes the connection then, but tells nobody who reads from it.
    head, gate = wire_bytes.sse("Half of an answer, as events")[:3], Gate()
    steps: list[Step] = [
        *wire_bytes.stream(head)[:-1],
        Wait(gate),
        Send(b"no length of a chunk\r\n"),
        Stall(),
    ]
    async with (
        playing(lambda _: steps).running() as upstream,
        fronted(upstream.url) as url,
        RawRequest(url, path, body=STREAMED) as request,
    ):
        answer = await request.answer()
        gate.open()
        got = await rest_of(answer)
    error = b"the upstream went away in the middle of its answer (what it sent is no HTTP)"
    assert got.startswith(b"".join(head)) and error in got
    assert b"no length" not in got


async def test_half_an_event_is_not_gone_on_with() -> None:
    half = wire_bytes.sse("hello")[1][:30]
    steps = [*wire_bytes.stream(wire_bytes.sse("hello")[:1])[:-1], Send(wire_bytes.chunk(half)), Reset()]
    async with (
        playing(lambda _: steps).running() as upstream,
        fronted(upstream.url) as url,
        RawRequest(url, CHAT, body=STREAMED) as request,
    ):
        got = await rest_of(await request.answer())
    assert got == wire_bytes.sse("hello")[0] + half


@BOTH
async def test_a_connection_that_was_closed_meanwhile_is_replaced_once(path: str) -> None:
    def script(_: Recorded) -> list[Step]:
        n = len([r for r in upstream.requests if r.path == path])
        # The second request comes on the kept connection, which is closed at that very moment.
        return [Close()] if n == 2 else [Send(wire_bytes.response(b"there"))]

    async with playing(script).running() as upstream, fronted(upstream.url) as url:
        for _ in range(2):
            answer, body = await ask(url, path, body=BODY)
            assert (answer.status, body) == (200, b"there")
    assert [r.body for r in upstream.requests if r.path == path] == [BODY, BODY, BODY]


@BOTH
async def test_a_request_that_reached_the_upstream_twice_is_not_sent_again(path: str) -> None:
    async with playing(lambda _: [Close()]).running() as upstream, fronted(upstream.url) as url:
        status, _ = await error_of(url, path)
    assert status == 502
    assert len([r for r in upstream.requests if r.path == path]) == 2
