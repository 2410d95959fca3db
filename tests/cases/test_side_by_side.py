"""Several requests at once: shared notes, side requests, and who gives way to whom."""

import asyncio
import json

import pytest

from tests.cases.table import case
from tests.support import wire_bytes as wire
from tests.support.agent_sessions import AgentSession, marks, remembering_upstream
from tests.support.answers import Answer
from tests.support.formats import FORMATS, Format
from tests.support.fronted import CHAT
from tests.support.gate import Gate
from tests.support.proxied import proxied
from tests.support.raw_client import RawRequest, ask
from tests.support.raw_upstream import RawUpstream, Send, Step
from tests.support.recorded import Recorded
from tests.support.watched import Watched, watched

EACH_FORMAT = pytest.mark.parametrize("wire_format", FORMATS, ids=lambda f: f.name)
WINDOW = 4096
GOOD = "The agent read one part after the other."


# Side requests


@pytest.mark.parametrize("turns", [case("P10", "before a compaction", 8), case("P10", "after one", 20)])
@EACH_FORMAT
async def test_a_request_for_a_title_touches_nothing_of_the_chat(wire_format: Format, turns: int) -> None:
    upstream, alice = remembering_upstream(window=WINDOW), AgentSession(name="alice")
    async with upstream.running(), proxied(upstream) as proxy:
        for _ in range(turns):
            await proxy.send(wire_format.wire(alice.step().body()), path=wire_format.path)
        before = await proxy.send(wire_format.wire(alice.step().body()), path=wire_format.path)
        chat = "\n".join(str(m["content"])[:300] for m in alice.messages[-20:])
        title = {
            "messages": [{"role": "user", "content": f"Give a title to this chat:\n{chat}"}],
            "model": "scripted",
        }
        side = await proxy.send(wire_format.wire(title), path=wire_format.path)
        after = await proxy.send(wire_format.wire(alice.step().body()), path=wire_format.path)
    assert (side.status, side.outcome, side.view) == (200, "none", wire_format.wire(title))
    assert side.notes == ()
    assert after.outcome == ("none" if turns == 8 else "reused")
    earlier = wire_format.slices(before.view)
    assert wire_format.slices(after.view)[: len(earlier)] == earlier


async def test_p10_a_title_asked_for_at_the_end_of_the_chat_uses_what_is_stored_and_changes_nothing() -> None:
    upstream, alice = remembering_upstream(window=WINDOW), AgentSession(name="alice").step(16)
    async with upstream.running(), proxied(upstream) as proxy:
        first = await proxy.send(alice.body())
        asking = {"role": "user", "content": "Give this chat a title of five words."}
        side = await proxy.send(alice.body() | {"messages": [*alice.messages, asking]})
        after = await proxy.send(alice.step().body())
    assert [walk.outcome for walk in (first, side, after)] == ["compacted", "reused", "reused"]
    assert side.messages[-1] == asking
    assert asking["content"] not in json.dumps(after.messages)
    assert len(upstream.notes) == 1


# The same chat twice at once


async def are_in_flight(proxy: Watched, number: int) -> None:
    while proxy.counted("proxy_in_flight_requests") != number:
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    "streams", [(True, True), (False, True), (False, False)], ids=["both", "one", "none"]
)
@EACH_FORMAT
async def test_p13_two_requests_of_one_chat_over_the_window_are_both_answered(
    wire_format: Format, streams: tuple[bool, bool]
) -> None:
    upstream, gate = remembering_upstream(window=WINDOW, slots=2), Gate()
    upstream.script = lambda r: Answer(text=GOOD, before=gate) if upstream.is_notes(r) else None
    alice = AgentSession(name="alice").step(27)
    bodies = [wire_format.wire(alice.body(stream=stream)) for stream in streams]
    async with upstream.running(), watched(upstream.url) as proxy:
        asking = [asyncio.create_task(ask(proxy.url, wire_format.path, body=body)) for body in bodies]
        await upstream.until(lambda u: bool(u.notes))
        await are_in_flight(proxy, 2)
        gate.open()
        got = [await one for one in asking]
    assert [answer.status for answer, _ in got] == [200, 200]
    assert len(upstream.turns) == 2
    # No set of them was asked for twice.
    assert len({notes.body for notes in upstream.notes}) == len(upstream.notes)
    assert proxy.names() == ["context.compacted"] * len(upstream.notes)


@EACH_FORMAT
async def test_p15_what_comes_while_notes_are_written_is_not_lost(wire_format: Format) -> None:
    upstream, gate = remembering_upstream(window=WINDOW, slots=2), Gate()
    upstream.script = lambda r: Answer(text=GOOD, before=gate) if upstream.is_notes(r) else None
    alice = AgentSession(name="alice").step(16)
    first = wire_format.wire(alice.body())
    newer = wire_format.wire(alice.step().body())
    async with upstream.running(), watched(upstream.url) as proxy:
        asking = asyncio.create_task(ask(proxy.url, wire_format.path, body=first))
        await upstream.until(lambda u: bool(u.notes))
        also = asyncio.create_task(ask(proxy.url, wire_format.path, body=newer))
        await are_in_flight(proxy, 2)
        gate.open()
        got = [await asking, await also]
        later, _ = await ask(proxy.url, wire_format.path, body=wire_format.wire(alice.step().body()))
    assert [answer.status for answer, _ in got] == [200, 200]
    assert later.header("x-compaction") == "reused"
    # Each shows its own newest turn, and what it does not show was seen by those who wrote notes of it.
    shown = [numbers(turn.body) for turn in upstream.turns]
    assert sorted(map(max, shown)) == [15, 16, 17]
    noted = set().union(*(numbers(notes.body) for notes in upstream.notes))
    assert all(set(range(max(turns))) <= turns | noted for turns in shown)


def numbers(body: bytes) -> set[int]:
    """The turns whose marks are in it."""
    return {int(mark.rpartition("-")[2]) for mark in marks(body)}


# A server that has had enough


async def test_p18_parallel_agents_are_told_to_wait_as_the_server_says_it() -> None:
    good = remembering_upstream(window=WINDOW, slots=8)
    refused: list[Recorded] = []

    def script(request: Recorded) -> list[Step] | None:
        if not request.is_chat or len(refused) == 6:
            return None
        refused.append(request)
        return [Send(wire.status(429, retry_after="1"))]

    sessions = [AgentSession(name=name).step(2) for name in ("a", "b", "c", "d", "e", "f", "g", "h")]
    async with good.running():
        raw = RawUpstream(script=script, behind=good.url)
        async with raw.running(), watched(raw.url) as proxy:
            got = await asyncio.gather(*(proxy.send(one.body()) for one in sessions))
    assert sorted(one.status for one in got) == [200, 200, *[429] * 6]
    assert {one.headers.get("retry-after") for one in got if one.status == 429} == {"1"}
    assert len([r for r in raw.requests if r.is_chat]) == 8


@pytest.mark.parametrize("status", [429, 503])
async def test_p18_notes_that_are_told_to_wait_give_way_to_the_agents_own_request(status: int) -> None:
    good = remembering_upstream(window=WINDOW)
    refused: list[Recorded] = []

    def script(request: Recorded) -> list[Step] | None:
        if not request.is_chat or not good.is_notes(request):
            return None
        refused.append(request)
        return [Send(wire.status(status, retry_after="30"))]

    alice, got = AgentSession(name="alice").step(15), []
    async with good.running():
        raw = RawUpstream(script=script, behind=good.url)
        async with raw.running(), watched(raw.url) as proxy:
            for _ in range(4):
                got.append(await proxy.send(alice.step().body()))
    assert [one.status for one in got] == [200] * 4
    assert [one.outcome for one in got] == ["failed", "none", "none", "failed"]
    assert len(refused) == 2


async def test_p18_an_agents_own_request_passes_notes_that_wait_for_the_only_slot() -> None:
    """Another conversation's notes hold nobody up longer than they take, and its client may leave."""
    upstream, gate = remembering_upstream(window=WINDOW, slots=1), Gate()
    upstream.script = lambda r: Answer(text=GOOD, before=gate) if upstream.is_notes(r) else None
    alice, bob = AgentSession(name="alice").step(16), AgentSession(name="bob").step(2)
    async with (
        upstream.running(),
        watched(upstream.url) as proxy,
        RawRequest(proxy.url, CHAT, body=alice.body()) as hers,
    ):
        await upstream.until(lambda u: bool(u.notes))
        his = asyncio.create_task(proxy.send(bob.body()))
        await are_in_flight(proxy, 2)
        hers.close()
        got = await his
    assert (got.status, upstream.notes[0].is_cancelled) == (200, True)
