"""
Notes that are made while the agent runs its tools, and wait for the request that needs them.

A request is over `compact_at` (0.6 of its budget) or is not; notes are made from 0.5 on.
"""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from proxy.asked import Outcome, Prepared
from proxy.config import StoreConfig
from tests.support.agent_sessions import AgentSession, marks
from tests.support.ahead import CALL, WINDOW, Working, same_messages, working
from tests.support.answers import Answer
from tests.support.discovery import Server
from tests.support.gate import Gate
from tests.support.proxied import extends, wire
from tests.support.raw_client import RawRequest, ask
from tests.support.watched import CHAT, watched


def hold_notes(at: Working) -> Gate:
    """Notes do not come until the gate is open."""
    gate = Gate()
    at.notes = lambda request: Answer(text="The agent read the parts of the shop.", before=gate)
    return gate


# When they are made


async def test_after_an_answer_that_called_tools_notes_are_made_over_the_request_just_answered() -> None:
    async with working() as at:
        await at.until_noted()
        assert at.last.outcome == "none"
        assert 0.5 < at.share <= 0.6
        [notes] = at.upstream.notes
        answered = at.asked[-1]
        assert at.upstream.chats[-2:] == [answered, notes]
        before, after = answered.json, notes.json
        assert after["messages"][:-1] == before["messages"][:-1]
        assert after["messages"][-1]["content"].startswith(before["messages"][-1]["content"])
        assert after["tools"] == before["tools"]
        assert notes.numbers is not None
        # All but the instruction is cached.
        assert notes.numbers.cached >= at.upstream.count(before) - 8


@pytest.mark.parametrize(
    ("changes", "answer"),
    [
        pytest.param({}, Answer(text="It is done."), id="the answer calls nothing"),
        pytest.param({"mode": "inline"}, None, id="notes are made inline"),
        pytest.param({"compact_ahead_at": 0.6}, None, id="the prompt is below compact_ahead_at"),
        pytest.param({"compact_at": 0.0}, None, id="compaction is off"),
        pytest.param({"compact_min_gain": 0.9}, None, id="they would not be worth it"),
    ],
)
async def test_no_notes_are_made(changes: dict[str, Any], answer: Answer | None) -> None:
    async with working(**changes) as at:
        at.answer = answer or at.answer
        while not at.last.status or at.share <= 0.52:
            at.session.step()
            await at.ask()
        await at.idle()
        assert at.share <= 0.6
        assert at.upstream.notes == []


async def test_no_notes_are_made_where_masking_will_do_without_them() -> None:
    async with working(strategy="mask-first", compact_keep_turns=1, turns=0) as at:
        # With `strategy = "notes"` they would be made for this session.
        at.session.result_words = 150
        while at.last.outcome != "masked":
            at.session.step()
            await at.ask()
            await at.idle()
            assert at.session.turns < 20
        assert at.upstream.notes == []


@pytest.mark.parametrize("stream", [True, False], ids=["streaming", "not streaming"])
async def test_streams_and_whole_answers_are_told_apart_by_their_calls(stream: bool) -> None:
    async with working() as at:
        at.session.members["stream"] = stream
        await at.until_noted()
        assert at.share <= 0.6


async def test_the_size_that_the_server_reports_counts() -> None:
    async with working() as at:
        await at.ask()
        assert at.share < 0.5
        reported = int(0.55 * int(at.last.headers["x-context-tokens"].partition("/")[2]))
        at.answer = Answer(calls=at.answer.calls, usage={"prompt_tokens": reported})
        at.session.step()
        await at.ask()
        assert at.share < 0.5
        await at.idle()
        assert len(at.upstream.notes) == 1


# How they are used


async def test_a_request_below_compact_at_goes_on_as_it_was() -> None:
    async with working() as at:
        await at.until_noted()
        at.session.step()
        got = await at.ask()
        assert at.share <= 0.6
        assert got.outcome == "none"
        assert at.asked[-1].body == json.dumps(at.session.body()).encode()
        assert extends(wire(at.asked[-1].json), wire(at.asked[-2].json))


async def test_the_next_request_over_compact_at_uses_them_at_once() -> None:
    async with working() as at:
        await at.until_noted()
        [notes] = at.upstream.notes
        got = await at.until_over()
        assert got.outcome == "compacted"
        assert at.upstream.notes == [notes]
        brief = at.asked[-1].messages[1]["content"]
        assert "The agent went through these" in brief
        assert at.fate("used") == 1
        [event] = at.proxy.events("context.compacted")
        assert event["trigger"] == "ahead"
        assert event["seconds"] == 0
        assert event["tokens_after"] < event["tokens_before"]
        assert at.proxy.counted("context_compacted_total", trigger="ahead") == 1


async def test_what_follows_extends_the_view_that_they_made() -> None:
    async with working() as at:
        await at.until_noted()
        await at.until_over()
        for _ in range(4):
            at.session.step()
            got = await at.ask()
            await at.idle()
            assert got.outcome == "reused"
            assert extends(wire(at.asked[-1].json), wire(at.asked[-2].json))


async def test_everything_is_either_in_the_notes_view_or_word_for_word() -> None:
    async with working() as at:
        await at.until_noted()
        seen = marks(at.upstream.notes[0].body)
        await at.until_over()
        messages = at.asked[-1].messages
        first = next(m for m in messages if m["role"] == "assistant")
        tail = at.session.messages[at.session.messages.index(first) :]
        assert messages[2:] == tail
        assert marks(json.dumps(at.session.messages)) == seen | marks(json.dumps(tail))


async def test_the_earlier_notes_are_folded_by_those_made_ahead_later() -> None:
    async with working() as at:
        await at.until_noted()
        await at.until_over()
        await at.idle()
        at.session.step()
        await at.until_noted()
        assert "The agent went through these" in json.dumps(at.upstream.notes[1].messages[:-1])
        while (await at.until_over()).outcome != "compacted":
            await at.idle()
        folded = [event["folded"] for event in at.proxy.events("context.compacted")]
        assert folded == [False, True]
        assert len(at.upstream.notes) == 2


async def test_after_a_compaction_they_rest_like_any_other() -> None:
    async with working(compact_at=0.5, compact_ahead_at=0.26, compact_min_gain=0.0, turns=3) as at:
        compacted_at: list[int] = []
        noted_at: list[int] = []
        for _ in range(30):
            before = len(at.proxy.events("context.noted_ahead"))
            got = await at.ask()
            await at.idle()
            if got.outcome == "compacted":
                compacted_at.append(at.session.turns)
            if len(at.proxy.events("context.noted_ahead")) > before:
                noted_at.append(at.session.turns)
            at.session.step()
        assert len(compacted_at) > 1
        assert len(noted_at) > 1
        assert [c for c in compacted_at for n in noted_at if 0 <= n - c < 3] == []


@pytest.mark.parametrize("prewarm", [True, False], ids=["prewarmed", "not prewarmed"])
async def test_two_sessions_of_several_windows_in_turn(prewarm: bool) -> None:
    # Each has a slot; a strict template refuses neighbouring users, orphans and late system messages.
    async with working(slots=2, prewarm=prewarm, turns=0) as at:
        sessions = [at.session, AgentSession(name="bob", task="Port the other shop. Touch nothing else.")]
        last: dict[str, bytes] = {}
        for _ in range(45):
            for session in sessions:
                got = await at.ask(session)
                await at.idle()
                sent = at.asked[-1]
                assert at.upstream.count(sent.chat) <= 3072
                assert sent.messages[:1] == session.messages[:1]
                assert sent.messages[1]["content"].startswith(session.task)
                assert sent.messages[-2:] == session.messages[-2:]
                if got.outcome != "compacted" and session.name in last:
                    assert extends(wire(sent.json), last[session.name])
                last[session.name] = wire(sent.json)
                session.step()
        events = at.proxy.events("context.compacted")
        assert len(events) >= 6
        # A turn may lead from below 0.5 to above 0.6, but few do.
        assert [event["trigger"] for event in events].count("ahead") >= 0.8 * len(events)
        assert at.proxy.counted("context_faults_total") == 0
        assert at.proxy.counted("context_trimmed_total") == 0
        assert {request.status for request in at.upstream.chats} == {200}
        own = [marks(body) for body in last.values()]
        assert {mark.split("-")[1] for mark in own[0]} == {"alice"}
        assert {mark.split("-")[1] for mark in own[1]} == {"bob"}


# A request that comes too early


async def test_one_over_compact_at_waits_for_notes_that_are_being_written() -> None:
    async with working() as at:
        gate = hold_notes(at)
        await at.until_noting()
        arrived = len(at.asked)
        at.session.step(3)
        asking = asyncio.create_task(at.ask())
        await waits(at)
        assert len(at.asked) == arrived
        gate.open()
        got = await asking
        assert got.outcome == "compacted"
        assert len(at.upstream.notes) == 1
        assert not at.upstream.notes[0].is_cancelled
        assert at.proxy.events("context.compacted")[0]["seconds"] > 0


async def test_a_streaming_client_that_waits_is_told_that_we_live() -> None:
    async with working(keepalive_seconds=0.01) as at:
        gate = hold_notes(at)
        await at.until_noting()
        at.session.step(3)
        heard: list[bytes] = []

        def on_body(body: bytes) -> None:
            heard.append(body)
            if body.count(b": waiting") >= 2:
                gate.open()

        got = await at.proxy.send(at.session.body(stream=True), on_body)
        assert got.is_whole
        assert b": waiting" in heard[0]
        assert len(at.upstream.notes) == 1


@pytest.mark.parametrize(
    ("notes", "reason"),
    [
        pytest.param(Answer(), "empty", id="empty notes"),
        pytest.param(Answer(status=500, body={"error": "no"}), "http_error", id="refused"),
    ],
)
async def test_one_that_waited_for_notes_that_came_to_nothing_goes_without(
    notes: Answer, reason: str
) -> None:
    async with working() as at:
        gate = Gate()
        at.notes = lambda _: Answer(text=notes.text, status=notes.status, body=notes.body, before=gate)
        await at.until_noting()
        at.session.step(3)
        asking = asyncio.create_task(at.ask())
        await waits(at)
        gate.open()
        got = await asking
        assert got.outcome == "failed"
        assert at.share > 0.6
        assert len(at.upstream.notes) == 1
        assert [event["reason"] for event in at.proxy.events("context.compaction_failed")] == [reason]
        assert at.fate("failed") == 1


async def test_two_that_wait_for_the_same_notes_get_the_same_view() -> None:
    async with working() as at:
        gate = hold_notes(at)
        await at.until_noting()
        at.session.step(3)
        both = [asyncio.create_task(at.ask()) for _ in range(2)]
        await waits(at)
        gate.open()
        assert [(await asking).outcome for asking in both] == ["compacted", "compacted"]
        assert at.asked[-1].body == at.asked[-2].body
        assert len(at.upstream.notes) == 1


async def waits(at: Working) -> None:
    """A request waits for notes."""
    board = at.proxy.proxy.board
    changed = asyncio.Event()
    board.on_change = changed.set
    while not any(summary.is_noting for summary in board.summaries()):
        changed.clear()
        await changed.wait()


# Stepping aside


async def test_one_that_fits_as_it_is_has_the_notes_aborted_at_once() -> None:
    async with working() as at:
        hold_notes(at)
        await at.until_noting()
        at.session.step()
        got = await at.ask()
        assert got.outcome == "none"
        assert at.share <= 0.6
        [notes] = at.upstream.notes
        await at.upstream.until(lambda _: notes.is_done)
        assert notes.is_cancelled
        assert at.fate("aborted") == 1
        assert [event["why"] for event in at.proxy.events("context.notes_wasted")] == ["aborted"]
        # It is no failure: who needs notes may have them made.
        assert at.proxy.events("context.compaction_failed") == []


async def test_an_aborted_attempt_is_not_repeated_for_3_turns() -> None:
    async with working(window=4 * WINDOW, turns=46) as at:
        hold_notes(at)
        await at.until_noting()
        aborted_at = at.session.turns
        at.session.step()
        await at.ask()
        tried: list[int] = []
        at.notes = lambda _: None
        while not tried:
            before = len(at.upstream.notes)
            at.session.step()
            await at.ask()
            await at.idle()
            if len(at.upstream.notes) > before:
                tried.append(at.session.turns)
        assert at.share <= 0.6
        assert tried == [aborted_at + 3]


async def test_after_an_abort_a_request_over_compact_at_has_its_notes_made_at_once() -> None:
    async with working() as at:
        hold_notes(at)
        await at.until_noting()
        at.session.step()
        await at.ask()
        at.notes = lambda _: None
        at.session.step(2)
        got = await at.ask()
        assert got.outcome == "compacted"
        assert at.proxy.events("context.compacted")[0]["trigger"] == "threshold"


@pytest.mark.parametrize(("slots", "is_aborted"), [(1, True), (2, False)], ids=["one slot", "two slots"])
async def test_another_conversation_has_them_aborted_where_there_is_no_slot_beside_them(
    slots: int, is_aborted: bool
) -> None:
    async with working(slots=slots) as at:
        gate = hold_notes(at)
        await at.until_noting()
        await at.ask(AgentSession(name="bob", task="Something else."))
        [notes] = at.upstream.notes
        gate.open()
        await at.idle()
        await at.upstream.until(lambda _: notes.is_done)
        assert notes.is_cancelled is is_aborted
        assert at.fate("aborted") == is_aborted


@pytest.mark.parametrize("slots", [1, 2], ids=["one slot", "two slots"])
async def test_their_own_conversation_has_them_aborted_on_any_number_of_slots(slots: int) -> None:
    async with working(slots=slots) as at:
        hold_notes(at)
        await at.until_noting()
        at.session.step()
        await at.ask()
        assert at.fate("aborted") == 1


async def test_notes_that_a_request_waits_for_are_not_aborted_by_another_conversation() -> None:
    async with working() as at:
        gate = hold_notes(at)
        await at.until_noting()
        at.session.step(3)
        asking = asyncio.create_task(at.ask())
        await waits(at)
        other = asyncio.create_task(at.proxy.send(AgentSession(name="bob", task="Other.").body()))
        await prepared(at, 1)
        gate.open()
        assert (await asking).outcome == "compacted"
        assert (await other).status == 200
        assert not at.upstream.notes[0].is_cancelled
        assert at.upstream.most_in_flight == 1


@pytest.mark.parametrize(
    ("path", "is_aborted"),
    [
        ("/v1/embeddings", True),
        ("/v1/completions", True),
        ("/infill", True),
        ("/tokenize", False),
        ("/v1/messages/count_tokens", False),
    ],
)
async def test_what_only_passes_through_has_them_aborted_where_it_takes_a_slot(
    path: str, is_aborted: bool
) -> None:
    async with working() as at:
        gate = hold_notes(at)
        await at.until_noting()
        await ask(at.proxy.url, path, body={"input": "x", "messages": []})
        gate.open()
        await at.idle()
        assert at.fate("aborted") == is_aborted


async def test_where_their_only_waiter_leaves_they_step_aside_for_who_came_meanwhile() -> None:
    async with working() as at:
        hold_notes(at)
        await at.until_noting()
        at.session.step(3)
        async with RawRequest(at.proxy.url, CHAT, body=at.session.body()) as request:
            await waits(at)
            other = asyncio.create_task(at.proxy.send(AgentSession(name="bob", task="Other.").body()))
            await prepared(at, 1)
            request.close()
        assert (await other).status == 200
        assert at.upstream.notes[0].is_cancelled


async def prepared(at: Working, more: int) -> None:
    """So many more conversations than the agent's own have been prepared."""
    board = at.proxy.proxy.board
    changed = asyncio.Event()
    board.on_change = changed.set
    while len([s for s in board.summaries() if s.totals.requests]) < 1 + more:
        changed.clear()
        await changed.wait()


# What goes wrong


async def test_a_client_that_leaves_in_mid_answer_has_no_notes_made() -> None:
    async with working() as at:
        at.session.step(2)
        gate = Gate()
        at.answer = Answer(text="I look at this now.", calls=at.answer.calls, midway=gate)
        async with RawRequest(at.proxy.url, CHAT, body=at.session.body(stream=True)) as request:
            answer = await request.answer()
            await anext(answer.chunks())
            request.close()
        await at.upstream.until(lambda upstream: upstream.turns[0].is_done)
        assert at.upstream.turns[0].is_cancelled
        await at.idle()
        assert at.upstream.notes == []


async def test_a_client_that_leaves_after_its_answer_does_not_end_the_notes() -> None:
    async with working() as at:
        gate = hold_notes(at)
        # Each request has a connection of its own, which is closed by now.
        await at.until_noting()
        gate.open()
        await at.idle()
        at.session.step(3)
        assert (await at.ask()).outcome == "compacted"
        assert len(at.upstream.notes) == 1


async def test_a_client_that_leaves_while_it_waits_does_not_end_the_notes() -> None:
    async with working() as at:
        gate = hold_notes(at)
        await at.until_noting()
        at.session.step(3)
        async with RawRequest(at.proxy.url, CHAT, body=at.session.body()) as request:
            await waits(at)
            request.close()
        gate.open()
        await at.idle()
        assert (await at.ask()).outcome == "compacted"
        assert len(at.upstream.notes) == 1
        assert not at.upstream.notes[0].is_cancelled


async def test_stopping_the_proxy_ends_them_and_is_held_up_by_nothing() -> None:
    async with working() as at:
        hold_notes(at)
        await at.until_noting()
        [notes] = at.upstream.notes
        await at.proxy.proxy.close()
        await at.upstream.until(lambda _: notes.is_done)
        assert notes.is_cancelled
        await at.idle()
        # Neither is it held against them.
        assert at.fate("aborted") == at.fate("failed") == 0
        assert at.proxy.events("context.compaction_failed") == []


async def test_what_steps_aside_before_it_has_begun_leaves_nothing_behind() -> None:
    async with working() as at:
        compactor = at.proxy.proxy.services.compactor
        prepared = Prepared(body=None, outcome=Outcome.NONE, history=b"h")

        async def again() -> None:
            raise AssertionError("it was not to begin")

        for _ in range(100):
            compactor._ahead.begin(prepared, again, 0)
            compactor._ahead.step_aside((b"h",))
            await at.idle()
        await at.until_noted()
        assert len(at.upstream.notes) == 1


async def test_notes_that_come_to_nothing_are_nobodys_error_and_are_not_tried_again_for_3_turns() -> None:
    async with working(window=4 * WINDOW, turns=46) as at:
        at.notes = lambda _: Answer()
        await at.until_noted()
        failed_at = at.session.turns
        assert at.last.status == 200
        assert [e["reason"] for e in at.proxy.events("context.compaction_failed")] == ["empty"]
        at.notes = lambda _: None
        tried: list[int] = []
        while not tried:
            at.session.step()
            await at.ask()
            await at.idle()
            tried += [at.session.turns] if len(at.upstream.notes) > 1 else []
        assert tried == [failed_at + 3]


async def test_an_upstream_that_goes_away_under_them_is_a_failure_like_any_other() -> None:
    async with working() as at:
        at.notes = lambda _: Answer(status=502, body={"error": "gone"})
        await at.until_noted()
        assert at.fate("failed") == 1
        at.session.step()
        assert (await at.ask()).status == 200


# Where they are kept


async def test_they_are_used_after_a_restart(tmp_path: Path) -> None:
    store = StoreConfig(kind="sqlite", path=str(tmp_path / "store.db"))
    async with working(store=store) as at:
        await at.until_noted()
        session = at.session
    async with working(store=store) as at:
        at.session = session
        session.step()
        assert (await at.ask()).outcome == "none"
        await at.idle()
        session.step(2)
        assert (await at.ask()).outcome == "compacted"
        assert at.upstream.notes == []


async def test_none_are_made_over_another_view_than_the_one_just_answered(tmp_path: Path) -> None:
    store = StoreConfig(kind="sqlite", path=str(tmp_path / "store.db"))
    async with working(store=store, slots=2, turns=10) as at:
        gate = Gate()
        at.answer = Answer(text=CALL.text, calls=CALL.calls, before=gate)
        asking = asyncio.create_task(at.ask())
        await at.upstream.until(lambda upstream: bool(upstream.turns))
        at.answer = CALL
        # A second process with the same store compacts the same history meanwhile.
        async with watched(at.upstream.url, store=store, compact_at=0.5, compact_keep_turns=1) as other:
            assert (await other.send(at.session.body())).outcome == "compacted"
        gate.open()
        await asking
        assert at.share > 0.5
        await at.idle()
        assert len(at.upstream.notes) == 1


async def test_a_branch_that_left_before_them_does_not_find_them() -> None:
    async with working() as at:
        await at.until_noted()
        branch = at.session.fork("other", keep=len(at.session.messages) - 2).step(4)
        await at.ask(branch)
        assert len(at.upstream.notes) == 2
        assert at.proxy.events("context.compacted")[-1]["trigger"] == "threshold"


async def test_the_request_that_they_were_made_over_is_answered_again_as_it_was() -> None:
    async with working() as at:
        await at.until_noted()
        await at.ask()
        assert at.asked[-1].body == at.asked[-2].body
        await at.idle()
        assert len(at.upstream.notes) == 1


async def test_once_they_are_used_an_earlier_request_is_still_answered_as_it_was() -> None:
    async with working() as at:
        await at.until_noted()
        noted = at.session.fork(at.session.name)
        await at.until_over()
        got = await at.ask(noted.step())
        assert got.outcome == "none"
        assert same_messages(at.asked[-1].body, json.dumps(noted.body()).encode())


async def test_another_caller_with_the_same_history_does_not_find_them() -> None:
    async with working() as at:
        await at.until_noted()
        at.session.step(3)
        sent = [("Content-Type", "application/json"), ("Authorization", "Bearer another")]
        body = json.dumps(at.session.body()).encode()
        async with RawRequest(at.proxy.url, CHAT, body=body, headers=sent) as request:
            answer = await request.answer()
            await answer.read()
        assert answer.header("x-compaction") == "compacted"
        assert len(at.upstream.notes) == 2


async def test_notes_that_are_overtaken_by_other_ones_are_counted_as_wasted() -> None:
    async with working(compact_keep_turns=1) as at:
        await at.until_noted()
        session = at.session
        # A result too large for them: the view would not fit, and notes are made in the old way.
        session.result_words = 1600
        session.step()
        session.result_words = 60
        assert (await at.ask()).outcome == "compacted"
        assert at.proxy.events("context.compacted")[-1]["trigger"] != "ahead"
        await at.idle()
        while at.share <= 0.5:
            session.step()
            await at.ask()
            await at.idle()
        assert at.fate("unused") == 1


# Other servers


async def test_a_server_of_which_no_slots_are_known_goes_on_with_them_beside_other_requests() -> None:
    async with working(server=Server.VLLM, slots=4) as at:
        gate = hold_notes(at)
        await at.until_noting()
        await at.ask(AgentSession(name="bob", task="Something else."))
        gate.open()
        await at.idle()
        assert not at.upstream.notes[0].is_cancelled
        at.session.step(3)
        assert (await at.ask()).outcome == "compacted"
        assert len(at.upstream.notes) == 1
