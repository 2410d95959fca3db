"""What is sent while a client waits: no client takes it for an answer, and none of the upstream's is lost."""

import asyncio
import json
from typing import Any

import pytest
from openai import AsyncOpenAI

from tests.cases.table import case
from tests.support import wire_bytes as wire
from tests.support.agent_sessions import AgentSession, remembering_upstream
from tests.support.answers import Answer
from tests.support.discovery import Server
from tests.support.formats import FORMATS, Format
from tests.support.fronted import CHAT, fronted, playing
from tests.support.gate import Gate
from tests.support.raw_client import RawRequest, ask
from tests.support.raw_upstream import RawUpstream, Step
from tests.support.recorded import Recorded
from tests.support.scripted import ScriptedUpstream
from tests.support.watched import Watched, read, watched

EACH_FORMAT = pytest.mark.parametrize("wire_format", FORMATS, ids=lambda f: f.name)
NOTES = "The agent read the parts one after the other and changed the rate."
# What clients must be able to parse of every event that they dispatch.
WORD = {"choices": [{"index": 0, "delta": {"content": "hello"}, "finish_reason": None}]}


def dispatched(stream: bytes) -> list[str]:
    """The data of each event that a strict reader gives to its application, empty ones included."""
    found: list[str] = []
    data: list[str] = []
    seen_id = False
    for line in stream.decode().removesuffix("\n").split("\n"):
        field, _, value = line.partition(":")
        if line.startswith("data"):
            data.append(value.removeprefix(" "))
        elif field == "id":
            seen_id = True
        elif not line and (data or seen_id):
            found.append("\n".join(data))
            data = []
    return found


def held_until_two_beats(upstream: ScriptedUpstream, gate: Gate) -> None:
    upstream.script = lambda request: Answer(text=NOTES, before=gate) if upstream.is_notes(request) else None


async def opened_after_two_beats(proxy: Watched, gate: Gate) -> None:
    while proxy.counted("proxy_keepalives_total") < 2:
        await asyncio.sleep(0.01)
    gate.open()


async def waited(wire_format: Format) -> bytes:
    """The body of a stream that had to wait for notes."""
    upstream, gate = remembering_upstream(window=4096), Gate()
    held_until_two_beats(upstream, gate)
    body = wire_format.wire(AgentSession(name="alice").step(17).body(stream=True))
    async with (
        upstream.running(),
        watched(upstream.url, keepalive_seconds=0.05) as proxy,
        RawRequest(proxy.url, wire_format.path, body=body) as request,
    ):
        opening = asyncio.create_task(opened_after_two_beats(proxy, gate))
        got = await read(await request.answer())
        await opening
    return got.body


@EACH_FORMAT
@pytest.mark.parametrize(
    "is_told",
    [
        case("S05", "a heartbeat dispatches nothing that is no JSON", lambda data: data != ""),
        case("S08", "no data field is ever empty", lambda data: bool(data.strip())),
    ],
)
async def test_every_event_of_a_stream_that_waited_can_be_parsed(wire_format: Format, is_told: Any) -> None:
    body = await waited(wire_format)
    # As if an event with an id had come before: from then on a blank line dispatches.
    events = dispatched(b"id: 1\n" + body)
    assert events and all(map(is_told, events))
    assert all(isinstance(json.loads(data), dict) for data in events if data != "[DONE]")
    assert not [line for line in body.split(b"\n") if line.strip() == b"data:"]


async def test_s05_the_openai_client_reads_a_stream_with_ids_after_heartbeats() -> None:
    good, gate = remembering_upstream(window=4096), Gate()
    held_until_two_beats(good, gate)
    events = [b"id: 1\ndata: " + json.dumps(WORD).encode() + b"\n\n", b"data: [DONE]\n\n"]

    def script(request: Recorded) -> list[Step] | None:
        return wire.stream(events) if request.is_chat and not good.is_notes(request) else None

    async with good.running():
        raw = RawUpstream(script=script, behind=good.url)
        async with (
            raw.running(),
            watched(raw.url, keepalive_seconds=0.05) as proxy,
            AsyncOpenAI(base_url=f"{proxy.url}/v1", api_key="k", max_retries=0) as client,
        ):
            opening = asyncio.create_task(opened_after_two_beats(proxy, gate))
            stream = await client.chat.completions.create(
                **AgentSession(name="alice").step(17).body(stream=True)
            )
            said = [chunk.choices[0].delta.content async for chunk in stream]
            await opening
    assert said == ["hello"]


# The upstream's own


async def test_s06_bare_colons_of_the_upstream_are_passed_on_and_none_is_added() -> None:
    pieces = [b":\n\n", b":\n\n", b'data: {"choices":[]}\n\n']
    steps = wire.stream(pieces)
    async with playing(lambda _: steps).running() as upstream, fronted(upstream.url) as url:
        body = b'{"stream":true,"messages":[{"role":"user","content":"go"}]}'
        _, got = await ask(url, CHAT, body=body)
    assert got == b"".join(pieces)


@pytest.mark.parametrize(
    "comments",
    [
        case("S06", "bare colons before an error", [b":\n\n", b":\n\n"]),
        case("S06", "a comment before an error", [b": ping\n\n"]),
    ],
)
@pytest.mark.parametrize("on_notes", [False, True], ids=["own request", "notes"])
async def test_comments_are_read_as_such(comments: list[bytes], on_notes: bool) -> None:
    good = remembering_upstream(
        window=4096 if on_notes else 2048, server=Server.LLAMA_CPP if on_notes else Server.BARE
    )
    error = {"message": "the prompt is too long", "code": "context_length_exceeded"}
    pieces = [*comments, *(wire.sse(NOTES) if on_notes else wire.sse_error(error))]
    played: list[Recorded] = []

    def script(request: Recorded) -> list[Step] | None:
        if played or not request.is_chat or good.is_notes(request) != on_notes:
            return None
        played.append(request)
        return wire.stream(pieces)

    async with good.running():
        raw = RawUpstream(script=script, behind=good.url)
        async with raw.running(), watched(raw.url) as proxy:
            body = AgentSession(name="alice").step(16 if on_notes else 24).body(stream=True)
            got = await proxy.send(body)
    assert (got.status, len(played)) == (200, 1)
    assert b"context_length_exceeded" not in got.body
    assert {"context.compacted", "context.trimmed"} & set(proxy.names())
