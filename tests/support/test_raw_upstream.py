"""The raw upstream plays exactly the bytes and breaks that a test names."""

import asyncio

import pytest

from tests.support import wire_bytes
from tests.support.gate import Gate
from tests.support.raw_client import RawRequest, ask
from tests.support.raw_upstream import RawUpstream, Send, Step, Wait
from tests.support.scripted import ScriptedUpstream

CHAT = "/v1/chat/completions"
BODY = {"messages": [{"role": "user", "content": "hello"}]}


@pytest.mark.parametrize(
    "change",
    [
        wire_bytes.at_every_byte,
        wire_bytes.with_crlf,
        wire_bytes.without_space,
        wire_bytes.with_comments,
        wire_bytes.two_in_one,
        wire_bytes.in_one_piece,
        wire_bytes.without_done,
    ],
)
async def test_a_stream_arrives_in_the_pieces_it_was_sent_in(change: object) -> None:
    assert callable(change)
    pieces = change(wire_bytes.sse("An answer in events"))
    async with (
        RawUpstream(script=lambda _: wire_bytes.stream(pieces)).running() as upstream,
        RawRequest(upstream.url, CHAT, body=BODY) as asked,
    ):
        assert [p async for p in (await asked.answer()).chunks()] == pieces


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(wire_bytes.reset_before_headers(), id="reset before headers"),
        pytest.param(wire_bytes.closed_before_headers(), id="closed before headers"),
        pytest.param(wire_bytes.reset_in_body(), id="reset in mid-body"),
        pytest.param(wire_bytes.reset_in_stream(), id="reset in mid-stream"),
        pytest.param(wire_bytes.closed_in_stream(), id="closed in mid-stream"),
        pytest.param(wire_bytes.length_too_long(), id="length too long"),
    ],
)
async def test_a_break_is_a_break(steps: list[Step]) -> None:
    async with RawUpstream(script=lambda _: steps).running() as upstream:
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await ask(upstream.url, CHAT, body=BODY)


@pytest.mark.parametrize("code", [401, 404, 408, 413, 429, 500, 503])
async def test_a_status_with_retry_after(code: int) -> None:
    refusal = wire_bytes.status(code, retry_after="7")
    async with RawUpstream(script=lambda _: [Send(refusal)]).running() as upstream:
        answer, _ = await ask(upstream.url, CHAT, body=BODY)
    assert answer.status == code and answer.header("retry-after") == "7"


async def test_a_peer_that_leaves_a_stall_is_seen() -> None:
    async with RawUpstream(script=lambda _: wire_bytes.stall_in_stream()).running() as upstream:
        async with RawRequest(upstream.url, CHAT, body=BODY) as asked:
            await anext(aiter((await asked.answer()).chunks()))
            asked.close()
        await upstream.until(lambda u: u.requests[0].is_cancelled)


async def test_waits_for_its_gate_and_keeps_the_connection() -> None:
    gate = Gate()
    steps: list[Step] = [Wait(gate), Send(wire_bytes.response(wire_bytes.completion("late")))]
    async with (
        RawUpstream(script=lambda _: steps).running() as upstream,
        RawRequest(upstream.url, CHAT, body=BODY) as asked,
    ):
        await upstream.until(lambda u: len(u.requests) == 1)
        gate.open()
        assert b"late" in await (await asked.answer()).read()


async def test_hands_on_what_its_script_leaves() -> None:
    async with (
        ScriptedUpstream().running() as behind,
        RawUpstream(script=lambda _: None, behind=behind.url).running() as upstream,
    ):
        answer, body = await ask(upstream.url, CHAT, body=BODY, headers=[("X-Kept", "1")])
    assert answer.status == 200 and b"Understood" in body
    assert behind.requests[0].header("x-kept") == "1"


async def test_a_closed_port_refuses() -> None:
    with pytest.raises(ConnectionRefusedError):
        await ask(wire_bytes.closed_port(), CHAT, body=BODY)
