"""Errors inside a stream: an overflow is put right or told as one; what else goes wrong is passed on."""

import gzip
import json
from typing import Any

import pytest

from tests.cases.table import case
from tests.support import wire_bytes as wire
from tests.support.agent_sessions import AgentSession, remembering_upstream
from tests.support.discovery import Server
from tests.support.formats import FORMATS, Format
from tests.support.fronted import fronted, playing
from tests.support.raw_client import RawRequest, ask
from tests.support.raw_upstream import RawUpstream, Send, Step
from tests.support.recorded import Recorded
from tests.support.watched import read, watched

EACH_FORMAT = pytest.mark.parametrize("wire_format", FORMATS, ids=lambda f: f.name)
WINDOW = 2048
OLD = {
    "code": 400,
    "message": "the request exceeds the available context size. try increasing the context size or enable "
    "context shift",
    "type": "invalid_request_error",
}
NEW = {
    "code": 400,
    "message": f"request (2600 tokens) exceeds the available context size ({WINDOW} tokens), try "
    "increasing it",
    "type": "exceed_context_size_error",
    "n_prompt_tokens": 2600,
    "n_ctx": WINDOW,
}
CODED = {
    "type": "error",
    "error": {
        "code": "context_length_exceeded",
        "message": "Your input exceeds the context window of this model.",
    },
}


def fields(**named: Any) -> bytes:
    """An event of these fields."""
    said = (v if isinstance(v, str) else json.dumps(v) for v in named.values())
    return "\n".join(f"{k}: {v}" for k, v in zip(named, said, strict=True)).encode() + b"\n\n"


FORMS = pytest.mark.parametrize(
    "pieces",
    [
        case("S14", "a field named error behind a 200", [fields(error=OLD), b"data: [DONE]\n\n"]),
        case("S15", "an error as the first chunk", [fields(data={"error": NEW}), b"data: [DONE]\n\n"]),
        case("S17", "an event named error", [fields(event="error", data=CODED)]),
    ],
)


@FORMS
@EACH_FORMAT
async def test_an_overflow_in_a_stream_is_put_right(pieces: list[bytes], wire_format: Format) -> None:
    good = remembering_upstream(window=WINDOW, server=Server.BARE)
    played: list[Recorded] = []

    def script(request: Recorded) -> list[Step] | None:
        if played or not request.is_chat or good.is_notes(request):
            return None
        played.append(request)
        return wire.stream(pieces)

    body = wire_format.wire(AgentSession(name="alice").step(24).body(stream=True))
    async with good.running():
        raw = RawUpstream(script=script, behind=good.url)
        async with raw.running(), watched(raw.url) as proxy:
            async with RawRequest(proxy.url, wire_format.path, body=body) as request:
                got = await read(await request.answer())
            assert proxy.counted("context_overflow_answers_total", outcome="recovered") == 1
    assert (got.status, len(played)) == (200, 1)
    assert b"exceed" not in got.body


@FORMS
@EACH_FORMAT
async def test_an_overflow_that_cannot_be_put_right_gets_a_status_that_says_so(
    pieces: list[bytes], wire_format: Format
) -> None:
    """Nothing of the task itself is cut; a client that is told 200 would not see why nothing came."""
    steps = wire.stream(pieces)
    task = {"messages": [{"role": "user", "content": "tax rate table " * 900}], "stream": True}
    async with playing(lambda _: steps).running() as upstream, fronted(upstream.url) as url:
        answer, body = await ask(url, wire_format.path, body=wire_format.wire(task))
    assert (answer.status, answer.header("content-type")) == (400, "application/json")
    told = json.loads(body)
    assert "exceeds the" in told["error"]["message"]
    assert len([r for r in upstream.requests if r.is_chat]) == 1


@pytest.mark.parametrize("coding", ["", "gzip"], ids=["plain", "gzip"])
@pytest.mark.parametrize("has_turns", [True, False], ids=["with old turns", "with a task alone"])
@EACH_FORMAT
async def test_s15_an_overflow_that_is_the_whole_answer_behind_a_200_is_none(
    wire_format: Format, has_turns: bool, coding: str
) -> None:
    good = remembering_upstream(window=WINDOW, server=Server.BARE)
    error = json.dumps({"error": NEW}).encode()
    sent, headers = (gzip.compress(error), [("Content-Encoding", "gzip")]) if coding else (error, [])
    played: list[Recorded] = []

    def script(request: Recorded) -> list[Step] | None:
        if (played and has_turns) or not request.is_chat or good.is_notes(request):
            return None
        played.append(request)
        return [Send(wire.response(sent, headers=headers))]

    session = AgentSession(name="alice").step(24 if has_turns else 0)
    async with good.running():
        raw = RawUpstream(script=script, behind=good.url)
        async with raw.running(), watched(raw.url) as proxy:
            body = wire_format.wire(session.body())
            answer, got = await ask(proxy.url, wire_format.path, body=body)
    assert answer.status == (200 if has_turns else 400)
    assert has_turns or (got, answer.header("content-encoding")) == (error, None)
    # The one that was answered.
    assert len(good.turns) == has_turns


@pytest.mark.parametrize(
    "pieces",
    [
        case("S14", "after the first word", [*wire.sse("hello")[:2], fields(error=OLD)]),
        case("S17", "at the end", [*wire.sse("hello")[:2], fields(event="error", data=CODED)]),
    ],
)
async def test_what_comes_after_a_stream_began_is_passed_on(pieces: list[bytes]) -> None:
    steps = wire.stream(pieces)
    task = b'{"stream":true,"messages":[{"role":"user","content":"go"}]}'
    async with playing(lambda _: steps).running() as upstream, fronted(upstream.url) as url:
        answer, body = await ask(url, "/v1/chat/completions", body=task)
    assert (answer.status, body) == (200, b"".join(pieces))


# Our own request


@FORMS
@pytest.mark.parametrize("begun", [[], wire.sse("The agent read")[:3]], ids=["at once", "after some words"])
async def test_notes_that_end_in_an_overflow_are_none(pieces: list[bytes], begun: list[bytes]) -> None:
    good = remembering_upstream(window=4096)
    played: list[Recorded] = []

    def script(request: Recorded) -> list[Step] | None:
        if played or not request.is_chat or not good.is_notes(request):
            return None
        played.append(request)
        return wire.stream([*begun, *pieces])

    raw_body = json.dumps(AgentSession(name="alice").step(16).body(stream=True)).encode()
    async with good.running():
        raw = RawUpstream(script=script, behind=good.url)
        async with raw.running(), watched(raw.url) as proxy:
            got = await proxy.send(raw_body)
            assert proxy.names()[0] in ("context.compaction_failed", "context.window_learned")
    assert (got.status, len(played)) == (200, 1)
    assert b"exceed" not in got.body


async def test_s17_every_request_for_notes_is_measured_before_it_is_sent() -> None:
    window = 8192
    good = remembering_upstream(window=window)
    async with good.running(), watched(good.url) as proxy:
        got = await proxy.send(AgentSession(name="alice").step(180).body(stream=True))
    assert got.status == 200
    assert len(good.notes) > 1
    assert all(good.count(notes.chat) + notes.chat["max_tokens"] <= window for notes in good.notes)
    assert {notes.status for notes in good.notes} == {200}


# Other errors


@EACH_FORMAT
async def test_s18_an_error_on_a_streaming_request_keeps_status_body_and_headers(wire_format: Format) -> None:
    body = b'{"error": {"message": "slow down", "type": "rate_limit_error"}, "odd": 1.50}'
    headers = [("Retry-After", "3"), ("X-Request-Id", "r1"), ("X-RateLimit-Remaining", "0")]
    steps = [Send(wire.response(body, status="429 Too Many Requests", headers=headers))]
    asking = wire_format.wire({"messages": [{"role": "user", "content": "go"}], "stream": True})
    async with playing(lambda _: steps).running() as upstream, fronted(upstream.url) as url:
        answer, got = await ask(url, wire_format.path, body=asking)
    assert (answer.status, got) == (429, body)
    assert [answer.header(name) for name, _ in headers] == [value for _, value in headers]
    assert answer.header("content-type") == "application/json"
    assert len([r for r in upstream.requests if r.is_chat]) == 1
