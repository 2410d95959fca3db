"""
What happens while notes are written: to the client that waits, and to who else wants the same.

Notes are held by a gate, so that nothing here depends on how fast anything is.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from proxy.exchange_waiting import retry_after_seconds
from tests.support import wire_bytes as wire
from tests.support.agent_sessions import AgentSession, remembering_upstream
from tests.support.answers import Answer, error
from tests.support.gate import Gate
from tests.support.raw_client import RawRequest
from tests.support.raw_upstream import RawUpstream, Reset, Send, Step
from tests.support.recorded import Recorded
from tests.support.scripted import ScriptedUpstream
from tests.support.watched import CHAT, Watched, read, watched

WINDOW = 4096
BEAT = b": waiting\n"
GOOD = "The agent read the parts one after the other and changed the rate. The tests passed."
# Long enough that no heartbeat comes unless a test waits for one.
NEVER = 3600.0
SOON = 0.05


def held_notes(upstream: ScriptedUpstream, gate: Gate, **answer: Any) -> None:
    """Notes wait for *gate*; the rest is answered as usual."""
    upstream.script = lambda request: (
        Answer(text=GOOD, before=gate, **answer) if upstream.is_notes(request) else None
    )


def session(name: str = "alice") -> AgentSession:
    """One whose next request fits, and is to be compacted."""
    return AgentSession(name=name).step(16)


def request(proxy: Watched, body: dict[str, Any]) -> RawRequest:
    return RawRequest(proxy.url, CHAT, body=body)


def after_beats(number: int, gate: Gate) -> Callable[[bytes], None]:
    """Opens *gate* once the body so far has so many heartbeats."""
    return lambda body: gate.open() if body.count(BEAT) >= number else None


# Heartbeats


async def test_a_streaming_client_gets_a_head_and_a_comment_for_every_interval() -> None:
    upstream = remembering_upstream(window=WINDOW)
    gate = Gate()
    held_notes(upstream, gate)
    async with (
        upstream.running(),
        watched(upstream.url, keepalive_seconds=SOON) as proxy,
        request(proxy, session().body(stream=True)) as sent,
    ):
        answer = await sent.answer()
        assert (answer.status, answer.header("content-type")) == (200, "text/event-stream")
        assert answer.header("x-accel-buffering") == "no"
        assert not upstream.turns
        rest = await read(answer, after_beats(3, gate))
    assert rest.is_whole
    assert rest.body.startswith(BEAT * 3)
    assert rest.body.replace(BEAT, b"").startswith(b"data: ")
    assert rest.body.endswith(b"data: [DONE]\n\n")
    assert proxy.counted("proxy_keepalives_total") >= 3
    assert len(upstream.turns) == 1


async def test_nothing_is_sent_before_the_first_interval() -> None:
    upstream = remembering_upstream(window=WINDOW)
    gate = Gate()
    held_notes(upstream, gate)
    async with (
        upstream.running(),
        watched(upstream.url, keepalive_seconds=NEVER) as proxy,
        request(proxy, session().body(stream=True)) as sent,
    ):
        await upstream.until(lambda u: bool(u.notes))
        gate.open()
        got = await read(await sent.answer())
    assert (got.outcome, got.body.count(BEAT)) == ("compacted", 0)
    assert proxy.counted("proxy_keepalives_total") == 0


async def test_a_client_that_does_not_stream_waits() -> None:
    upstream = remembering_upstream(window=WINDOW)
    gate = Gate()
    held_notes(upstream, gate)
    async with upstream.running(), watched(upstream.url, keepalive_seconds=0.01) as proxy:
        asking = asyncio.create_task(proxy.send(session().body()))
        await upstream.until(lambda u: bool(u.notes))
        streaming = asyncio.create_task(proxy.send(session("bob").body(stream=True)))
        await is_beating(proxy)
        assert not asking.done()
        gate.open()
        got = await asking
        await streaming
    assert (got.status, got.outcome, got.headers["content-type"]) == (200, "compacted", "application/json")


async def is_beating(proxy: Watched) -> None:
    """Wait until some client was told that we live: then another's interval is over as well."""
    while not proxy.counted("proxy_keepalives_total"):
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("status", [400, 503])
async def test_requests_that_wait_for_no_notes_keep_the_upstreams_own_status(status: int) -> None:
    """However long the upstream takes: a queue is not notes."""
    upstream = remembering_upstream(window=WINDOW, slots=2)
    gate = Gate()
    plain = AgentSession(name="bob").step(2).body(stream=True)

    def script(seen: Recorded) -> Answer:
        refusal = error(status, "no")
        held = Answer(status=status, body=refusal.body, before=gate)
        return Answer(text=GOOD, before=gate) if upstream.is_notes(seen) else held

    upstream.script = script
    async with upstream.running(), watched(upstream.url, keepalive_seconds=0.01) as proxy:
        asking = asyncio.create_task(proxy.send(plain))
        await upstream.until(lambda u: bool(u.turns))
        await asyncio.wait([asking], timeout=0.1)
        assert proxy.counted("proxy_keepalives_total") == 0
        gate.open()
        got = await asking
    assert got.status == status


# Once a 200 is out


class Passing:
    """The agent's own request fails as many times as there are plays."""

    def __init__(self, good: ScriptedUpstream, plays: list[list[Step]]) -> None:
        self._good = good
        self._plays = list(plays)
        self.turns = 0
        self.upstream = RawUpstream(script=self._script, behind=good.url)

    def _script(self, seen: Recorded) -> list[Step] | None:
        if not seen.is_chat or self._good.is_notes(seen):
            return None
        self.turns += 1
        return self._plays.pop(0) if self._plays else None


async def after_a_beat(play: Passing, gate: Gate) -> tuple[bytes, bool, Watched]:
    """What a streaming client gets that has heard a beat before its own request went up."""
    async with (
        play.upstream.running() as upstream,
        watched(upstream.url, keepalive_seconds=SOON) as proxy,
        request(proxy, session().body(stream=True)) as sent,
    ):
        got = await read(await sent.answer(), after_beats(1, gate))
        assert got.body.startswith(BEAT)
        return got.body.replace(BEAT, b""), got.is_whole, proxy


@pytest.mark.parametrize(
    ("plays", "turns"),
    [
        pytest.param([[Send(wire.status(429, retry_after="0"))]] * 2, 3, id="429"),
        pytest.param([[Send(wire.status(503, retry_after="0.01"))]], 2, id="503"),
        # A connection that closes without an answer is replaced once by the transport already.
        pytest.param([[Reset()], [Reset()]], 3, id="no answer"),
    ],
)
async def test_the_proxy_tries_again_where_the_client_cannot(plays: list[list[Step]], turns: int) -> None:
    good = remembering_upstream(window=WINDOW)
    gate = Gate()
    held_notes(good, gate)
    async with good.running():
        play = Passing(good, plays)
        body, is_whole, _ = await after_a_beat(play, gate)
    assert play.turns == turns
    assert is_whole
    assert b'"error"' not in body
    assert body.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize(
    ("steps", "status", "turns"),
    [
        pytest.param([Send(wire.status(429, retry_after="0"))], 429, 5, id="429 to the last"),
        pytest.param([Send(wire.status(401))], 401, 1, id="401, which does not pass"),
        pytest.param([Send(wire.html(502))], 502, 1, id="a gateway's page"),
    ],
)
async def test_what_does_not_pass_is_told_as_an_event(steps: list[Step], status: int, turns: int) -> None:
    good = remembering_upstream(window=WINDOW)
    gate = Gate()
    held_notes(good, gate)
    async with good.running():
        play = Passing(good, [steps] * 9)
        body, _, _ = await after_a_beat(play, gate)
    assert play.turns == turns
    event, done, _ = body.split(b"\n\n")
    assert event.startswith(b'data: {"error":')
    assert f"the upstream answered {status}".encode() in event
    assert done == b"data: [DONE]"


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        pytest.param("7", 7.0, id="seconds"),
        pytest.param("0.5", 0.5, id="a fraction"),
        pytest.param("86400", 60.0, id="a day"),
        pytest.param("-3", 0.0, id="less than nothing"),
        pytest.param("nan", 0.0, id="no number"),
        pytest.param("Thu, 01 Jan 1970 00:01:05 GMT", 5.0, id="a date"),
        pytest.param("Thu, 01 Jan 1970 00:00:05 GMT", 0.0, id="a date that is past"),
        pytest.param("", 1.0, id="nothing"),
        pytest.param("soon", 1.0, id="nonsense"),
    ],
)
def test_retry_after(said: str, seconds: float) -> None:
    assert retry_after_seconds(said, 60.0) == seconds


# Clients that leave


@pytest.mark.parametrize("stream", [True, False], ids=["streaming", "not streaming"])
@pytest.mark.parametrize("leave", [RawRequest.close, RawRequest.reset], ids=["closed", "reset"])
async def test_notes_end_with_the_client_that_wanted_them(
    stream: bool, leave: Callable[[RawRequest], None]
) -> None:
    upstream = remembering_upstream(window=WINDOW)
    held_notes(upstream, Gate())
    body = session().body(stream=stream)
    async with upstream.running(), watched(upstream.url, keepalive_seconds=SOON) as proxy:
        async with request(proxy, body) as sent:
            await upstream.until(lambda u: bool(u.notes))
            leave(sent)
            await upstream.until(lambda u: u.notes[0].is_done)
        assert upstream.notes[0].is_cancelled
        again = await proxy.send(body)
        assert await proxy.stored() == 1, "the failure, and nothing else"
    [failed] = proxy.events("context.compaction_failed")
    assert (failed["reason"], failed["retry_after_turns"]) == ("abandoned", 3)
    assert proxy.counted("context_compaction_failed_total", reason="abandoned") == 1
    assert (again.status, again.outcome) == (200, "none")
    assert len(upstream.notes) == 1
    assert upstream.turns[0].json == body


async def test_notes_that_another_waits_for_go_on() -> None:
    upstream = remembering_upstream(window=WINDOW)
    gate = Gate()
    held_notes(upstream, gate)
    body = session().body()
    async with upstream.running(), watched(upstream.url) as proxy:
        async with request(proxy, body) as first:
            await upstream.until(lambda u: bool(u.notes))
            second = asyncio.create_task(proxy.send(body))
            await are_waiting(proxy, 2)
            first.reset()
            await are_in_flight(proxy, 1)
        gate.open()
        got = await second
    assert (got.status, got.outcome) == (200, "compacted")
    assert [note.is_cancelled for note in upstream.notes] == [False]
    assert proxy.events("context.compaction_failed") == []


async def are_waiting(proxy: Watched, number: int) -> None:
    """Wait until so many requests wait for notes."""
    making = proxy.proxy.services.compactor._compaction._making
    while sum(work.waiters for work in making._works.values()) != number:
        await asyncio.sleep(0.01)


async def are_in_flight(proxy: Watched, number: int) -> None:
    while proxy.counted("proxy_in_flight_requests") != number:
        await asyncio.sleep(0.01)


async def test_the_same_conversation_asked_again_shares_its_notes() -> None:
    upstream = remembering_upstream(window=WINDOW, slots=4)
    gate = Gate()
    held_notes(upstream, gate)
    bodies = [session().body(stream=i % 2 == 0) for i in range(5)]
    async with upstream.running(), watched(upstream.url) as proxy:
        asking = [asyncio.create_task(proxy.send(body)) for body in bodies]
        await are_waiting(proxy, 5)
        gate.open()
        got = [await one for one in asking]
    assert {(g.status, g.outcome) for g in got} == {(200, "compacted")}
    assert len(upstream.notes) == 1
    assert len(upstream.turns) == 5
    assert len({repr(turn.messages) for turn in upstream.turns}) == 1
    assert len(proxy.events("context.compacted")) == 1


async def test_who_comes_while_abandoned_notes_end_does_not_join_them() -> None:
    upstream = remembering_upstream(window=WINDOW)
    gate = Gate()
    held_notes(upstream, gate)
    body = session().body()
    async with upstream.running(), watched(upstream.url) as proxy, request(proxy, body) as sent:
        await upstream.until(lambda u: bool(u.notes))
        sent.reset()
        await are_in_flight(proxy, 0)
        got = await proxy.send(body)
    assert (got.status, got.outcome) == (200, "none")
    assert len(upstream.notes) == 1


# A single slot


@pytest.mark.parametrize("agents", [1, 2, 3])
async def test_with_one_slot_notes_and_own_calls_are_never_in_flight_together(agents: int) -> None:
    upstream = remembering_upstream(window=WINDOW, slots=1)
    together: list[int] = []

    def script(seen: Recorded) -> Answer | None:
        under_way = [r for r in upstream.chats if not r.is_done]
        if any(upstream.is_notes(r) for r in under_way):
            together.append(len(under_way))
        return Answer(text=GOOD) if upstream.is_notes(seen) else None

    upstream.script = script
    async with upstream.running(), watched(upstream.url) as proxy:

        async def work(name: str) -> list[int]:
            alice = session(name)
            return [(await proxy.send(alice.step().body(stream=True))).status for _ in range(12)]

        statuses = await asyncio.gather(*(work(name) for name in ("alice", "bob", "carol")[:agents]))
    assert {status for of_one in statuses for status in of_one} == {200}
    assert len(upstream.notes) >= agents
    assert set(together) == {1}


async def test_with_one_slot_own_calls_wait_for_notes_under_way() -> None:
    upstream = remembering_upstream(window=WINDOW, slots=1)
    gate = Gate()
    held_notes(upstream, gate)
    async with upstream.running(), watched(upstream.url) as proxy:
        alice = asyncio.create_task(proxy.send(session().body()))
        await upstream.until(lambda u: bool(u.notes))
        bob = asyncio.create_task(proxy.send(AgentSession(name="bob").step(2).body()))
        await are_in_flight(proxy, 2)
        await asyncio.wait([bob], timeout=0.1)
        assert not upstream.turns
        gate.open()
        got = [await alice, await bob]
    assert [g.status for g in got] == [200, 200]


async def test_with_several_slots_nobody_waits_for_anothers_notes() -> None:
    upstream = remembering_upstream(window=WINDOW, slots=2)
    gate = Gate()
    held_notes(upstream, gate)
    async with upstream.running(), watched(upstream.url) as proxy:
        alice = asyncio.create_task(proxy.send(session().body()))
        await upstream.until(lambda u: bool(u.notes))
        bob = await proxy.send(AgentSession(name="bob").step(2).body())
        assert not alice.done()
        gate.open()
        got = await alice
    assert (bob.status, got.outcome) == (200, "compacted")
