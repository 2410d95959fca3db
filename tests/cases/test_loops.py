"""What cannot be made shorter is not tried at every turn; what is made shorter keeps its pairs and names."""

import json
from itertools import pairwise
from typing import Any

import pytest

from tests.support.agent_sessions import AgentSession, remembering_upstream
from tests.support.answers import Answer
from tests.support.discovery import Server
from tests.support.formats import FORMATS, Format
from tests.support.prompts import STRICT
from tests.support.proxied import Walked, proxied
from tests.support.scripted import ScriptedUpstream
from tests.support.talks import NOTES_MARKER, Messages, call, noting_upstream

EACH_FORMAT = pytest.mark.parametrize("wire_format", FORMATS, ids=lambda f: f.name)
GOOD = "The agent read the pages one after the other."


# The part that cannot go


@pytest.mark.parametrize("server", [Server.LLAMA_CPP, Server.BARE], ids=["counts", "does not count"])
@EACH_FORMAT
async def test_x31_a_brief_beyond_the_budget_does_not_cost_notes_at_every_turn(
    wire_format: Format, server: Server
) -> None:
    """30,000 tokens of rules in a window of 32,768, of which 8,192 are kept for the answer."""
    window = 32768
    upstream = remembering_upstream(window=window, server=server)
    rules = {"role": "system", "content": "Each rule of the house is to be kept. " * 3_160}
    assert 29_500 < upstream.count({"messages": [rules]}) < 30_500
    session = AgentSession(name="alice")
    session.messages[0] = rules
    walks: list[Walked] = []
    async with upstream.running(), proxied(upstream, window=window, reserve=8192) as proxy:
        for _ in range(20):
            raw = wire_format.wire(session.step().body())
            walks.append(await proxy.send(raw, path=wire_format.path))
    assert all(len(walk.notes) <= 1 for walk in walks)
    assert len(upstream.notes) <= 3
    # What fits the window goes as it came, or with less of its old turns; the upstream has the last word.
    assert {walk.status for walk in walks} <= {200, 400}
    assert walks[0].view == walks[0].body
    assert all(len(walk.turns) <= 2 for walk in walks)
    refused = [walk for walk in walks if walk.status == 400]
    assert all(
        "exceeds the available context" in json.loads(walk.answer)["error"]["message"] for walk in refused
    )


async def test_p08_a_subagent_that_cannot_fit_fails_by_itself() -> None:
    window = 8192
    upstream = remembering_upstream(window=window)
    main, sub = AgentSession(name="main").step(30), AgentSession(name="sub")
    sub.messages[1]["content"] = "Everything that there is to know. " * 1_100
    async with upstream.running(), proxied(upstream) as proxy:
        walks, subs = [], []
        for _ in range(12):
            walks.append(await proxy.send(main.step().body()))
            subs.append(await proxy.send(sub.step().body()))
    assert {walk.status for walk in walks} == {200}
    assert {"compacted", "reused"} <= {walk.outcome for walk in walks}
    assert {walk.status for walk in subs} == {400}
    assert sum(len(walk.notes) for walk in subs) <= 2
    assert all(len(walk.turns) <= 2 for walk in subs)


# What must survive


@pytest.mark.parametrize("text", [GOOD, ""], ids=["with notes", "with empty ones"])
@EACH_FORMAT
async def test_x33_the_task_and_the_names_of_files_read_survive(wire_format: Format, text: str) -> None:
    """Else the agent reads the same files again, for ever: each of them is larger than the window."""
    upstream = ScriptedUpstream(window=8192, notes_marker=NOTES_MARKER)
    upstream.script = lambda request: Answer(text=text) if upstream.is_notes(request) else None
    messages: Messages = [{"role": "user", "content": "Compare the three reports, then write the sum."}]
    files = [f"reports/{name}.csv" for name in ("north", "south", "west")]
    async with upstream.running(), proxied(upstream) as proxy:
        for file in files:
            call(messages, "read_file", {"path": file}, f"{file}: " + "a row of this report; " * 1_900)
            walk = await proxy.send(wire_format.wire({"messages": messages}), path=wire_format.path)
            assert walk.status == 200
        for number in range(6):
            call(messages, "think", {"step": number}, "Noted.")
            walk = await proxy.send(wire_format.wire({"messages": messages}), path=wire_format.path)
            assert walk.status == 200
            shown = json.dumps(upstream.turns[-1].json)
            assert "Compare the three reports" in shown
            assert [file for file in files if file in shown] == files


# Pairs


async def test_x35_a_cut_never_falls_inside_a_batch_of_calls() -> None:
    upstream = noting_upstream(GOOD)
    upstream.strict = STRICT
    messages: Messages = [{"role": "user", "content": "Read."}]
    outcomes = set()
    async with upstream.running(), proxied(upstream, compact_keep_turns=1) as proxy:
        for number in range(24):
            batch(messages, number, 2)
            messages.append({"role": "assistant", "content": "Done with these."})
            walk = await proxy.send({"messages": messages, "model": "m"})
            assert walk.status == 200
            outcomes.add(walk.outcome)
            is_paired(walk.messages)
    assert {"compacted", "reused"} <= outcomes


@pytest.mark.parametrize("context", [{}, {"compact_at": 0}], ids=["notes", "trims"])
@EACH_FORMAT
async def test_x36_every_result_answers_the_turn_before_it_at_every_window(
    wire_format: Format, context: dict[str, Any]
) -> None:
    messages: Messages = [{"role": "user", "content": "Read."}]
    for number in range(12):
        batch(messages, number, 1 + number % 4)
    cut = 0
    for window in range(1100, 4600, 500):
        upstream = noting_upstream(GOOD, window=window)
        upstream.strict = STRICT
        async with upstream.running(), proxied(upstream, **context) as proxy:
            walk = await proxy.send(wire_format.wire({"messages": messages}), path=wire_format.path)
        assert walk.status == 200
        cut += len(walk.view) < len(walk.body)
        for request in (*walk.turns, *walk.notes):
            is_paired(request.chat["messages"])
    assert cut >= 5


def batch(messages: Messages, number: int, calls: int) -> None:
    """The assistant makes so many calls at once, and each is answered."""
    ids = [f"c{number}_{i}" for i in range(calls)]
    made = [{"id": i, "type": "function", "function": {"name": "read", "arguments": "{}"}} for i in ids]
    messages.append({"role": "assistant", "content": None, "tool_calls": made})
    messages += [{"role": "tool", "tool_call_id": i, "content": f"{i}: " + "a row, " * 70} for i in ids]


def is_paired(messages: Messages) -> None:
    """Every result answers a call of the assistant right before it, and every call is answered."""
    open_ids: list[str] = []
    for before, message in pairwise([{"role": ""}, *messages]):
        if message["role"] == "tool":
            assert before["role"] in ("assistant", "tool")
            open_ids.remove(message["tool_call_id"])
        else:
            assert not open_ids
            open_ids = [call["id"] for call in message.get("tool_calls") or ()]


# After it, the prompt goes on where it was


@EACH_FORMAT
async def test_x44_below_the_threshold_no_byte_is_changed(wire_format: Format) -> None:
    upstream, session = remembering_upstream(window=32768), AgentSession(name="alice")
    async with upstream.running(), proxied(upstream) as proxy:
        walks = [
            await proxy.send(wire_format.wire(session.step().body()), path=wire_format.path)
            for _ in range(20)
        ]
    assert all(walk.view == walk.body for walk in walks)
    for before, after in pairwise(walks):
        earlier = wire_format.slices(before.view)
        assert wire_format.slices(after.view)[: len(earlier)] == earlier


@EACH_FORMAT
async def test_x45_x46_between_compactions_only_the_end_is_new(wire_format: Format) -> None:
    upstream, session = remembering_upstream(window=16384), AgentSession(name="alice").step(54)
    async with upstream.running(), proxied(upstream) as proxy:
        walks = [
            await proxy.send(wire_format.wire(session.step().body()), path=wire_format.path)
            for _ in range(24)
        ]
    outcomes = [walk.outcome for walk in walks]
    first = outcomes.index("compacted")
    after = walks[first : first + 11]
    assert outcomes[first + 1 : first + 11] == ["reused"] * 10
    for before, walk in pairwise(after):
        earlier, now = wire_format.slices(before.view), wire_format.slices(walk.view)
        assert now[: len(earlier)] == earlier
        numbers = walk.turns[-1].numbers
        assert numbers is not None and numbers.cached >= 0.8 * numbers.prompt
