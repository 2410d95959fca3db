"""
A session several windows long in each format, by the bodies that reach the upstream.

The same laws as for chat completions: no error, the brief and the newest turn word for word,
views that extend one another, folds, restarts, and what the user said survives.
"""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from proxy.config import StoreConfig
from tests.support.agent_sessions import TOOLS, AgentSession, marks, remembering_upstream
from tests.support.answers import Answer
from tests.support.discovery import Server
from tests.support.formats import FORMATS, Format
from tests.support.prompts import STRICT, text_of
from tests.support.proxied import MEMORY, Walked, extends, proxied, wire
from tests.support.raw_client import ask
from tests.support.recorded import Recorded
from tests.support.scripted import ScriptedUpstream

WINDOW = 4096
# About four windows.
TURNS = 90
RULE = "And from now on: amounts are Decimal, never float."
TODOS = [{"content": "port the invoice page", "status": "in_progress", "activeForm": "porting"}]
TODO_WRITE = {"type": "function", "function": {"name": "TodoWrite", "parameters": {"type": "object"}}}
Script = Callable[[Recorded], Answer | None]


@dataclass(frozen=True, slots=True)
class Told:
    """A session and what became of its requests."""

    format: Format
    session: AgentSession
    upstream: ScriptedUpstream
    walked: list[Walked]

    def compactions(self) -> list[int]:
        """Which requests set off one."""
        return [i for i, walk in enumerate(self.walked) if walk.outcome == "compacted"]


def grow(session: AgentSession) -> None:
    """A turn more; once the user lays down a rule, and once the model writes a to-do list."""
    session.step()
    if session.turns == 4:
        session.messages += [
            {"role": "assistant", "content": "The rates are ported."},
            {"role": "user", "content": RULE},
        ]
    if session.turns == 6:
        arguments = json.dumps({"todos": TODOS})
        call = {"id": "t", "type": "function", "function": {"name": "TodoWrite", "arguments": arguments}}
        session.messages += [
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "t", "content": "ok"},
        ]


async def play(
    format_: Format,
    *,
    turns: int = TURNS,
    server: Server = Server.LLAMA_CPP,
    script: Callable[[ScriptedUpstream], Script] | None = None,
    restart_at: int = 0,
    store: StoreConfig = MEMORY,
    **context: Any,
) -> Told:
    """A request for each turn; before *restart_at* another proxy takes over with the same store."""
    upstream = remembering_upstream(window=WINDOW, strict=STRICT, server=server)
    if script:
        upstream.script = script(upstream)
    session = AgentSession(name="alice", members={"tools": [*TOOLS, TODO_WRITE]})
    walked: list[Walked] = []
    async with upstream.running():
        for part in [range(restart_at), range(restart_at, turns)]:
            async with proxied(upstream, store=store, **context) as proxy:
                for _ in part:
                    walked.append(await proxy.send(format_.wire(session.body()), path=format_.path))
                    grow(session)
    return Told(format_, session, upstream, walked)


@pytest.fixture(params=FORMATS, ids=lambda f: f.name, scope="module")
def long(request: pytest.FixtureRequest) -> Told:
    return asyncio.run(play(request.param))


def test_it_never_fails_and_stays_within_the_budget(long: Told) -> None:
    assert long.upstream.count(long.session.body()) > 3 * WINDOW
    assert {walk.status for walk in long.walked} == {200}
    assert all(len(walk.turns) == 1 for walk in long.walked), "an overflow answer came back"
    for walk in long.walked:
        assert long.upstream.count(walk.turns[0].chat) <= walk.budget


def test_below_the_threshold_the_very_bytes_go_upstream(long: Told) -> None:
    first = long.compactions()[0]
    assert first > 5
    assert all(walk.view == walk.body for walk in long.walked[:first])


def test_brief_and_newest_turn_are_word_for_word_in_every_body(long: Told) -> None:
    for walk in long.walked:
        sent, seen = long.format.slices(walk.body), long.format.slices(walk.view)
        assert long.session.task in seen[0 if long.format.name != "chat" else 1]
        if len(sent) > 4:
            assert seen[-2:] == sent[-2:]
        outside = {key: value for key, value in json.loads(walk.view).items() if key != long.format.field}
        assert outside == {k: v for k, v in json.loads(walk.body).items() if k != long.format.field}


def test_between_two_rewrites_every_view_extends_the_one_before(long: Told) -> None:
    for before, after in pairwise(long.walked):
        if after.outcome not in ("compacted", "trimmed"):
            assert extends(after.view, before.view)
    assert len(long.compactions()) >= 3
    assert not [walk for walk in long.walked if walk.outcome == "trimmed"]


def test_later_notes_fold_the_earlier_over_the_view_and_are_cached(long: Told) -> None:
    for i in long.compactions():
        (notes,) = long.walked[i].notes
        assert notes.numbers is not None
        assert notes.numbers.cached >= 0.7 * notes.numbers.prompt
        assert notes.format == long.format.path
    for earlier, later in pairwise(long.compactions()):
        block = _block(long, earlier)
        assert block in _said(long.format.slices(long.walked[later].notes[0].body))
        assert marks(block) & marks(_block(long, later))


def test_what_the_user_said_the_ledger_and_the_to_dos_survive_every_fold(long: Told) -> None:
    for i in long.compactions()[1:]:
        block = _block(long, i)
        assert RULE in block
        assert "port the invoice page" in block
        assert "calls:" in block and " reads" in block


async def test_a_restart_changes_no_byte(tmp_path: Path, long: Told) -> None:
    store = StoreConfig(kind="sqlite", path=str(tmp_path / "store.db"))
    told = await play(long.format, turns=40, restart_at=30, store=store)
    assert [walk.view for walk in told.walked] == [walk.view for walk in long.walked[:40]]


@pytest.mark.parametrize("format_", FORMATS, ids=lambda f: f.name)
async def test_failed_notes_end_in_a_trim_and_no_error(format_: Format) -> None:
    def failing(upstream: ScriptedUpstream) -> Script:
        return lambda request: Answer(text="") if upstream.is_notes(request) else None

    told = await play(format_, script=failing, turns=45)
    assert {walk.status for walk in told.walked} == {200}
    assert [walk for walk in told.walked if walk.outcome == "trimmed"]
    tried = [i for i, walk in enumerate(told.walked) if walk.notes]
    assert [b - a for a, b in pairwise(tried)][:3] == [3, 6, 12]


@pytest.mark.parametrize("format_", FORMATS, ids=lambda f: f.name)
@pytest.mark.parametrize("server", [Server.LLAMA_CPP, Server.BARE], ids=lambda s: s.value)
async def test_an_overflow_is_recovered(format_: Format, server: Server) -> None:
    upstream = remembering_upstream(window=WINDOW, strict=STRICT, server=server)
    session = AgentSession(name="alice").step(40)
    async with upstream.running(), proxied(upstream, window=4 * WINDOW) as proxy:
        walk = await proxy.send(format_.wire(session.body()), path=format_.path)
    assert walk.status == 200
    assert walk.outcome == "compacted" and len(walk.turns) == 2
    assert upstream.count(walk.turns[-1].chat) < WINDOW


@pytest.mark.parametrize("format_", FORMATS, ids=lambda f: f.name)
async def test_a_server_that_cannot_count_is_measured_by_ourselves(format_: Format) -> None:
    told = await play(format_, server=Server.BARE, window=WINDOW, turns=45)
    assert {walk.status for walk in told.walked} == {200}
    assert len(told.compactions()) >= 2


@pytest.mark.parametrize("server", [Server.LLAMA_CPP, Server.BARE], ids=lambda s: s.value)
async def test_count_tokens_answers_for_the_view(server: Server) -> None:
    format_ = FORMATS[2]
    upstream = remembering_upstream(window=WINDOW, server=server)
    session = AgentSession(name="alice").step(14)
    async with upstream.running(), proxied(upstream, window=WINDOW) as proxy:
        while (
            walk := await proxy.send(format_.wire(session.body()), path=format_.path)
        ).outcome != "compacted":
            session.step()
        body = json.loads(walk.body)
        del body["max_tokens"]
        path = "/v1/messages/count_tokens?beta=true"
        answer, counted = await ask(proxy.url, path, body=wire(body))
        asked = [request for request in upstream.requests if request.path == path]
    assert answer.status == 200
    tokens = json.loads(counted)["input_tokens"]
    seen = upstream.count(walk.turns[-1].chat)
    whole = upstream.count(format_.as_chat(walk.body))
    assert whole > 1.5 * seen
    # Without such an endpoint it is what the answer to that very prompt reported.
    assert tokens == seen
    assert len(asked) == 1 and asked[0].json["messages"] == json.loads(walk.view)["messages"]
    assert len(upstream.notes) == 1


def _block(long: Told, i: int) -> str:
    """The block of a view."""
    said = _said(long.format.slices(long.walked[i].view))
    return said[said.index("<record-") : said.index("</record-")]


def _said(slices: list[str]) -> str:
    """Everything that messages say, without the escapes of JSON."""
    return "\n".join(text_of(json.loads(piece)) for piece in slices)
