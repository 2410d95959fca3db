"""
What ends a run without the proxy does not end it with one: each case on the real llama.cpp.

The windows are small, so that a whole window is processed in a few seconds.
"""

import asyncio
from typing import Any

import pytest

from tests.real.conftest import Serve
from tests.real.playing import QUICK_NOTES, ShortAgent
from tests.support.llama import Llama
from tests.support.passing import Passed, Passing
from tests.support.proxied import wire
from tests.support.raw_client import RawRequest
from tests.support.watched import CHAT, Got, Watched, watched

pytestmark = pytest.mark.slow

WINDOW = 1024
SHORT = QUICK_NOTES | {"notes_max_tokens": 64}


def grown(session: ShortAgent, llama: Llama, tokens: int) -> ShortAgent:
    """The session after as many turns as take *tokens*."""
    while llama.count(session.body()) < tokens:
        session.step()
    return session


async def send(proxy: Watched, session: ShortAgent, **members: Any) -> Got:
    return await proxy.send(wire(session.body(**members)))


async def test_a_tool_result_of_three_windows(served: Serve) -> None:
    llama = await served(window=WINDOW)
    alice = ShortAgent("alice").step(2)
    whole = "\n".join(f"row {i}: {i * 37 % 101} items, {i * 53 % 997} cents each" for i in range(260))
    alice.messages[-1]["content"] = whole
    assert await asyncio.to_thread(llama.count, alice.body()) > 3 * WINDOW
    relay = Passing(behind=llama.url)
    async with relay.running(), watched(relay.url, **SHORT) as proxy:
        answers = [await send(proxy, alice), await send(proxy, alice.step()), await send(proxy, alice.step())]
    assert [got.status for got in answers] == [200, 200, 200]
    assert [passed.status for passed in relay.completions if passed.status != 200] == []
    first = relay.turns[0].request.messages
    result = first[-1]["content"]
    assert first[:2] == alice.messages[:2], "the brief"
    assert result.startswith(whole[:100]) and result.endswith(whole[-100:])
    assert len(result) < len(whole) / 2
    call = first[-2]["tool_calls"][0]
    assert call["id"] == first[-1]["tool_call_id"]
    # The cut rests: what follows costs what it adds.
    second, third = relay.turns[1:]
    assert third.processed <= 1.1 * (third.prompt - second.prompt)


@pytest.mark.long
async def test_a_session_of_four_windows_arrives_at_an_empty_store(served: Serve) -> None:
    llama = await served(window=WINDOW)
    alice = await asyncio.to_thread(grown, ShortAgent("alice"), llama, 4 * WINDOW)
    relay = Passing(behind=llama.url)
    async with relay.running(), watched(relay.url, **SHORT) as proxy:
        first = await send(proxy, alice)
        steps = len(relay.notes)
        second = await send(proxy, alice.step())
        events = proxy.events("context.compacted")
    assert (first.status, first.outcome) == (200, "compacted")
    assert (second.status, second.outcome) == (200, "reused")
    assert steps >= 3 and len(relay.notes) == steps
    assert [passed.status for passed in relay.completions if passed.status != 200] == []
    assert [event["folded"] for event in events] == [False] + [True] * (len(events) - 1)
    assert proxy.events("context.compaction_failed") == []


@pytest.mark.parametrize(
    ("tokens", "is_notes"),
    [
        pytest.param(900, False, id="the agent's own request is refused"),
        # Over what a compaction was due at in the window that was.
        pytest.param(1200, True, id="the notes request is refused"),
    ],
)
async def test_the_window_is_halved_by_a_restart_in_mid_session(
    served: Serve, tokens: int, is_notes: bool
) -> None:
    llama = await served(window=2 * WINDOW)
    alice = await asyncio.to_thread(grown, ShortAgent("alice"), llama, tokens)
    relay = Passing(behind=llama.url)
    async with relay.running(), watched(relay.url, **SHORT) as proxy:
        before = await send(proxy, alice)
        await served(window=WINDOW)
        after = [await send(proxy, alice.step()) for _ in range(3)]
        failed = proxy.events("context.compaction_failed")
    assert (before.status, before.outcome) == (200, "none"), "it fits the window that was"
    assert [got.status for got in after] == [200, 200, 200]
    refused = [passed for passed in relay.completions if passed.status != 200]
    assert [(p.status, p.is_notes) for p in refused] == [(400, is_notes)], "it taught the window, once"
    assert b"exceed_context_size_error" in refused[0].answer
    assert after[0].outcome == "compacted"
    assert failed == []
    budgets = [got.headers["x-context-tokens"].partition("/")[2] for got in after]
    assert budgets == [str(WINDOW - 1)] * 3


@pytest.mark.parametrize("stream", [True, False], ids=["streaming", "not streaming"])
async def test_the_client_is_cut_off_while_notes_are_written(served: Serve, stream: bool) -> None:
    llama = await served(window=WINDOW)
    alice = await asyncio.to_thread(grown, ShortAgent("alice"), llama, int(0.65 * WINDOW))
    relay = Passing(behind=llama.url)
    async with relay.running(), watched(relay.url, **SHORT | {"notes_max_tokens": 256}) as proxy:
        body = wire(alice.body(stream=stream))
        headers = [("Content-Type", "application/json")]
        async with RawRequest(proxy.url, CHAT, body=body, headers=headers) as request:
            await relay.until(lambda r: bool(r.turns) or any(has_begun(notes) for notes in r.notes))
            assert not relay.turns, "no notes were asked for"
            request.close()
            await relay.until(lambda r: r.notes[0].request.is_done)
        # Not asked more often: then the server would not look for clients that have left.
        await asyncio.sleep(1)
        busy = await asyncio.to_thread(llama.is_busy)
        [notes] = relay.notes
        again = await send(proxy, alice, stream=stream)
    assert notes.request.is_cancelled, "it was not written to its end"
    assert not busy, "a second after its client left the server still writes"
    assert relay.turns[0].body == body, "nothing went upstream for who had left"
    assert [event["reason"] for event in proxy.events("context.compaction_failed")] == ["abandoned"]
    assert again.status == 200 and len(relay.notes) == 1


def has_begun(notes: Passed) -> bool:
    """Whether a word of the notes has come."""
    return notes.answer_body.count(b'"content":"') > 1


async def test_two_agents_share_the_one_slot(served: Serve) -> None:
    llama = await served(window=WINDOW)
    agents = [
        await asyncio.to_thread(grown, ShortAgent(name), llama, WINDOW // 2) for name in ("alice", "bob")
    ]
    beside: list[tuple[Passed, Passed]] = []

    def meet(passed: Passed) -> None:
        under_way = [p for p in relay.completions if p is not passed and not p.request.is_done]
        if passed.is_completion:
            beside.extend((passed, other) for other in under_way if passed.is_notes or other.is_notes)

    relay = Passing(behind=llama.url, on_pass=meet)

    async def work(proxy: Watched, session: ShortAgent) -> list[Got]:
        return [await send(proxy, session.step()) for _ in range(3)]

    async with relay.running(), watched(relay.url, **SHORT) as proxy:
        answers = await asyncio.gather(*(work(proxy, session) for session in agents))
    assert [got.status for got in [*answers[0], *answers[1]]] == [200] * 6
    assert [passed.status for passed in relay.completions if passed.status != 200] == []
    assert all(any(got.outcome == "compacted" for got in each) for each in answers)
    assert beside == [], "notes while another request was under way"


async def test_a_full_shared_pool_is_asked_again_alone_and_teaches_nothing(served: Serve) -> None:
    llama = await served(window=WINDOW, parallel=2, unified=True)
    agents = [
        await asyncio.to_thread(grown, ShortAgent(name), llama, int(0.7 * WINDOW))
        for name in ("alice", "bob")
    ]
    relay = Passing(behind=llama.url)
    async with relay.running(), watched(relay.url, compact_at=0.0, **SHORT) as proxy:
        # Long enough answers that the first is still being written when the second comes to its end.
        answers = await asyncio.gather(*(send(proxy, session, max_tokens=32) for session in agents))
        learned = proxy.events("context.window_learned")
        recovered = proxy.counted("context_overflow_answers_total", outcome="recovered")
        later = await send(proxy, agents[0].step())
    refused = [passed for passed in relay.turns if passed.status != 200]
    assert [got.status for got in answers] == [200, 200]
    assert refused, "the pool was not full"
    assert all(p.status == 500 and b"Context size has been exceeded." in p.answer for p in refused)
    assert recovered == len(refused)
    sent = [passed.body for passed in relay.turns]
    assert all(sent.count(passed.body) == 2 for passed in refused), "asked again as it was"
    assert learned == []
    assert later.headers["x-context-tokens"].endswith(f"/{WINDOW - 1}")
