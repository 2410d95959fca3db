"""
The recorded sessions of real agents, replayed as their agents sent them, before windows far too small.

The upstream enforces its window and refuses what strict templates refuse. What a session
cost is printed: `pytest tests/test_trajectories.py -s`.
"""

import asyncio
import functools
import json
import re
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest

from proxy.core.entries import Entry, gather
from proxy.core.entry_lines import TITLES
from proxy.core.messages import find_turns
from proxy.core.steps import read_steps
from proxy.dialects import chat_message
from proxy.dialects.slices import Item
from tests.support import trajectories
from tests.support.agent_sessions import NOTES_MARKER
from tests.support.answers import Answer
from tests.support.prompts import STRICT, count, refusal
from tests.support.proxied import Walked, extends, messages_bytes, proxied, wire
from tests.support.recorded import Recorded
from tests.support.scripted import ScriptedUpstream

WINDOWS = (8192, 16384, 32768)
# Of the long ones not every request is sent, but those around a rewrite are.
STRIDES = {"pi_before_compaction_window1": 4, "pi_large_session_raw_orphans": 15}
AROUND = 3
# A compacted block by its own words.
LEDGER = "## Calls made in these turns"
# The proxy counts texts at the scale of the whole prompt, the upstream in fours of characters.
TOLERANCE = 1.35


@dataclass(slots=True)
class Replay:
    """What became of one session before one window."""

    name: str
    window: int
    upstream: ScriptedUpstream
    bodies: list[bytes] = field(default_factory=list)
    walked: list[Walked] = field(default_factory=list)

    def compacted(self) -> list[Walked]:
        return [walk for walk in self.walked if walk.outcome == "compacted"]

    def summary(self) -> str:
        """What it cost, in the upstream's own numbers."""
        own = [r for walk in self.walked for r in walk.turns if r.numbers]
        notes = [r for walk in self.walked for r in walk.notes if r.numbers]
        history = self.upstream.count(json.loads(self.bodies[-1]))
        outcomes = [walk.outcome for walk in self.walked]
        fill = [self.upstream.count(walk.turns[-1].json) / walk.budget for walk in self.walked]
        return (
            f"{self.name} window {self.window}: {len(self.walked)} requests, "
            f"history {history / self.window:.1f} windows, "
            f"{outcomes.count('compacted')} compactions, {outcomes.count('trimmed')} trims, "
            f"{len(notes)} notes requests; processed/history {_processed(own) / history:.2f}, "
            f"for notes {_processed(notes) / history:.2f}; "
            f"fill {sum(fill) / len(fill):.2f}, at most {max(fill):.2f}"
        )


def _processed(requests: list[Recorded]) -> int:
    return sum(r.numbers.prompt - r.numbers.cached for r in requests if r.numbers)


def script(upstream: ScriptedUpstream, window: int) -> None:
    """Notes that fill their room and differ each time, as those of a talkative model do."""

    def answer(request: Recorded) -> Answer | None:
        if not upstream.is_notes(request):
            return None
        number = len(upstream.notes)
        line = "- In part {} of record {} the agent went on with the work and wrote down what it saw.\n"
        # Room for notes ends at 2048 tokens, and a token has four characters here.
        text = "".join(line.format(i, number) for i in range(200))[: min(window // 10, 2_048) * 3]
        return Answer(text=text.rpartition("\n")[0])

    upstream.script = answer


async def _replay(name: str, window: int) -> Replay:
    upstream = ScriptedUpstream(window=window, notes_marker=NOTES_MARKER)
    script(upstream, window)
    replay = Replay(name, window, upstream)
    bodies = list(trajectories.load(name).bodies())
    calm, at = 0, 0
    async with upstream.running(), proxied(upstream) as proxy:
        while at < len(bodies):
            messages = bodies[at]["messages"]
            # What the recording itself breaks is not held against us.
            upstream.strict = frozenset(r for r in STRICT if refusal(messages, frozenset({r})) is None)
            body = {"messages": messages} | {k: v for k, v in bodies[at].items() if k != "messages"}
            replay.bodies.append(wire(body))
            walk = await proxy.send(replay.bodies[-1])
            replay.walked.append(walk)
            calm = 0 if walk.outcome in {"compacted", "trimmed"} else calm + 1
            at += 1 if calm < AROUND else STRIDES.get(name, 1)
    return replay


@functools.cache
def replayed(name: str, window: int) -> Replay:
    """One replay for all tests that look at it."""
    replay = asyncio.run(_replay(name, window))
    print(f"\n{replay.summary()}")
    return replay


every = pytest.mark.parametrize("window", WINDOWS)
of_each = pytest.mark.parametrize("name", trajectories.NAMES)


@of_each
@every
def test_no_request_is_refused(name: str, window: int) -> None:
    replay = replayed(name, window)
    assert {walk.status for walk in replay.walked} == {200}
    for walk in replay.walked:
        assert len(walk.turns) == 1, "an overflow answer came back"
        assert replay.upstream.count(walk.turns[0].json) <= window
    if replay.upstream.count(json.loads(replay.bodies[-1])) > window:
        assert replay.compacted()


@of_each
@every
def test_views_extend_one_another_between_rewrites(name: str, window: int) -> None:
    replay = replayed(name, window)
    for before, after in pairwise(replay.walked):
        if after.outcome not in {"compacted", "trimmed"}:
            assert extends(after.view, before.view)
            assert extends(after.body, before.body)


@of_each
@every
def test_the_brief_is_kept_and_the_newest_turn_unless_it_had_to_be_cut(name: str, window: int) -> None:
    for walk in replayed(name, window).walked:
        sent = json.loads(walk.body)["messages"]
        brief_end = next((i for i, m in enumerate(sent) if m["role"] == "assistant"), len(sent))
        for kept, shown in zip(sent[:brief_end], walk.messages, strict=False):
            assert kept == shown or _text(shown).startswith(_text(kept))
        if walk.outcome == "none":
            assert walk.view == walk.body
        elif not _was_cut(walk):
            assert messages_bytes(walk.view).endswith(_newest_turn(sent))


@of_each
@every
def test_every_call_that_comes_again_is_in_the_ledger(name: str, window: int) -> None:
    replay = replayed(name, window)
    recorded = trajectories.load(name).messages
    listed = asked = 0
    for walk in replay.compacted():
        gone, rest = _replaced(walk, recorded)
        block = _block(walk)
        ledger = block[block.index(LEDGER) :] if LEDGER in block else ""
        calls = [_read(message) for message in gone]
        steps = read_steps(calls)
        if not steps:
            continue
        assert re.search(rf"^{len(steps)} calls?: ", ledger, re.MULTILINE)
        later = {_call(call) for message in rest for call in message.get("tool_calls") or ()}
        again = [step for step in steps if (step.deed.name, step.raw) in later]
        for entry in gather(again):
            asked += 1
            is_listed = entry.label[-12:] in ledger
            listed += is_listed
            assert is_listed or _is_merged(entry, ledger)
    if asked:
        print(f"\n{name} window {window}: of {asked} calls that come again {listed} have a line of their own")


@of_each
@every
def test_the_block_stays_within_its_room(name: str, window: int) -> None:
    for walk in replayed(name, window).compacted():
        block = _block(walk)
        ledger = block[block.index(LEDGER) :] if LEDGER in block else ""
        assert count([ledger]) <= TOLERANCE * 0.05 * walk.budget + 60
        notes = min(2048, max(256, walk.budget // 10))
        assert count([block]) <= TOLERANCE * ((0.15 + 0.1 + 0.05) * walk.budget + notes) + 250


@of_each
def test_a_session_costs_little_more_than_reading_it_once(name: str) -> None:
    replay = replayed(name, 16384)
    own = [r for walk in replay.walked for r in walk.turns]
    history = replay.upstream.count(json.loads(replay.bodies[-1]))
    assert _processed(own) <= 2 * history


def _text(message: dict[str, Any]) -> str:
    content = message.get("content")
    return content if isinstance(content, str) else "".join(p.get("text", "") for p in content or ())


def _was_cut(walk: Walked) -> bool:
    return "were cut here to fit the context window" in walk.view.decode()


def _newest_turn(sent: list[dict[str, Any]]) -> bytes:
    _, turns = find_turns([_read(message) for message in sent])
    newest = sent[turns[-1].start :]
    return b",".join(json.dumps(m, ensure_ascii=False, separators=(",", ":")).encode() for m in newest)


def _read(message: dict[str, Any]) -> Any:
    return chat_message.read(Item(json.dumps(message), message))


def _replaced(walk: Walked, recorded: list[Any]) -> tuple[list[Any], list[Any]]:
    """The messages that the block of *walk* stands for, and all that come after them in the recording."""
    sent = json.loads(walk.body)["messages"]
    brief_end = next(i for i, m in enumerate(sent) if m["role"] == "assistant")
    replaced = len(sent) - len(walk.messages)
    return recorded[brief_end : brief_end + replaced], recorded[brief_end + replaced :]


def _block(walk: Walked) -> str:
    users = [_text(m) for m in walk.messages if m["role"] == "user"]
    found = next(text for text in users if "<record-" in text)
    return found[found.index("<record-") :]


def _call(call: dict[str, Any]) -> tuple[str, str]:
    return call["function"]["name"], call["function"]["arguments"]


def _is_merged(entry: Entry, ledger: str) -> bool:
    """Whether the section of *entry* says that older calls are counted together."""
    section = ledger.partition(f"{TITLES[entry.act]}:\n")[2]
    return section.startswith("- earlier, merged: ")
