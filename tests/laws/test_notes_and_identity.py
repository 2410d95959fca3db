"""
Laws 5, 7, 9 and 11, as far as they are arithmetic: what the notes request extends, what a fold
keeps, what failed notes change, and to which histories a rewrite applies.
"""

import json
from random import Random

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from proxy.dialects.base import NotesFormat
from proxy.dialects.chat_completions import CHAT_COMPLETIONS
from proxy.stores.memory import MemoryStore
from tests.laws.generated import Wire, body, conversation, conversations, prefixes
from tests.laws.judging import first_assistant
from tests.laws.walk import Sent, Walker

HOW = NotesFormat(instruction="WRITE NOTES", limit=99, forbid_tools=True)
TOOLS = [{"type": "function", "function": {"name": "bash"}}]
LIMITS = st.integers(200, 1_500)
# Without shrinking: on a random generator it takes minutes, and a failure shows the conversation.
lenient = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
)


def task(number: int = 0) -> list[Wire]:
    return [{"role": "system", "content": "rules"}, {"role": "user", "content": f"task {number}"}]


def work(number: int, *, chars: int = 300, name: str = "bash") -> list[Wire]:
    arguments = json.dumps({"command": f"make step{number}"})
    call = {"id": f"c{number}", "type": "function", "function": {"name": name, "arguments": arguments}}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"c{number}", "content": f"{number} " + "r" * chars},
    ]


def grown(turns: int, brief: list[Wire] | None = None) -> list[Wire]:
    return [*(brief or task()), *(message for n in range(turns) for message in work(n))]


def until_compacted(walker: Walker, messages: list[Wire]) -> tuple[int, Sent]:
    """The number of messages of the first request that was compacted."""
    for part in prefixes(messages):
        sent = walker.send(body(part))
        if sent.compacted:
            return len(part), sent
    raise AssertionError("it was never compacted")


@lenient
@given(messages=conversations(10), limit=LIMITS)
def test_law_5_a_notes_request_extends_its_view(messages: list[Wire], limit: int) -> None:
    walker = Walker(limit)
    for part in prefixes(messages):
        sent = walker.send(body(part, tools=TOOLS, temperature=0.5))
        ours = CHAT_COMPLETIONS.parse(CHAT_COMPLETIONS.render_notes(sent.parsed, sent.view, HOW))
        pieces = [item.raw.encode() for item in ours.body.lists["messages"]]
        kept = len(pieces) - 1
        assert kept in (len(sent.pieces), len(sent.pieces) - 1)
        assert pieces[:kept] == sent.pieces[:kept]
        added = json.loads(pieces[-1])
        if kept == len(sent.pieces):
            assert added == {"role": "user", "content": "WRITE NOTES"}
            assert json.loads(sent.pieces[-1])["role"] not in ("user", "tool", "function")
        else:
            last = json.loads(sent.pieces[-1])
            assert {k: v for k, v in added.items() if k != "content"} == {
                k: v for k, v in last.items() if k != "content"
            }
            assert json.dumps(added["content"]).endswith(('WRITE NOTES"', 'WRITE NOTES"}]'))
        assert ours.body.value("tools") == TOOLS
        assert ours.body.value("temperature") == 0.5


def test_law_7_every_fold_lists_the_calls_of_all_that_is_replaced() -> None:
    walker = Walker(3_000)
    folds = 0
    for part in prefixes(grown(160)):
        sent = walker.send(body(part))
        if not sent.compacted:
            continue
        assert sent.rewrite
        folds = sent.rewrite.folds
        replaced = part[first_assistant(part) :][: sent.rewrite.replaced]
        calls = sum(len(m.get("tool_calls") or []) for m in replaced)
        assert f"{calls} calls: " in sent.rewrite.block
        assert "make step" in sent.rewrite.block
        assert sent.rewrite.block == walker.block(
            sent.parsed.conversation, sent.rewrite, sent.rewrite.replaced
        )
    assert folds >= 3


def test_law_7_notes_are_folded_over_the_view_that_holds_the_earlier_ones() -> None:
    seen: list[str] = []

    def write(conversation: object, before: object) -> str:
        seen.append(getattr(before, "notes", ""))
        return f"notes {len(seen)}"

    walker = Walker(2_000, notes=write)
    for part in prefixes(grown(90)):
        walker.send(body(part))
    assert seen[:3] == ["", "notes 1", "notes 2"]


@lenient
@given(messages=conversations(10), limit=LIMITS)
def test_law_9_without_notes_a_history_goes_as_if_compaction_were_off(
    messages: list[Wire], limit: int
) -> None:
    failing = Walker(limit, notes=lambda conversation, before: None)
    for part in prefixes(messages):
        sent = failing.send(body(part))
        assert not sent.compacted
        assert sent.rewrite is None or sent.rewrite.is_trim
        if sent.rewrite is None:
            assert sent.body == body(part)


def test_law_9_a_failed_fold_keeps_the_earlier_notes() -> None:
    store = MemoryStore(b"k" * 32)
    messages = grown(120)
    at, first = until_compacted(Walker(2_000, store=store), messages)
    failing = Walker(2_000, store=store, notes=lambda conversation, before: None)
    for part in prefixes(messages):
        if len(part) > at:
            sent = failing.send(body(part))
            assert sent.rewrite
            assert first.rewrite
            assert sent.rewrite.notes == first.rewrite.notes
            assert failing.budget.fits(sent.size)
    assert sent.rewrite
    assert "do not cover" in sent.rewrite.block, "the block says for which moment its notes speak"


def test_law_11_a_compaction_applies_to_what_continues_the_history_that_its_notes_saw() -> None:
    walker = Walker(2_000)
    messages = grown(60)
    at, sent = until_compacted(walker, messages)
    quiet = Walker(2_000, store=walker.store, notes=lambda conversation, before: None)
    assert sent.rewrite
    block = sent.rewrite.block

    def applies(history: list[Wire]) -> bool:
        return quiet.send(body(history)).rewrite is not None and block in json.loads(
            quiet.send(body(history)).body
        )["messages"][1]["content"].replace("\r", "")

    seen = messages[:at]
    assert applies(seen)
    assert applies([*seen, *work(900)]), "one branch"
    assert applies([*seen, *work(901), {"role": "user", "content": "other"}]), "another branch"
    assert applies([{"role": "system", "content": "another date"}, *seen[1:]]), "the system prompt may change"
    assert not applies(seen[:-1]), "a rewind inside the tail"
    assert not applies([*seen[:-2], *work(902)]), "a branch inside the tail"
    assert not applies([*seen[:-1], seen[-1] | {"content": "edited"}]), "an edit inside the tail"
    assert not applies([*seen[:3], seen[3] | {"content": "edited"}, *seen[4:]]), "an edit in what is replaced"
    assert not applies([*seen[:2], *seen[4:]]), "a turn pruned"
    assert not applies([*task(7), *seen[2:]]), "another task"
    other = Walker(2_000, store=walker.store, seed=b"another caller", notes=lambda conversation, before: None)
    assert other.send(body(seen)).rewrite is None


def test_law_11_two_sessions_with_one_brief_get_their_own_notes() -> None:
    store = MemoryStore(b"k" * 32)
    walker = Walker(
        2_000, store=store, notes=lambda conversation, before: conversation.messages[3].texts[0].text[:9]
    )
    sessions = {
        name: [*task(), *(m for n in range(base, base + 50) for m in work(n))]
        for name, base in (("one", 1_000), ("two", 2_000))
    }
    notes: dict[str, set[str]] = {"one": set(), "two": set()}
    for one, two in zip(*(prefixes(messages) for messages in sessions.values()), strict=True):
        for name, part in (("one", one), ("two", two)):
            sent = walker.send(body(part))
            if sent.rewrite:
                notes[name].add(sent.rewrite.notes[:4])
    assert notes == {"one": {"1000"}, "two": {"2000"}}


def test_law_11_without_tool_calls_in_the_tail_the_replaced_range_is_enough() -> None:
    walker = Walker(1_500)
    messages = task()
    for number in range(30):
        messages += [
            {"role": "assistant", "content": f"{number} " + "a" * 300},
            {"role": "user", "content": f"{number} " + "u" * 300},
        ]
    at, sent = until_compacted(walker, messages)
    assert sent.rewrite
    rendered_again = [*messages[: at - 1], {"role": "user", "content": "another rendering of the tail"}]
    quiet = Walker(1_500, store=walker.store, notes=lambda conversation, before: None)
    again = quiet.send(body(rendered_again))
    assert again.rewrite
    assert again.rewrite.block == sent.rewrite.block


@lenient
@given(seed=st.integers(0, 10_000), limit=LIMITS, cut=st.integers(1, 8))
def test_law_11_a_rewind_never_shows_more_than_it_saw(seed: int, limit: int, cut: int) -> None:
    messages = conversation(Random(seed), 10)
    walker = Walker(limit)
    for part in prefixes(messages):
        walker.send(body(part))
    quiet = Walker(limit, store=walker.store, notes=lambda conversation, before: None)
    for part in (messages[: len(messages) - cut], messages[: len(messages) // 2]):
        if not part:
            continue
        sent = quiet.send(body(part))
        if sent.rewrite:
            assert sent.rewrite.seen <= len(part) - first_assistant(part)
