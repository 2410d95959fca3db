"""
What a client gets, and what is logged, counted and stored, when the upstream fails.

Each fault is played on the request for notes and on the client's own, for clients that stream
and that do not.
"""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tests.support import wire_bytes as wire
from tests.support.agent_sessions import AgentSession, remembering_upstream
from tests.support.gate import Gate
from tests.support.raw_upstream import Close, RawUpstream, Reset, Send, Stall, Step, Wait
from tests.support.recorded import Recorded
from tests.support.scripted import ScriptedUpstream
from tests.support.watched import Got, Watched, watched

WINDOW = 4096
IDLE_SECONDS = 0.3
SAID = "The agent read the parts one after the other and changed the rate. The tests passed."
EVENTS = wire.sse(SAID)
HALF_EVENTS = b"".join(EVENTS[:3])
WHOLE = wire.completion(SAID)
HALF = WHOLE[: len(WHOLE) // 2]
STREAMING = pytest.mark.parametrize("stream", [True, False], ids=["streaming", "not streaming"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """
    One way in which an upstream answers badly, or oddly.

    Attributes:
        steps: What it does; the gate is opened once the client has everything before it.
        status: That the client gets; that of an error of ours where `code` is set.
        body: What the client gets of the upstream's bytes.
        code: Of the error that the proxy makes itself.
        breaks: Whether the connection to the client breaks off.
        event: Whether an error event of the proxy follows `body`.
        reason: Why notes that are answered so come to nothing; empty where they are good.
    """

    steps: Callable[[Gate], list[Step]]
    status: int = 200
    body: bytes = b""
    code: str = ""
    breaks: bool = False
    event: bool = False
    reason: str = ""


def plays(*steps: Step) -> Callable[[Gate], list[Step]]:
    return lambda _: list(steps)


def breaking(sent: list[bytes], last: Step) -> Callable[[Gate], list[Step]]:
    """Send, have the client read it, and break off."""
    return lambda gate: [*(Send(piece) for piece in sent), Wait(gate), last]


def refusal(code: int, reason: str = "http_error", retry_after: str | None = None) -> Fault:
    whole = wire.status(code, retry_after=retry_after)
    return Fault(steps=plays(Send(whole)), status=code, body=whole.partition(b"\r\n\r\n")[2], reason=reason)


def relayed(pieces: list[bytes]) -> Fault:
    """A stream that is good, if odd."""
    return Fault(steps=plays(*wire.stream(pieces)), body=b"".join(pieces))


def whole_body(data: bytes, reason: str) -> Fault:
    return Fault(steps=plays(Send(data)), body=data.partition(b"\r\n\r\n")[2], reason=reason)


HEAD = wire.response(WHOLE).partition(b"\r\n\r\n")[0] + b"\r\n\r\n"
IN_STREAM = [wire.stream_head(), *map(wire.chunk, EVENTS[:3])]
UNREACHABLE = {"status": 502, "code": "upstream_unreachable", "reason": "unreachable"}
STALLED = {"status": 504, "code": "upstream_stalled", "reason": "timeout"}
BROKEN_BODY = {"body": HALF, "breaks": True}
BROKEN_STREAM = {"body": HALF_EVENTS, "breaks": True, "event": True}

FAULTS = {
    "reset before headers": Fault(steps=plays(Reset()), **UNREACHABLE),
    "closed before headers": Fault(steps=plays(Close()), **UNREACHABLE),
    "closed in the headers": Fault(steps=plays(Send(HEAD[:40]), Close()), **UNREACHABLE),
    "no HTTP": Fault(steps=plays(Send(b"SSH-2.0-OpenSSH_9.6\r\n\r\n"), Close()), **UNREACHABLE),
    "reset in mid-body": Fault(steps=breaking([HEAD + HALF], Reset()), **BROKEN_BODY, reason="unreachable"),
    "closed in mid-body": Fault(steps=breaking([HEAD + HALF], Close()), **BROKEN_BODY, reason="unreachable"),
    "reset in mid-stream": Fault(steps=breaking(IN_STREAM, Reset()), **BROKEN_STREAM, reason="unreachable"),
    "closed in mid-stream": Fault(steps=breaking(IN_STREAM, Close()), **BROKEN_STREAM, reason="unreachable"),
    "reset before the first event": Fault(steps=plays(Send(wire.stream_head()), Reset()), **UNREACHABLE),
    "stall before headers": Fault(steps=plays(Stall()), **STALLED),
    "stall in the headers": Fault(steps=plays(Send(HEAD[:40]), Stall()), **STALLED),
    "stall before the body": Fault(steps=plays(Send(HEAD), Stall()), **STALLED),
    "stall in mid-body": Fault(steps=plays(Send(HEAD + HALF), Stall()), **BROKEN_BODY, reason="timeout"),
    "stall before the first event": Fault(steps=plays(Send(wire.stream_head()), Stall()), **STALLED),
    "stall in mid-stream": Fault(
        steps=plays(*map(Send, IN_STREAM), Stall()), **BROKEN_STREAM, reason="timeout"
    ),
    "an error that breaks off": Fault(
        steps=lambda gate: [Send(wire.status(500)[:-20]), Wait(gate), Close()],
        status=500,
        body=wire.status(500).partition(b"\r\n\r\n")[2][:-20],
        breaks=True,
        reason="unreachable",
    ),
    "401": refusal(401),
    "404": refusal(404),
    "408": refusal(408),
    "413": refusal(413),
    "429 with Retry-After": refusal(429, retry_after="7"),
    "500": refusal(500),
    "503": refusal(503),
    "HTML with 200": whole_body(wire.html(), "empty"),
    "HTML with 502": Fault(
        steps=plays(Send(wire.html(502))),
        status=502,
        body=wire.html().partition(b"\r\n\r\n")[2],
        reason="http_error",
    ),
    "truncated JSON": whole_body(wire.truncated_json(SAID), "empty"),
    "nothing at all": whole_body(wire.response(b""), "empty"),
    "length too long": Fault(
        steps=plays(*wire.length_too_long(SAID)), body=WHOLE, breaks=True, reason="unreachable"
    ),
    # What comes after the end of an answer is taken for the next one, and that is no HTTP.
    "length too short": Fault(steps=plays(*wire.length_too_short(SAID)), **UNREACHABLE),
    "a stream without [DONE]": relayed(wire.without_done(EVENTS)),
    "a stream cut at every byte": relayed(wire.at_every_byte(EVENTS)),
    "a stream with CRLF": relayed(wire.with_crlf(EVENTS)),
    "a stream without spaces": relayed(wire.without_space(EVENTS)),
    "a stream with comments": relayed(wire.with_comments(EVENTS)),
    "two events in one chunk": relayed(wire.two_in_one(EVENTS)),
    "all events in one chunk": relayed(wire.in_one_piece(EVENTS)),
    "an answer without a stream": whole_body(wire.response(WHOLE), ""),
}
TABLE = pytest.mark.parametrize("fault", [pytest.param(f, id=name) for name, f in FAULTS.items()])


def over_the_threshold(**members: Any) -> dict[str, Any]:
    """A request that fits, and is to be compacted."""
    return AgentSession(name="alice").step(16).body(**members)


class Play:
    """An upstream that plays one fault on the first request of a kind; all else is good."""

    def __init__(self, good: ScriptedUpstream, fault: Fault, *, on_notes: bool) -> None:
        self._good = good
        self._fault = fault
        self._on_notes = on_notes
        self.gate = Gate()
        self.upstream = RawUpstream(script=self._steps, behind=good.url)

    def _steps(self, request: Recorded) -> list[Step] | None:
        if not request.is_chat or self._good.is_notes(request) != self._on_notes:
            return None
        return self._fault.steps(self.gate)


@TABLE
@STREAMING
async def test_the_clients_own_request_fails_as_it_would_without_the_proxy(
    fault: Fault, stream: bool
) -> None:
    good = remembering_upstream(window=WINDOW)
    async with good.running():
        play = Play(good, fault, on_notes=False)
        short = AgentSession(name="bob").step(2).body(stream=stream)
        async with (
            play.upstream.running() as upstream,
            watched(upstream.url, upstream={"idle_timeout_seconds": IDLE_SECONDS}) as proxy,
        ):
            got = await proxy.send(
                short, lambda body: play.gate.open() if len(body) >= len(fault.body) else None
            )
            await is_counted(proxy, got.status)
            assert await proxy.stored() == 0
    assert got.status == fault.status
    if fault.code:
        assert got.is_whole
        assert got.error["code"] == fault.code
        assert SAID[:20] not in got.error["message"]
        assert [event["code"] for event in proxy.events("request.refused")] == [fault.code]
        return
    added = got.body[len(fault.body) :]
    assert got.body[: len(fault.body)] == fault.body
    assert got.is_whole is not fault.breaks
    if fault.event:
        assert json.loads(added.split(b"\n\n")[0].removeprefix(b"data: "))["error"]["message"]
    else:
        assert added == b""
    assert proxy.names() == []
    assert len(proxy.events("request.refused")) == fault.breaks
    if fault.status == 429:
        assert got.headers["retry-after"] == "7"
    # Whether to try again is the client's to decide.
    assert len([request for request in play.upstream.requests if request.is_chat]) == 1


async def is_counted(proxy: Watched, status: int) -> None:
    """Wait until the request has ended on the proxy's side too, and look at its counter."""
    while proxy.counted("proxy_in_flight_requests"):
        await asyncio.sleep(0)
    assert proxy.counted("proxy_requests_total", endpoint="/chat/completions", status=str(status)) == 1
    assert proxy.counted("context_faults_total") == 0


@TABLE
@STREAMING
async def test_notes_that_fail_leave_the_request_as_it_came(fault: Fault, stream: bool) -> None:
    good = remembering_upstream(window=WINDOW)
    body = over_the_threshold(stream=stream)
    raw = json.dumps(body).encode()
    async with good.running():
        play = Play(good, fault, on_notes=True)
        play.gate.open()
        async with (
            play.upstream.running() as upstream,
            watched(upstream.url, notes_idle_timeout_seconds=IDLE_SECONDS) as proxy,
        ):
            got = await proxy.send(raw)
            again = await proxy.send(raw)
            stored = await proxy.stored()
        asked_for_notes = [r for r in play.upstream.requests if r.is_chat and good.is_notes(r)]
    assert (got.status, again.status) == (200, 200)
    assert is_complete(got, stream)
    if not fault.reason:
        assert got.outcome == "compacted"
        assert again.outcome == "reused"
        assert SAID.encode() in good.turns[0].body
        assert len(proxy.events("context.compacted")) == 1
        assert proxy.counted("context_compacted_total") == 1
        assert proxy.counted("context_compaction_failed_total") == 0
        return
    assert got.outcome == "failed"
    assert [turn.body for turn in good.turns] == [raw, raw]
    failed = proxy.events("context.compaction_failed")
    assert [(event["reason"], event["retry_after_turns"]) for event in failed] == [(fault.reason, 3)]
    assert proxy.names() == ["context.compaction_failed"]
    assert proxy.counted("context_compaction_failed_total", reason=fault.reason) == 1
    assert proxy.counted("context_compaction_failed_total") == 1
    assert stored == 1, "the failure, and nothing else"
    # A connection that closes without an answer is replaced once.
    assert len(asked_for_notes) <= 2


def is_complete(got: Got, stream: bool) -> bool:
    if stream:
        return got.is_whole and got.body.endswith(b"data: [DONE]\n\n")
    return got.is_whole and bool(json.loads(got.body)["choices"])


@STREAMING
async def test_an_upstream_that_is_down_is_told_to_the_client_at_once(stream: bool) -> None:
    async with watched(wire.closed_port()) as proxy:
        got = await proxy.send(over_the_threshold(stream=stream))
    assert (got.status, got.is_whole) == (502, True)
    assert got.error["code"] == "upstream_unreachable"
    assert "is it running" in got.error["message"]
    assert proxy.names() == []


@STREAMING
async def test_an_upstream_that_goes_down_before_the_notes_fails_both(stream: bool) -> None:
    good = remembering_upstream(window=WINDOW)
    async with good.running():
        play = Play(good, Fault(steps=plays(Reset())), on_notes=False)
        async with play.upstream.running() as upstream, watched(upstream.url) as proxy:
            await proxy.proxy.windows.of("scripted", ())
            await stop(play.upstream)
            got = await proxy.send(over_the_threshold(stream=stream))
            stored = await proxy.stored()
    assert got.status == 502
    assert [event["reason"] for event in proxy.events("context.compaction_failed")] == ["unreachable"]
    assert stored == 1


async def stop(upstream: RawUpstream) -> None:
    """Let nobody in any more; the context it runs in ends as usual."""
    upstream.script = lambda _: [Reset()]


async def test_half_an_event_is_not_gone_on_with() -> None:
    good = remembering_upstream(window=WINDOW)
    sent = EVENTS[0] + EVENTS[1][:20]
    fault = Fault(steps=breaking([wire.stream_head(), wire.chunk(sent)], Close()))
    async with good.running():
        play = Play(good, fault, on_notes=False)
        async with play.upstream.running() as upstream, watched(upstream.url) as proxy:
            got = await proxy.send(
                AgentSession(name="bob").step(1).body(stream=True),
                lambda body: play.gate.open() if body == sent else None,
            )
    assert not got.is_whole
    assert got.body == sent


class Faulty:
    """Stands for a part of the proxy that has a fault of its own."""

    def __getattr__(self, name: str) -> Any:
        def fail(*_: Any, **__: Any) -> Any:
            raise RuntimeError(f"a fault in {name}")

        return fail


@pytest.mark.parametrize(
    "part",
    [
        pytest.param("_windows", id="the window"),
        pytest.param("_rewrites", id="what is stored"),
        pytest.param("_looking", id="the view"),
        pytest.param("_compaction", id="compacting"),
    ],
)
@STREAMING
async def test_a_fault_of_the_proxy_itself_leaves_the_request_as_it_came(part: str, stream: bool) -> None:
    good = remembering_upstream(window=WINDOW)
    raw = json.dumps(over_the_threshold(stream=stream)).encode()

    def breaks(proxy: Any) -> None:
        setattr(proxy.services.compactor, part, Faulty())

    async with good.running(), watched(good.url, change=breaks) as proxy:
        got = await proxy.send(raw)
    assert got.status == 200
    assert is_complete(got, stream)
    assert [turn.body for turn in good.turns] == [raw]
    assert proxy.events("compaction.fault")
    assert proxy.counted("context_faults_total") >= 1


async def test_a_fault_while_notes_are_made_counts_as_a_failure_and_cools_down() -> None:
    good = remembering_upstream(window=WINDOW)
    raw = json.dumps(over_the_threshold()).encode()

    def breaks(proxy: Any) -> None:
        proxy.services.compactor._compaction._noting = Faulty()

    async with good.running(), watched(good.url, change=breaks) as proxy:
        got = [await proxy.send(raw), await proxy.send(raw)]
    assert [g.outcome for g in got] == ["failed", "none"]
    assert [turn.body for turn in good.turns] == [raw, raw]
    assert [e["reason"] for e in proxy.events("context.compaction_failed")] == ["fault"]
    assert proxy.counted("context_faults_total") == 1


async def test_a_server_that_does_not_count_when_asked_is_not_asked_every_time() -> None:
    """Each question makes a request wait; estimates serve for a while."""
    good = remembering_upstream(window=WINDOW)
    asked: list[Recorded] = []

    def script(request: Recorded) -> list[Step] | None:
        if not request.path.endswith("/input_tokens"):
            return None
        asked.append(request)
        return [Send(wire.status(500))]

    async with good.running():
        raw = RawUpstream(script=script, behind=good.url)
        async with raw.running(), watched(raw.url) as proxy:
            got = [await proxy.send(AgentSession(name=name).step(15).body()) for name in "abcdefghijkl"]
    assert {g.status for g in got} == {200}
    assert len(asked) == 1
