"""
`strategy = "mask-first"` through the whole proxy, in each format: what reaches the upstream, what is told.

The upstream enforces its window and refuses what strict templates refuse.
"""

import asyncio
import io
import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from proxy.config import StoreConfig
from proxy.events import log_to
from tests.support import trajectories
from tests.support.agent_sessions import TOOLS, AgentSession, remembering_upstream
from tests.support.answers import Answer
from tests.support.formats import FORMATS, Format
from tests.support.fronted import sample
from tests.support.prompts import STRICT, refusal
from tests.support.proxied import MEMORY, Proxied, Walked, extends, messages_bytes, proxied, wire
from tests.support.raw_client import ask
from tests.support.scripted import ScriptedUpstream

WINDOW = 8192
RESULT_WORDS = 300
RULE = "And from now on: amounts are Decimal, never float."
MARKER = "were cut here to fit the context window"
REWRITES = ("compacted", "masked", "trimmed")
TODOS = [{"content": "port the invoice page", "status": "in_progress", "activeForm": "porting"}]
TODO_WRITE = {"type": "function", "function": {"name": "TodoWrite", "parameters": {"type": "object"}}}
MASK_FIRST: dict[str, Any] = {"strategy": "mask-first"}


@dataclass(frozen=True, slots=True)
class Told:
    """A session and what became of its requests."""

    format: Format
    session: AgentSession
    upstream: ScriptedUpstream
    walked: list[Walked]

    def those(self, outcome: str) -> list[Walked]:
        """The requests of one outcome."""
        return [walk for walk in self.walked if walk.outcome == outcome]


def grow(session: AgentSession) -> None:
    """A turn more; early on the user lays down a rule, and the model writes a to-do list."""
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
    format_: Format, *, turns: int, restart_at: int = 0, store: StoreConfig = MEMORY, **context: Any
) -> Told:
    """A request for each turn; before *restart_at* another proxy takes over with the same store."""
    upstream = remembering_upstream(window=WINDOW, strict=STRICT)
    session = AgentSession(name="alice", result_words=RESULT_WORDS, members={"tools": [*TOOLS, TODO_WRITE]})
    walked: list[Walked] = []
    async with upstream.running():
        for part in [range(restart_at), range(restart_at, turns)]:
            async with proxied(upstream, store=store, **MASK_FIRST, **context) as proxy:
                for _ in part:
                    walked.append(await proxy.send(format_.wire(session.body()), path=format_.path))
                    grow(session)
    return Told(format_, session, upstream, walked)


@pytest.fixture(params=FORMATS, ids=lambda f: f.name, scope="module")
def told(request: pytest.FixtureRequest) -> Told:
    return asyncio.run(play(request.param, turns=60))


def test_it_never_fails_and_both_ways_of_compacting_are_used(told: Told) -> None:
    assert {walk.status for walk in told.walked} == {200}
    assert all(len(walk.turns) == 1 for walk in told.walked), "an overflow answer came back"
    assert len(told.those("masked")) >= 2
    assert told.those("compacted")
    assert not told.those("trimmed")


def test_a_mask_asks_the_model_nothing_and_comes_under_its_share(told: Told) -> None:
    for walk in told.those("masked"):
        assert walk.notes == ()
        assert walk.tokens <= 0.37 * walk.budget
        assert told.upstream.count(walk.turns[0].chat) <= 0.4 * walk.budget


def test_between_two_rewrites_every_view_extends_the_one_before(told: Told) -> None:
    for before, after in pairwise(told.walked):
        if after.outcome not in REWRITES:
            assert extends(after.view, before.view)


def test_a_mask_changes_old_results_alone(told: Told) -> None:
    first = told.those("masked")[0]
    sent, seen = told.format.slices(first.body), told.format.slices(first.view)
    assert len(seen) == len(sent)
    changed = [i for i, (before, after) in enumerate(zip(sent, seen, strict=True)) if before != after]
    assert len(changed) >= 3
    assert all(MARKER in seen[i] for i in changed)
    chat = told.format.as_chat(first.view)["messages"]
    for before, after in zip(told.format.as_chat(first.body)["messages"], chat, strict=True):
        assert before == after or (after["role"] == "tool" and MARKER in json.dumps(after))
    # Three turns are whole: in the chat format a call and its result each.
    assert messages_bytes(first.view).endswith(messages_bytes(first.body)[-600:])


def test_what_a_masked_result_was_is_said_in_its_place(told: Told) -> None:
    view = told.those("masked")[0].view.decode()
    assert "- src/alice/part0.py" in view
    assert "- pytest tests/alice/test_part1.py -q" in view


def test_what_users_said_and_the_to_dos_are_before_the_model_in_every_request(told: Told) -> None:
    for walk in told.walked[7:]:
        view = json.dumps(told.format.as_chat(walk.view)["messages"])
        assert RULE in view
        assert told.session.task in view
        assert "port the invoice page" in view


def test_notes_fold_a_masked_view(told: Told) -> None:
    folds = [(a, b) for a, b in pairwise(told.walked) if b.outcome == "compacted"]
    masked = [(a, b) for a, b in folds if MARKER in a.view.decode()]
    assert masked
    for before, walk in masked:
        (notes,) = walk.notes
        # The notes are made over the very view that the server has in its cache ...
        assert notes.numbers is not None
        assert notes.numbers.cached >= 0.7 * notes.numbers.prompt
        assert extends(walk.view, before.view) is False
        # ... and what stands for the old turns is made of what the client sent.
        view = walk.view.decode()
        assert MARKER not in view
        assert "- src/alice/part0.py" in view or "earlier, merged" in view
        assert walk.tokens <= 0.45 * walk.budget


async def test_a_restart_changes_no_byte(tmp_path: Path, told: Told) -> None:
    first = told.walked.index(told.those("masked")[0])
    store = StoreConfig(kind="sqlite", path=str(tmp_path / "store.db"))
    again = await play(told.format, turns=first + 6, restart_at=first + 2, store=store)
    assert [walk.view for walk in again.walked] == [walk.view for walk in told.walked[: first + 6]]


@pytest.mark.parametrize("server_fails", [False, True])
async def test_where_the_model_writes_no_notes_masks_go_on(server_fails: bool) -> None:
    upstream = remembering_upstream(window=WINDOW, strict=STRICT)
    upstream.script = lambda r: Answer(text="") if upstream.is_notes(r) and server_fails else None
    session = AgentSession(name="alice", result_words=RESULT_WORDS)
    async with upstream.running(), proxied(upstream, **MASK_FIRST) as proxy:
        walked = [await proxy.send(session.step().body()) for _ in range(30)]
    assert {walk.status for walk in walked} == {200}
    masked = [walk for walk in walked if walk.outcome == "masked"]
    assert len(masked) >= 2


async def test_after_a_mask_it_rests_for_three_turns_whatever_comes() -> None:
    upstream = remembering_upstream(window=WINDOW, strict=STRICT)
    session = AgentSession(name="alice", result_words=RESULT_WORDS)
    async with upstream.running(), proxied(upstream, **MASK_FIRST) as proxy:
        while (await proxy.send(session.step().body())).outcome != "masked":
            pass
        # One result fills two fifths of the budget: as soon as it is answered, another mask would help.
        after = []
        for words in (2_000, 60, 60):
            session.result_words = words
            after.append(await proxy.send(session.step().body()))
    assert after[1].tokens > 0.6 * after[1].budget
    assert [each.outcome for each in after[:2]] == ["reused", "reused"]
    assert after[2].outcome == "masked"


async def test_the_default_makes_notes() -> None:
    upstream = remembering_upstream(window=WINDOW, strict=STRICT)
    session = AgentSession(name="alice", result_words=RESULT_WORDS)
    async with upstream.running(), proxied(upstream) as proxy:
        outcomes = {(await proxy.send(session.step().body())).outcome for _ in range(16)}
    assert outcomes == {"none", "compacted", "reused"}


async def test_no_notes_are_made_ahead_of_need_where_a_mask_will_do() -> None:
    upstream = remembering_upstream(window=WINDOW, strict=STRICT)
    # Notes are made ahead only after an answer that calls a tool.
    upstream.script = lambda r: None if upstream.is_notes(r) else Answer(calls=(("run_command", {}),))
    session = AgentSession(name="alice", result_words=RESULT_WORDS)
    async with upstream.running(), proxied(upstream, mode="ahead", prewarm=False, **MASK_FIRST) as proxy:
        walked = [await proxy.send(session.step().body()) for _ in range(12)]
        assert "masked" in {walk.outcome for walk in walked}
    assert upstream.notes == []


async def test_an_overflow_answer_is_recovered_by_a_mask() -> None:
    upstream = remembering_upstream(window=WINDOW, strict=STRICT)
    session = AgentSession(name="alice", result_words=RESULT_WORDS).step(16)
    async with upstream.running(), proxied(upstream, window=4 * WINDOW, **MASK_FIRST) as proxy:
        walk = await proxy.send(session.body())
        assert (walk.status, walk.outcome, len(walk.turns)) == (200, "masked", 2)
        assert walk.notes == ()
        after = await proxy.send(session.step().body())
        assert (after.status, after.outcome, len(after.turns)) == (200, "reused", 1)
        assert extends(after.view, walk.view)


# What a person sees


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """Everything that the proxy logs."""
    logger = logging.getLogger("proxy")
    before = (logger.handlers[:], logger.level, logger.propagate)
    stream = io.StringIO()
    log_to(stream, level="debug")
    yield stream
    logger.handlers[:], logger.level, logger.propagate = before


async def until_masked(proxy: Proxied) -> Walked:
    """The first request that is masked, and one more."""
    session = AgentSession(name="alice", result_words=RESULT_WORDS)
    for _ in range(30):
        walk = await proxy.send(session.step().body())
        if walk.outcome == "masked":
            await proxy.send(session.step().body())
            return walk
    raise AssertionError("nothing was masked")


async def test_a_mask_is_told_in_the_log_the_metrics_and_the_status(log: io.StringIO) -> None:
    upstream = remembering_upstream(window=WINDOW)
    async with upstream.running(), proxied(upstream, **MASK_FIRST) as proxy:
        walk = await until_masked(proxy)
        masked = await sample(proxy.url, 'context_masked_total{model="scripted",trigger="threshold"}')
        cause = await sample(proxy.url, 'context_prefix_rewrites_total{cause="mask",model="scripted"}')
        after = await sample(proxy.url, 'context_compaction_after_tokens_count{model="scripted"}')
        _, page = await ask(proxy.url, "/status.json", method="GET")
        row = json.loads(page)["conversations"][0]
        _, page = await ask(proxy.url, f"/status.json?conversation={row['id']}", method="GET")
        story = json.loads(page)["story"]
    assert (masked, cause, after) == (1, 1, 1)
    entries = [json.loads(line) for line in log.getvalue().splitlines()]
    (event,) = [entry for entry in entries if entry["event"] == "context.masked"]
    assert event["tokens_after"] == walk.tokens < event["tokens_before"]
    assert event["trigger"] == "threshold" and event["messages"] >= 3 and event["conversation"] == row["id"]
    assert row["totals"]["masks"] == 1 and row["totals"]["compactions"] == 0
    assert row["last"]["what"] == "masked"
    assert [change["what"] for change in story["changes"]] == ["masked"]
    assert story["requests"][-1]["outcome"] == "reused"


# Recorded sessions


async def replay(name: str, window: int, **context: Any) -> tuple[int, int, int, int, int]:
    """Notes requests, masks, compactions, trims, and tokens processed with the notes."""
    upstream = remembering_upstream(window=window)
    bodies = list(trajectories.load(name).bodies())
    if len(bodies) > 120:
        bodies = bodies[::8]
    walked: list[Walked] = []
    async with upstream.running(), proxied(upstream, **context) as proxy:
        for body in bodies:
            upstream.strict = frozenset(
                r for r in STRICT if refusal(body["messages"], frozenset({r})) is None
            )
            ordered = {"messages": body["messages"]} | {k: v for k, v in body.items() if k != "messages"}
            walked.append(await proxy.send(wire(ordered)))
    assert {walk.status for walk in walked} == {200}
    for before, after in pairwise(walked):
        if after.outcome not in REWRITES:
            assert extends(after.view, before.view)
    outcomes = [walk.outcome for walk in walked]
    counted = [r.numbers for walk in walked for r in (*walk.turns, *walk.notes) if r.numbers]
    return (
        len(upstream.notes),
        outcomes.count("masked"),
        outcomes.count("compacted"),
        outcomes.count("trimmed"),
        sum(numbers.prompt - numbers.cached for numbers in counted),
    )


@pytest.mark.parametrize(
    ("name", "window"),
    [
        pytest.param("pi_before_compaction_window1", 32768, id="a session of 138k tokens"),
        pytest.param("lmcache_miniswe_ba443702", 16384, id="one of 35k"),
    ],
)
async def test_masking_first_needs_fewer_model_calls_in_recorded_sessions(
    name: str, window: int, capsys: pytest.CaptureFixture[str]
) -> None:
    notes = await replay(name, window)
    masks = await replay(name, window, **MASK_FIRST)
    with capsys.disabled():
        print(f"\n  {name} window {window}: (notes requests, masks, compactions, trims, processed)")
        print(f"    notes {notes}, mask-first {masks}")
    assert masks[1] > 0
    assert masks[0] < notes[0]
