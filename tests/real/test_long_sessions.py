"""
A session four times as long as the model's window goes through on the real llama.cpp, with its cache kept.

The recorded session is played once for each window; what is asked of it are the server's own numbers
and the bytes that reached it.
"""

import asyncio
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from proxy.config import StoreConfig
from tests.real.playing import QUICK_NOTES, SESSION, Played, body_of, brief_and_last_turn, play, requests
from tests.support.llama import Llama
from tests.support.passing import Passed, Passing
from tests.support.proxied import wire
from tests.support.watched import watched

pytestmark = pytest.mark.slow

WINDOWS_LONG = 4
# What closes a message and opens the answer: a correction stands before it.
OPENING = 10
# Late, so that the session is over in less time.
CONTEXT: dict[str, Any] = QUICK_NOTES | {"compact_at": 0.8}


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One session that was played, and the server's side of it."""

    window: int
    llama: Llama
    played: Played
    relay: Passing
    compacted: list[dict[str, Any]]
    failed: list[dict[str, Any]]
    stream: bool

    @property
    def histories(self) -> list[list[dict[str, Any]]]:
        """What the agent sent."""
        return [turn.messages for turn in self.played.turns]


def turns_of(window: int, llama: Llama) -> int:
    """The first turn whose unshortened prompt is as long as four windows."""
    turns = range(1, len(SESSION.turns) + 1)
    at = bisect_left(turns, WINDOWS_LONG * window, key=lambda t: llama.count(body_of(SESSION.before(t))))
    return turns[at]


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(4096, id="window 4096, streaming"),
        pytest.param(8192, id="window 8192", marks=pytest.mark.long),
    ],
)
async def seen(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    record_testsuite_property: Callable[[str, object], None],
) -> Seen:
    window: int = request.param
    llama: Llama = request.getfixturevalue(f"llama_{window}")
    stream = window == 4096
    turns = await asyncio.to_thread(turns_of, window, llama)
    relay, played = Passing(behind=llama.url), Played()
    store = StoreConfig(path=str(tmp_path_factory.mktemp("unbroken") / "store.sqlite3"))
    async with relay.running(), watched(relay.url, store=store, **CONTEXT) as proxy:
        await play(proxy, relay, requests(SESSION, turns), played, stream=stream)
    seen = Seen(
        window=window,
        llama=llama,
        played=played,
        relay=relay,
        compacted=proxy.events("context.compacted"),
        failed=proxy.events("context.compaction_failed"),
        stream=stream,
    )
    history = await asyncio.to_thread(llama.count, body_of(seen.histories[-1]))
    for name, figure in figures(seen, history).items():
        record_testsuite_property(f"window_{window}_{name}", figure)
    return seen


def figures(seen: Seen, history: int) -> dict[str, object]:
    """What the session cost, for the test report (`--junitxml`)."""
    prompt = sum(notes.prompt for notes in seen.relay.notes)
    return {
        "turns": len(seen.played.turns),
        "compactions": len(seen.compacted),
        "history_tokens": history,
        "processed_tokens": seen.played.processed,
        "processed_per_history": round(seen.played.processed / history, 2),
        "notes_requests": len(seen.relay.notes),
        "notes_cached_share": round(sum(notes.cached for notes in seen.relay.notes) / max(1, prompt), 3),
    }


async def test_every_request_is_answered_where_the_server_alone_refuses(seen: Seen) -> None:
    assert [turn.got.status for turn in seen.played.turns] == [200] * len(seen.played.turns)
    assert [passed.status for passed in seen.relay.completions if passed.status != 200] == []
    last = body_of(seen.histories[-1])
    assert await asyncio.to_thread(seen.llama.count, last) >= WINDOWS_LONG * seen.window
    status, _ = await asyncio.to_thread(seen.llama.post, "/v1/chat/completions", last)
    assert status == 400


async def test_compacts_at_least_three_times_and_folds(seen: Seen) -> None:
    assert len(seen.compacted) >= 3
    assert [event["folded"] for event in seen.compacted] == [False] + [True] * (len(seen.compacted) - 1)
    assert seen.failed == []


async def test_an_ordinary_turn_costs_what_it_adds(seen: Seen) -> None:
    costs = [(turn.sent.processed, added) for turn, added in seen.played.added()]
    assert len(costs) > len(seen.played.turns) / 2
    assert [(processed, added) for processed, added in costs if processed > 1.1 * added] == []


async def test_notes_cost_the_instruction(seen: Seen) -> None:
    """They run over the request before, all of which the server has: nothing else is processed for them."""
    turns = seen.played.turns
    assert turns[0].notes == ()
    for before, turn in pairwise(turns):
        known = before.sent.prompt
        for notes in turn.notes:
            assert notes.cached >= 0.95 * known
            assert notes.processed <= 1.1 * (notes.prompt - known) + OPENING
            # A correction finds the view there.
            known = notes.prompt - OPENING


async def test_brief_and_last_turn_reach_the_server_word_for_word(seen: Seen) -> None:
    for turn in seen.played.turns:
        brief, last = brief_and_last_turn(turn.messages)
        _, noted = brief_and_last_turn(turn.messages[: len(turn.messages) - len(last)])
        for passed in (*turn.notes, turn.sent):
            messages = passed.request.messages
            # The last message of the brief carries the block, if there is one.
            assert messages[: len(brief) - 1] == brief[:-1]
            assert messages[len(brief) - 1]["content"].startswith(brief[-1]["content"])
            if passed.is_notes:
                # The newest turn is none of theirs: it stays, and is new to the server.
                assert messages[-len(noted) : -1] == noted[:-1]
                assert messages[-1]["content"].startswith(noted[-1]["content"])
            elif last:
                assert b",".join(map(wire, last)) + b"]" in passed.body


async def test_restarted_in_its_middle_it_sends_the_same_bytes(seen: Seen, tmp_path: Path) -> None:
    """The server's answers are those of the unbroken session: the same request would get the same one."""
    relay, played = Passing(behind=seen.llama.url, remembered=seen.relay.answers()), Played()
    store = StoreConfig(path=str(tmp_path / "store.sqlite3"))
    middle = len(seen.histories) // 2
    assert 0 < sum(bool(turn.notes) for turn in seen.played.turns[:middle]) < len(seen.compacted)
    async with relay.running():
        for part in (seen.histories[:middle], seen.histories[middle:]):
            async with watched(relay.url, store=store, **CONTEXT) as proxy:
                await play(proxy, relay, part, played, stream=seen.stream)
    assert bodies(relay.completions) == bodies(seen.relay.completions)


def bodies(completions: list[Passed]) -> list[bytes]:
    return [passed.body for passed in completions]
