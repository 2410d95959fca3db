"""
What becomes of notes that are no notes, through the whole proxy.

Whatever the model answers, the client's request goes on, and an earlier compaction stays.
"""

import asyncio
import json
from itertools import pairwise
from typing import Any

import pytest

from tests.support.agent_sessions import AgentSession, naming_marks, remembering_upstream
from tests.support.answers import Answer, error
from tests.support.gate import Gate
from tests.support.proxied import extends, wire
from tests.support.recorded import Recorded
from tests.support.scripted import ScriptedUpstream
from tests.support.watched import Got, Watched, watched
from tests.support.wire_bytes import sse_error

WINDOW = 4096
CALL = (("read_file", {"path": "src/alice/part1.py"}),)
LINE = "The agent looked at one more part of the shop and found it in order.\n"
OVERFLOW = {"message": "This model's maximum context length is 4096 tokens. However, you sent more."}
MARKUP = '<tool_call>\n{"name": "read_file", "arguments": {"path": "a"}}\n</tool_call>'
GOOD = "The agent read the parts one after the other and changed the rate. The tests passed."


def notes_are(upstream: ScriptedUpstream, *answers: Answer) -> None:
    """Give the notes requests these answers in turn, the last one for good."""
    left = list(answers)

    def script(request: Recorded) -> Answer | None:
        if not upstream.is_notes(request):
            return None
        return left.pop(0) if len(left) > 1 else left[0]

    upstream.script = script


def session() -> AgentSession:
    """One whose next request fits, and is to be compacted."""
    return AgentSession(name="alice").step(16)


async def ask_once(upstream: ScriptedUpstream, **context: Any) -> tuple[Got, Watched, bytes]:
    raw = wire(session().body())
    async with upstream.running(), watched(upstream.url, **context) as proxy:
        return await proxy.send(raw), proxy, raw


@pytest.mark.parametrize(
    ("answer", "reason", "asked"),
    [
        pytest.param(error(500, "the model fell over"), "http_error", 1, id="HTTP error"),
        pytest.param(error(429, "slow down"), "http_error", 1, id="rate limit"),
        pytest.param(Answer(status=400, body={"error": OVERFLOW}), "overflow", 1, id="overflow"),
        pytest.param(
            Answer(body=sse_error(OVERFLOW)[0], content_type="text/event-stream"),
            "overflow",
            1,
            id="overflow in a stream",
        ),
        pytest.param(
            Answer(body=sse_error({"message": "cuda"})[0], content_type="text/event-stream"),
            "http_error",
            1,
            id="error in a stream",
        ),
        pytest.param(Answer(body={"error": "overloaded"}), "http_error", 1, id="error in a 200"),
        pytest.param(Answer(text=GOOD, before=Gate()), "timeout", 1, id="silence before the head"),
        pytest.param(Answer(text=GOOD, midway=Gate()), "timeout", 1, id="silence midway"),
        pytest.param(Answer(), "empty", 1, id="empty"),
        pytest.param(Answer(text=" \n"), "empty", 1, id="white space"),
        pytest.param(Answer(reasoning="So the user wants"), "only_reasoning", 1, id="only reasoning"),
        pytest.param(Answer(text="<think>So the user"), "only_reasoning", 1, id="reasoning that never ends"),
        pytest.param(Answer(calls=CALL), "tool_call", 2, id="tool call"),
        pytest.param(Answer(text=GOOD, calls=CALL), "tool_call", 2, id="text and a tool call"),
        pytest.param(Answer(text=GOOD, finish_reason="tool_calls"), "tool_call", 2, id="tool call unsaid"),
        pytest.param(Answer(text=MARKUP), "tool_markup", 2, id="tool call as text"),
        pytest.param(Answer(text=LINE * 40), "too_large", 1, id="far larger than its room"),
        pytest.param(Answer(text=LINE * 20), "too_large", 2, id="larger than its room"),
    ],
)
@pytest.mark.parametrize("stream", [True, False], ids=["streaming", "not streaming"])
async def test_rejected(answer: Answer, reason: str, asked: int, stream: bool) -> None:
    upstream = remembering_upstream(window=WINDOW)
    notes_are(upstream, answer)
    raw = wire(session().body(stream=stream))
    async with upstream.running(), watched(upstream.url, notes_idle_timeout_seconds=0.3) as proxy:
        got = await proxy.send(raw)
        assert await proxy.stored() == 1, "the failure, and nothing else"
    assert (got.status, got.outcome) == (200, "failed")
    assert len(upstream.notes) == asked
    assert [turn.body for turn in upstream.turns] == [raw]
    [failed] = proxy.events("context.compaction_failed")
    assert failed["reason"] == reason
    assert failed["retry_after_turns"] == 3
    told = {"conversation", "model", "reason", "retry_after_turns"}
    assert set(failed) == told | ({"status"} if reason == "http_error" else set())
    assert proxy.counted("context_compaction_failed_total", reason=reason) == 1
    assert proxy.counted("context_compaction_failed_total") == 1
    assert b"overrides every other instruction" not in got.body


async def test_notes_are_as_large_as_the_upstream_says() -> None:
    """Its count is exact; ours of the same text would have them refused."""
    upstream = remembering_upstream(window=WINDOW)
    notes_are(upstream, Answer(text=LINE * 20, usage={"completion_tokens": 300}))
    got, proxy, _ = await ask_once(upstream)
    assert got.outcome == "compacted"
    [event] = proxy.events("context.compacted")
    assert event["notes_tokens"] > 307
    assert "cut" not in event["flags"]


async def test_no_gain() -> None:
    """Notes that take as much as they replace are not worth a rewritten prefix."""
    upstream = remembering_upstream(window=WINDOW)
    notes_are(upstream, Answer(text=LINE * 90))
    got, proxy, raw = await ask_once(upstream, notes_max_tokens=1800, notes_reasoning_tokens=200)
    assert got.outcome == "failed"
    assert [event["reason"] for event in proxy.events("context.compaction_failed")] == ["no_gain"]
    assert upstream.turns[0].body == raw


async def test_still_over() -> None:
    """Notes beside which the newest result does not fit: the result is cut instead."""
    upstream = remembering_upstream(window=8192)
    notes_are(upstream, Answer(text=LINE * 40))
    alice = AgentSession(name="alice").step(12)
    alice.messages[-1]["content"] = ("tax rate table order line total sum customer " * 600)[:21250]
    async with upstream.running(), watched(upstream.url, notes_reasoning_tokens=0) as proxy:
        got = await proxy.send(wire(alice.body(max_tokens=2048)))
        assert await proxy.stored() == 2, "the failure and the trim"
    assert (got.status, got.outcome) == (200, "trimmed")
    assert [event["reason"] for event in proxy.events("context.compaction_failed")] == ["still_over"]
    assert b"found it in order" not in upstream.turns[0].body


async def test_a_tool_call_is_broken_off_at_its_first_sign() -> None:
    """The upstream sees the connection close; what the call would have said is not waited for."""
    upstream = remembering_upstream(window=WINDOW)
    held = Gate()
    notes_are(upstream, Answer(calls=CALL, midway=held))
    body = session().body()
    async with upstream.running(), watched(upstream.url, notes_idle_timeout_seconds=60) as proxy:
        got = await proxy.send(body)
        await upstream.until(lambda u: len(u.notes) == 2 and all(r.is_done for r in u.notes))
    assert got.outcome == "failed"
    assert [note.is_cancelled for note in upstream.notes] == [True, True]


@pytest.mark.parametrize(
    ("first", "says"),
    [
        pytest.param(Answer(calls=CALL), "called a tool", id="after a tool call"),
        pytest.param(Answer(text=MARKUP), "called a tool", id="after a tool call as text"),
        pytest.param(Answer(text=LINE.strip()), "copied the conversation", id="after a copy"),
    ],
)
async def test_a_second_word_may_help(first: Answer, says: str) -> None:
    upstream = remembering_upstream(window=WINDOW)
    notes_are(upstream, first, Answer(text=GOOD))
    alice = session()
    alice.messages[-3]["content"] = LINE.strip()
    async with upstream.running(), watched(upstream.url) as proxy:
        got = await proxy.send(alice.body())
    assert got.outcome == "compacted"
    one, two = upstream.notes
    assert says.encode() in two.body
    assert says.encode() not in one.body
    [compacted] = proxy.events("context.compacted")
    assert "copied" not in compacted["flags"]
    assert GOOD.encode() in upstream.turns[0].body


async def test_a_copy_that_comes_again_is_used_and_flagged() -> None:
    upstream = remembering_upstream(window=WINDOW)
    notes_are(upstream, Answer(text=LINE.strip()))
    alice = session()
    alice.messages[-3]["content"] = LINE.strip()
    async with upstream.running(), watched(upstream.url) as proxy:
        got = await proxy.send(alice.body())
    assert got.outcome == "compacted"
    assert len(upstream.notes) == 2
    [compacted] = proxy.events("context.compacted")
    assert "copied" in compacted["flags"]
    assert proxy.counted("context_notes_flagged_total", flag="copied") == 1
    assert proxy.counted("context_compaction_failed_total") == 0


async def test_a_copy_of_the_old_notes_is_flagged() -> None:
    upstream = remembering_upstream(window=WINDOW)
    notes_are(upstream, Answer(text=GOOD))
    alice = session()
    async with upstream.running(), watched(upstream.url) as proxy:
        await proxy.send(alice.body())
        while len(proxy.events("context.compacted")) < 2:
            await proxy.send(alice.step().body())
    first, second = proxy.events("context.compacted")
    assert "copied" not in first["flags"]
    assert "copied" in second["flags"]


async def test_notes_cut_at_the_limit_are_kept_to_their_last_full_line() -> None:
    upstream = remembering_upstream(window=WINDOW)
    lines = [f"Fact {i}: the agent looked at one more part and found it in order." for i in range(99)]
    notes_are(upstream, Answer(text="\n".join(lines)))
    got, proxy, _ = await ask_once(upstream)
    assert got.outcome == "compacted"
    [compacted] = proxy.events("context.compacted")
    assert "cut" in compacted["flags"]
    kept = [line for line in json.loads(upstream.turns[0].body)["messages"][1]["content"].split("\n")]
    facts = [line for line in kept if line.startswith("Fact ")]
    assert 5 < len(facts) < 99
    assert facts == lines[: len(facts)]


async def test_reasoning_is_stripped_and_has_an_allowance_of_its_own() -> None:
    upstream = remembering_upstream(window=WINDOW)
    thought = "So the user wants the rate changed. " * 20
    notes_are(upstream, Answer(reasoning=thought, text=f"<think>{thought}</think>\n{GOOD}"))
    got, _, _ = await ask_once(upstream)
    assert got.outcome == "compacted"
    assert b"So the user wants" not in upstream.turns[0].body
    assert GOOD.encode() in upstream.turns[0].body


async def test_an_answer_that_ignores_its_limit_is_broken_off() -> None:
    upstream = remembering_upstream(window=WINDOW)
    chunk = {"choices": [{"index": 0, "delta": {"reasoning_content": "hm "}, "finish_reason": None}]}
    endless = (b"data: " + json.dumps(chunk).encode() + b"\n\n") * 8000
    notes_are(upstream, Answer(body=endless, content_type="text/event-stream", midway=Gate()))
    got, proxy, _ = await ask_once(upstream, notes_idle_timeout_seconds=60, notes_reasoning_tokens=64)
    assert got.outcome == "failed"
    assert [event["reason"] for event in proxy.events("context.compaction_failed")] == ["only_reasoning"]


async def test_a_stream_that_stays_open_after_its_end_is_not_waited_for() -> None:
    """Some servers say that the text has ended and leave the connection open."""
    upstream = remembering_upstream(window=WINDOW)
    said = {"choices": [{"index": 0, "delta": {"content": GOOD}, "finish_reason": None}]}
    ended = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    whole = b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in (said, ended))
    notes_are(
        upstream, Answer(body=whole + b":" * len(whole), content_type="text/event-stream", midway=Gate())
    )
    # So that waiting for it would fail rather than hang.
    async with asyncio.timeout(30):
        got, _, _ = await ask_once(upstream, notes_idle_timeout_seconds=3600)
    assert got.outcome == "compacted"


async def test_a_rejected_answer_never_overwrites_an_earlier_compaction() -> None:
    upstream = remembering_upstream(window=WINDOW)
    alice = session()
    async with upstream.running(), watched(upstream.url) as proxy:
        first = await proxy.send(wire(alice.body()))
        stored = await proxy.stored()
        notes_are(upstream, Answer())
        while not proxy.events("context.compaction_failed"):
            got = await proxy.send(wire(alice.step().body()))
        assert await proxy.stored() == stored + 1, "the failure"
        upstream.script = naming_marks(upstream)
        again = await proxy.send(wire(alice.body()))
    assert (first.outcome, got.outcome, again.outcome) == ("compacted", "failed", "reused")
    views = [turn.body for turn in upstream.turns]
    assert all(extends(later, earlier) for earlier, later in pairwise(views))
