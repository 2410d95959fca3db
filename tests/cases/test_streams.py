"""Streams: every piece is passed on as it comes, and read right whatever its form."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.cases.table import case
from tests.support import answers_messages, answers_responses
from tests.support import wire_bytes as wire
from tests.support.agent_sessions import AgentSession, remembering_upstream
from tests.support.answers import Answer, Numbers
from tests.support.discovery import Server
from tests.support.formats import FORMATS, Format
from tests.support.fronted import CHAT, fronted, playing, saying
from tests.support.gate import Gate
from tests.support.raw_client import RawRequest, ask
from tests.support.raw_upstream import RawUpstream, Send, Stall, Step, Wait
from tests.support.recorded import Recorded
from tests.support.scripted import ScriptedUpstream
from tests.support.translated import MESSAGES, RESPONSES
from tests.support.watched import Watched, watched

THREE = pytest.mark.parametrize("path", [CHAT, RESPONSES, MESSAGES])
ASKING = b'{"stream":true,"max_tokens":50,"input":"go","messages":[{"role":"user","content":"go"}]}'


def event(delta: dict[str, Any], finish: str | None = None) -> bytes:
    chunk = {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
    return b"data: " + json.dumps(chunk, ensure_ascii=False).encode() + b"\n\n"


# Nothing is held back

TINY = [event({"content": "a"}), b"data: [DONE]\n\n"]


@THREE
@pytest.mark.parametrize(
    ("pieces", "last"),
    [
        case("S01", "each of many pieces is written as it comes", wire.sse("in a number of pieces"), None),
        case(
            "S02",
            "a tiny first event is not held for more",
            [event({"content": "a"}), b"data: [DONE]\n\n"],
            None,
        ),
        case("S03", "a stream that never closes is passed on", wire.sse("on and on")[:3], Stall()),
    ],
)
async def test_a_piece_arrives_before_the_next_is_sent(
    path: str, pieces: list[bytes], last: Step | None
) -> None:
    gates = [Gate() for _ in pieces]
    steps: list[Step] = [Send(wire.stream_head())]
    for piece, gate in zip(pieces, gates, strict=True):
        steps += [Send(wire.chunk(piece)), Wait(gate)]
    steps.append(last or Send(wire.LAST_CHUNK))
    async with (
        playing(lambda _: steps).running() as upstream,
        fronted(upstream.url) as url,
        RawRequest(url, path, body=ASKING) as request,
    ):
        answer = await request.answer()
        got = []
        async for piece in answer.chunks():
            got.append(piece)
            gates[len(got) - 1].open()
            if last and len(got) == len(pieces):
                break
    assert got == pieces
    assert answer.header("x-accel-buffering") == "no"
    assert answer.header("cache-control") == "no-cache"


# Bytes are kept


PLACE = '{"place":"北京","unit":"摄氏度"}'
TWO_CALLS_AT_0 = [
    event({"tool_calls": [{"index": 0, "id": i, "function": {"name": "sum", "arguments": f'{{"t":{n}}}'}}]})
    for i, n in (("first", 1), ("second", 2))
]
FROM_LLAMA = [event({"role": "assistant", "content": None}), event({"content": " "}), b"data: [DONE]"]


@pytest.mark.parametrize(
    "pieces",
    [
        case(
            "S10",
            "arguments cut inside a character come back whole",
            wire.at_every_byte([event({"tool_calls": [{"index": 0, "function": {"arguments": PLACE}}]})]),
        ),
        case("S31", "calls that share the index 0 are left to the client", TWO_CALLS_AT_0),
        case("S33", "a last line without its blank line is not lost", FROM_LLAMA),
    ],
)
async def test_the_bytes_of_a_stream_are_kept(pieces: list[bytes]) -> None:
    steps = wire.stream(pieces)
    async with playing(lambda _: steps).running() as upstream, fronted(upstream.url) as url:
        _, body = await ask(url, CHAT, body=ASKING)
    assert body == b"".join(pieces)


async def test_r33_members_of_an_answer_that_nobody_knows_come_back() -> None:
    message = {"content": "a", "reasoning_content": "b", "oddity": [1]}
    whole = json.dumps({"choices": [{"message": message}], "timings": {"prompt_n": 1}}).encode()
    async with saying(whole).running() as upstream, fronted(upstream.url) as url:
        for path in (CHAT, RESPONSES, MESSAGES):
            _, body = await ask(url, path, body=ASKING.replace(b"true", b"false"))
            assert body == whole


# What the proxy itself reads of a stream


def in_several_datas(pieces: list[bytes]) -> list[bytes]:
    """Each JSON object over two `data:` lines."""
    return [piece.replace(b', "', b',\ndata: "', 1) for piece in pieces]


def without_last_blank(pieces: list[bytes]) -> list[bytes]:
    return [*pieces[:-1], pieces[-1].rstrip(b"\n")]


def with_null_first(pieces: list[bytes]) -> list[bytes]:
    return without_last_blank([*FROM_LLAMA[:2], *pieces])


FORMS = pytest.mark.parametrize(
    "form",
    [
        case("S11", "fields without a space", wire.without_space),
        case("S11", "lines that end in CR LF", wire.with_crlf),
        case("S11", "several data lines in one event", in_several_datas),
        case("S10", "characters cut at every byte", wire.at_every_byte),
        case("S33", "null before the first word and no blank line at the end", with_null_first),
    ],
)
Form = Callable[[list[bytes]], list[bytes]]
NOTES = "The agent looked through 北京 and read the parts; the rate stands in part 7."


class Playing:
    """The first request of a kind gets these steps; the rest is answered as usual."""

    def __init__(self, good: ScriptedUpstream, steps: list[Step], *, on_notes: bool = False) -> None:
        self._good, self._steps, self._on_notes = good, steps, on_notes
        self.played = False
        self.upstream = RawUpstream(script=self._script, behind=good.url)

    def _script(self, request: Recorded) -> list[Step] | None:
        if self.played or not request.is_chat or self._good.is_notes(request) != self._on_notes:
            return None
        self.played = True
        return self._steps


@FORMS
async def test_usage_is_found(form: Form) -> None:
    good = remembering_upstream(window=4096)
    async with good.running():
        play = Playing(good, wire.stream(form(wire.sse("hello"))))
        async with play.upstream.running() as upstream, watched(upstream.url) as proxy:
            await proxy.send(AgentSession(name="alice").step(1).body(stream=True))
            await is_told(proxy)
    assert proxy.counted("upstream_prompt_tokens_total") == 100


async def is_told(proxy: Watched) -> None:
    """Wait until the request has ended on the proxy's side too."""
    while proxy.counted("proxy_in_flight_requests"):
        await asyncio.sleep(0)


@FORMS
async def test_an_overflow_is_found(form: Form) -> None:
    good = remembering_upstream(window=2048, server=Server.BARE)
    error = {"message": "the prompt is longer than the context length", "code": "context_length_exceeded"}
    async with good.running():
        play = Playing(good, wire.stream(form(wire.sse_error(error))))
        async with play.upstream.running() as upstream, watched(upstream.url) as proxy:
            got = await proxy.send(AgentSession(name="alice").step(24).body(stream=True))
    assert play.played
    # What came before the error had been passed on already.
    assert got.status == 200
    if form is not with_null_first:
        assert b"error" not in got.body and proxy.counted("context_overflow_answers_total") == 1


@FORMS
async def test_notes_are_read(form: Form) -> None:
    good = remembering_upstream(window=4096)
    async with good.running():
        play = Playing(good, wire.stream(form(wire.sse(NOTES))), on_notes=True)
        async with play.upstream.running() as upstream, watched(upstream.url) as proxy:
            got = await proxy.send(AgentSession(name="alice").step(16).body())
    assert (play.played, got.outcome) == (True, "compacted")
    assert NOTES in json.dumps(good.turns[0].messages, ensure_ascii=False)


NUMBERS = Numbers(prompt=100, cached=0, completion=10, has_timings=True)


def whole_stream(path: str) -> list[bytes]:
    """All that a server of that format says, but that it is done where that is said apart."""
    said: dict[str, Any] = {"model": "scripted", "number": 1}
    if path == RESPONSES:
        return list(answers_responses.events(Answer(text="hello"), NUMBERS, body={}, **said))
    if path == MESSAGES:
        return list(answers_messages.events(Answer(text="hello"), NUMBERS, **said))
    return wire.without_done(wire.sse("hello"))


@pytest.mark.parametrize("wire_format", FORMATS, ids=lambda f: f.name)
async def test_s13_usage_counts_where_the_stream_stays_open_after_the_finish(wire_format: Format) -> None:
    good = remembering_upstream(window=4096)
    last = whole_stream(wire_format.path)
    async with good.running():
        play = Playing(good, [*wire.stream(last)[:-1], Stall()])
        body = wire_format.wire(AgentSession(name="alice").step(1).body(stream=True))
        async with play.upstream.running() as upstream, watched(upstream.url) as proxy:
            async with RawRequest(proxy.url, wire_format.path, body=body) as request:
                got = b""
                async for piece in (await request.answer()).chunks():
                    got += piece
                    if got == b"".join(last):
                        break
                request.close()
            # What the proxy held for it is let go with the client.
            await upstream.until(lambda u: any(r.is_cancelled for r in u.requests))
            await is_told(proxy)
            assert proxy.counted("upstream_prompt_tokens_total") == 100
