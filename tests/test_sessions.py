"""
What reaches the upstream in a session that is several windows long.

Every body is looked at: what is kept word for word, that views extend one another between
rewrites, that later compactions fold earlier ones, and that nothing changes below the threshold.
"""

import asyncio
import json
import re
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest

from proxy.config import ContextConfig
from tests.support.agent_sessions import AgentSession, marks, remembering_upstream
from tests.support.answers import Answer
from tests.support.prompts import STRICT
from tests.support.proxied import Walked, extends, messages_bytes, proxied
from tests.support.scripted import ScriptedUpstream

WINDOW = 4096
# About five windows.
TURNS = 110
REWRITES = {"compacted", "trimmed"}


@dataclass(frozen=True, slots=True)
class Told:
    """A session and everything that became of its requests."""

    session: AgentSession
    upstream: ScriptedUpstream
    walked: list[Walked]

    def compactions(self) -> list[int]:
        """Which requests set off one."""
        return [i for i, walk in enumerate(self.walked) if walk.outcome == "compacted"]


async def play(session: AgentSession, turns: int, upstream: ScriptedUpstream, **context: Any) -> Told:
    """Send a request for each of *turns* turns."""
    async with upstream.running(), proxied(upstream, **context) as proxy:
        walked = []
        for _ in range(turns):
            walked.append(await proxy.send(session.body()))
            session.step()
        return Told(session, upstream, walked)


@pytest.fixture(params=["with tools", "without tools"], scope="module")
def long(request: pytest.FixtureRequest) -> Told:
    session = AgentSession(name="alice", has_tools=request.param == "with tools")
    return asyncio.run(play(session, TURNS, remembering_upstream(window=WINDOW, strict=STRICT)))


def test_a_session_of_several_windows_never_fails(long: Told) -> None:
    assert long.upstream.count(long.session.body()) > 3 * WINDOW
    assert {walk.status for walk in long.walked} == {200}
    assert all(len(walk.turns) == 1 for walk in long.walked), "an overflow answer came back"
    assert {walk.outcome for walk in long.walked} <= {"none", "reused", "compacted"}


def test_no_view_is_over_the_budget(long: Told) -> None:
    for walk in long.walked:
        assert long.upstream.count(walk.turns[0].json) <= walk.budget


def test_below_the_threshold_the_very_bytes_go_upstream(long: Told) -> None:
    first = long.compactions()[0]
    assert first > 5
    for walk in long.walked[:first]:
        assert walk.outcome == "none"
        assert walk.view == walk.body


def test_notes_are_made_when_the_view_has_passed_the_threshold_and_not_before(long: Told) -> None:
    for i in long.compactions():
        walk = long.walked[i]
        (notes,) = walk.notes
        # The view that the notes go over is the one that was too long, with an instruction more.
        instruction = len(ContextConfig().notes_instruction) // 4 + 10
        assert long.upstream.count(notes.json) - instruction < 0.75 * walk.budget
        assert long.upstream.count(notes.json) > 0.6 * walk.budget
        if i == long.compactions()[0]:
            assert long.upstream.count(json.loads(walk.body)) > 0.6 * walk.budget


def test_brief_and_newest_turn_are_word_for_word_in_every_body(long: Told) -> None:
    system, user = long.session.messages[:2]
    for walk in long.walked:
        for body in (*walk.turns, *walk.notes):
            assert body.messages[0] == system
            assert body.messages[1]["role"] == "user"
            assert body.messages[1]["content"].startswith(user["content"])
        if walk is not long.walked[0]:
            assert messages_bytes(walk.view).endswith(_newest_turn(walk.body))


def test_between_two_rewrites_every_view_extends_the_one_before(long: Told) -> None:
    for before, after in pairwise(long.walked):
        if after.outcome not in REWRITES:
            assert extends(after.view, before.view)
            assert _outside(after.view) == _outside(before.view)


def test_rewrites_are_rare(long: Told) -> None:
    compactions = long.compactions()
    assert len(compactions) >= 4
    assert all(later - earlier > 3 for earlier, later in pairwise(compactions))
    # What had to be processed again, as the server's cache has it.
    processed = sum(w.turns[0].numbers.prompt - w.turns[0].numbers.cached for w in long.walked)
    assert processed < 3 * long.upstream.count(long.session.body())


def test_one_notes_request_for_each_compaction_and_it_is_cached(long: Told) -> None:
    for i in long.compactions():
        (notes,) = long.walked[i].notes
        assert notes.numbers.cached >= 0.75 * notes.numbers.prompt
    assert len(long.upstream.notes) == len(long.compactions())


def test_a_later_compaction_folds_the_earlier_over_the_view(long: Told) -> None:
    compactions = long.compactions()
    for earlier, later in pairwise(compactions):
        (notes,) = long.walked[later].notes
        block = long.walked[earlier].messages[1]["content"]
        assert notes.messages[1]["content"] == block
        # What the first notes said reaches the next ones through the block alone.
        gone = marks(block) - marks(json.dumps(notes.messages[2:]))
        assert gone & marks(long.walked[later].messages[1]["content"])


def test_there_is_one_block_and_never_two(long: Told) -> None:
    for walk in long.walked:
        opened = re.findall(r"<record-[0-9a-f]{8}>", messages_bytes(walk.view).decode())
        assert len(opened) == (0 if walk.outcome == "none" else 1)


def test_no_two_users_meet_and_no_system_message_moves(long: Told) -> None:
    for body in long.upstream.chats:
        roles = [message["role"] for message in body.messages]
        assert roles.count("system") == 1 and roles[0] == "system"
        assert ("user", "user") not in set(pairwise(roles))


def test_no_call_is_parted_from_its_result(long: Told) -> None:
    for body in long.upstream.chats:
        called = [c["id"] for m in body.messages for c in m.get("tool_calls", ())]
        answered = [m["tool_call_id"] for m in body.messages if m["role"] == "tool"]
        assert called == answered


async def test_the_ledger_still_lists_the_first_calls_after_many_folds() -> None:
    upstream = remembering_upstream(window=WINDOW)
    told = await play(AgentSession(name="alice"), 70, upstream, ledger_share=0.5, compact_to=0.3)
    compactions = told.compactions()
    assert len(compactions) >= 4
    block = told.walked[-1].messages[1]["content"]
    for first in (0, 1, 2):
        assert re.search(rf"part{first}\.py\b.*\[{first + 1}\]", block)


def test_a_full_ledger_still_counts_the_first_calls_after_many_folds(long: Told) -> None:
    if not long.session.has_tools:
        pytest.skip("no calls, no ledger")
    for walk in long.walked:
        block = str(walk.messages[1]["content"])
        said = re.search(r"^(\d+) calls: (\d+) reads, (\d+) commands, (\d+) writes and edits", block, re.M)
        if walk.outcome == "none":
            continue
        assert said
        shown = sum(message["role"] == "tool" for message in walk.messages)
        sent = sum(m["role"] == "tool" for m in json.loads(walk.body)["messages"])
        assert int(said[1]) == sent - shown == sum(map(int, said.groups()[1:]))


async def test_large_turns_do_not_bring_a_compaction_on_every_turn() -> None:
    upstream = remembering_upstream(window=WINDOW)
    told = await play(AgentSession(name="alice", result_words=400), 40, upstream)
    assert {walk.status for walk in told.walked} == {200}
    gaps = [later - earlier for earlier, later in pairwise(told.compactions())]
    assert len(gaps) >= 4
    assert min(gaps) >= 3


async def test_nothing_is_compacted_with_compaction_off() -> None:
    upstream = remembering_upstream(window=2 * WINDOW)
    told = await play(AgentSession(name="alice"), 120, upstream, compact_at=0.0)
    assert not upstream.notes
    assert {walk.status for walk in told.walked} == {200}
    moved = 0
    for before, after in pairwise(told.walked):
        moved += not extends(after.view, before.view)
        assert (after.outcome == "trimmed") or extends(after.view, before.view)
    assert 0 < moved < len(told.walked) / 8


async def test_failed_notes_wait_three_six_and_twelve_turns_and_change_nothing() -> None:
    upstream = remembering_upstream(window=WINDOW)
    upstream.script = lambda request: Answer(text="") if upstream.is_notes(request) else None
    told = await play(AgentSession(name="alice"), 60, upstream)
    assert {walk.status for walk in told.walked} == {200}
    tried = [i for i, walk in enumerate(told.walked) if walk.notes]
    assert [b - a for a, b in pairwise(tried)][:4] == [3, 6, 12, 12]
    for before, after in pairwise(told.walked):
        assert after.outcome == "trimmed" or extends(after.view, before.view)


def _newest_turn(body: bytes) -> bytes:
    """The bytes of a body's last turn: its last two messages."""
    turn = json.loads(body)["messages"][-2:]
    written = b",".join(json.dumps(m, ensure_ascii=False, separators=(",", ":")).encode() for m in turn)
    assert messages_bytes(body).endswith(written)
    return written


def _outside(body: bytes) -> dict[str, Any]:
    return {key: value for key, value in json.loads(body).items() if key != "messages"}
