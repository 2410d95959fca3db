"""
The prompt that a compaction leads to is processed while the agent runs its tools.

Only where the next request is expected to need it: another one would find its own prompt gone.
"""

import asyncio
import json
from typing import Any

import pytest

from tests.support.agent_sessions import AgentSession
from tests.support.ahead import Working, limit_of, working
from tests.support.answers import Answer
from tests.support.discovery import Server
from tests.support.formats import FORMATS, Format
from tests.support.gate import Gate
from tests.support.proxied import extends, wire
from tests.support.raw_client import ask
from tests.support.recorded import Recorded

EACH = pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
STREAMING = pytest.mark.parametrize("stream", [True, False], ids=["streaming", "not streaming"])
_MOST_TURNS = 10
PREWARM: dict[str, Any] = {"prewarm": True}


def play_prewarms(at: Working, answer: Answer) -> None:
    """What a request for one token gets."""
    ordinary = at.script

    def script(request: Recorded) -> Answer | None:
        return answer if limit_of(request) == 1 else ordinary(request)

    at.upstream.script = script


async def until_prewarmed(at: Working) -> Recorded:
    """Go on, with time for everything, until a prompt was processed ahead; the request for it."""
    for _ in range(_MOST_TURNS):
        await at.ask()
        await at.idle()
        at.session.step()
        if at.prewarms:
            return at.prewarms[0]
    raise AssertionError("nothing was processed ahead")


async def until_prewarming(at: Working) -> Recorded:
    """The same where its answer is held back: it is under way now."""
    await at.until_noted()
    while at.share <= 0.56:
        at.session.step()
        await at.ask()
    await at.upstream.until(lambda _: bool(at.prewarms))
    return at.prewarms[0]


async def test_the_first_request_after_a_compaction_processes_only_what_is_new() -> None:
    async with working(**PREWARM) as at:
        prewarm = await until_prewarmed(at)
        got = await at.ask()
        assert got.outcome == "compacted"
        first = at.asked[-1]
        assert prewarm.numbers is not None and first.numbers is not None
        # The answer to the last request, and what its tools said; a bit for the end of the prompt.
        new = first.numbers.prompt - prewarm.numbers.prompt
        assert 0 < new < 200
        assert first.numbers.prompt - first.numbers.cached <= new + 8
        assert at.proxy.counted("context_prewarms_total", outcome="done") == 1
        assert at.proxy.counted("context_prewarm_prompt_tokens_total") == prewarm.numbers.prompt


async def test_it_is_the_view_of_the_request_just_answered_and_nothing_of_the_future() -> None:
    async with working(**PREWARM) as at:
        prewarm = await until_prewarmed(at)
        answered = at.asked[-1]
        assert prewarm.json["max_tokens"] == 1
        assert prewarm.json["stream"] is False
        assert prewarm.json["tools"] == answered.json["tools"]
        assert prewarm.messages[-1] == answered.messages[-1]
        assert "The agent went through these" in prewarm.messages[1]["content"]
        await at.ask()
        assert extends(wire(at.asked[-1].json), wire({"messages": prewarm.messages}))


async def test_none_is_sent_while_the_next_request_is_not_expected_over_compact_at() -> None:
    async with working(**PREWARM) as at:
        await at.until_noted()
        assert at.share < 0.55
        assert at.prewarms == []


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"prewarm": False}, id="switched off"),
        pytest.param({"server": Server.VLLM}, id="not on another server than llama.cpp"),
    ],
)
async def test_none_is_sent(changes: dict[str, Any]) -> None:
    async with working(**PREWARM | changes) as at:
        await at.until_noted()
        await at.until_over()
        await at.idle()
        assert at.prewarms == []


async def test_it_holds_up_no_request() -> None:
    async with working(**PREWARM) as at:
        play_prewarms(at, Answer(text="I", before=Gate()))
        prewarm = await until_prewarming(at)
        at.session.step()
        got = await at.ask()
        assert got.outcome == "compacted"
        assert prewarm.is_cancelled
        assert at.proxy.counted("context_prewarms_total", outcome="aborted") == 1
        # The notes were not wasted.
        assert at.fate("used") == 1
        assert at.fate("aborted") == 0


async def test_it_holds_up_no_request_of_another_conversation() -> None:
    async with working(**PREWARM) as at:
        play_prewarms(at, Answer(text="I", before=Gate()))
        prewarm = await until_prewarming(at)
        await at.ask(AgentSession(name="bob", task="Something else."))
        assert prewarm.is_cancelled


async def test_on_two_slots_its_own_conversation_takes_its_slot() -> None:
    async with working(slots=2, **PREWARM) as at:
        play_prewarms(at, Answer(text="I", before=Gate()))
        prewarm = await until_prewarming(at)
        at.session.step()
        await at.ask()
        await at.upstream.until(lambda _: prewarm.is_done)
        assert prewarm.is_cancelled


async def test_stopping_the_proxy_ends_it() -> None:
    async with working(**PREWARM) as at:
        play_prewarms(at, Answer(text="I", before=Gate()))
        prewarm = await until_prewarming(at)
        await at.proxy.proxy.close()
        await at.upstream.until(lambda _: prewarm.is_done)
        assert prewarm.is_cancelled


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(Answer(status=500, body={"error": {"message": "no"}}), id="refused"),
        pytest.param(Answer(body=b"\xff no JSON"), id="no JSON"),
    ],
)
async def test_one_that_goes_wrong_is_nobodys_error(answer: Answer) -> None:
    async with working(**PREWARM) as at:
        play_prewarms(at, answer)
        await until_prewarmed(at)
        assert (await at.ask()).outcome == "compacted"
        assert at.proxy.counted("context_faults_total") == 0
        failed = at.proxy.counted("context_prewarms_total", outcome="failed")
        assert failed == (answer.status != 200)


async def test_none_is_sent_for_a_request_that_waits_for_the_notes() -> None:
    async with working(compact_ahead_at=0.55, **PREWARM) as at:
        gate = Gate()
        at.notes = lambda _: Answer(text="The agent read the parts of the shop.", before=gate)
        while not at.upstream.notes:
            at.session.step()
            await at.ask()
            if at.share > 0.55:
                await at.upstream.until(lambda upstream: bool(upstream.notes))
        at.session.step()
        asking = asyncio.create_task(at.ask())
        board = at.proxy.proxy.board
        changed = asyncio.Event()
        board.on_change = changed.set
        while not any(summary.is_noting for summary in board.summaries()):
            changed.clear()
            await changed.wait()
        gate.open()
        assert (await asking).outcome == "compacted"
        assert at.prewarms == []


@EACH
@STREAMING
async def test_notes_and_prewarms_are_the_same_in_every_format(form: Format, stream: bool) -> None:
    async with working(turns=0, **PREWARM) as at:
        # A turn takes nearly a tenth of the budget, so that none leads from below 0.5 to above 0.6.
        at.session.result_words = 165
        outcomes: list[str] = []
        for _ in range(12):
            body = at.session.body(max_tokens=1024, stream=stream)
            answer, _ = await ask(
                at.proxy.url,
                form.path,
                body=form.wire(body),
                headers=[("Content-Type", "application/json")],
            )
            assert answer.status == 200
            outcomes.append(answer.header("x-compaction") or "")
            await at.idle()
            at.session.step()
            if outcomes[-1] == "compacted":
                break
        assert set(outcomes[:-1]) == {"none"}
        assert outcomes[-1] == "compacted"
        assert len(at.upstream.notes) == 1
        assert [event["trigger"] for event in at.proxy.events("context.compacted")] == ["ahead"]
        [prewarm] = at.prewarms
        first = at.asked[-1]
        assert prewarm.format == form.path.split("?")[0]
        assert form.slices(first.body)[: len(prewarm.messages)] == form.slices(prewarm.body)
        assert first.numbers is not None
        assert first.numbers.prompt - first.numbers.cached < 400
        assert json.loads(prewarm.body)["stream"] is False
