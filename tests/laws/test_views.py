"""
Laws 2, 3, 4, 6, 8 and 10: what a view keeps, and how it grows.

Generated conversations go through parse, digests, plan, splice, trim and render, request
by request, with the entries of a store between them.
"""

import json
from random import Random

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from proxy.core.rewrite import from_bytes, to_bytes
from proxy.core.splice import splice
from proxy.dialects.chat_completions import CHAT_COMPLETIONS
from proxy.stores.memory import MemoryStore
from tests.laws.generated import Wire, body, conversation, conversations, prefixes
from tests.laws.judging import check_view, extends
from tests.laws.walk import Sent, Walker

LIMITS = st.integers(150, 2_500)
COMPACT_AT = st.sampled_from([0.6, 0.9, 0])
# Without shrinking: on a random generator it takes minutes, and a failure shows the conversation.
lenient = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
)


def play(walker: Walker, messages: list[Wire]) -> list[Sent]:
    return [walker.send(body(part)) for part in prefixes(messages)]


@lenient
@given(messages=conversations(12), limit=LIMITS, compact_at=COMPACT_AT)
def test_law_2_and_6_brief_and_tail_stay_and_no_pair_is_parted(
    messages: list[Wire], limit: int, compact_at: float
) -> None:
    walker = Walker(limit, compact_at=compact_at)
    for part in prefixes(messages):
        check_view(part, walker.send(body(part)))


def test_law_2_a_late_result_brings_the_call_back_that_was_replaced() -> None:
    walker = Walker(1_500)
    messages: list[Wire] = [{"role": "user", "content": "task"}]
    for number in range(12):
        turn = work(number, 120)
        messages += turn[:1] if number == 3 else turn
        sent = walker.send(body(messages))
    assert sent.rewrite
    assert sent.rewrite.replaced > 8
    messages += work(3, 10)[1:]
    sent = walker.send(body(messages))
    check_view(messages, sent)
    assert walker.budget.fits(sent.size)
    assert b'"c3"' in sent.body


@lenient
@given(messages=conversations(12), limit=LIMITS, compact_at=COMPACT_AT)
def test_law_2_a_compaction_cuts_nothing(messages: list[Wire], limit: int, compact_at: float) -> None:
    for sent in play(Walker(limit, compact_at=compact_at), messages):
        if sent.compacted and not sent.trimmed:
            assert sent.rewrite
            assert not sent.rewrite.cuts
            brief = sent.parsed.conversation.brief_end
            assert all(s.is_word_for_word for s in sent.view[-(len(sent.rewrite.notes) and 1) :])
            assert sum(not s.is_word_for_word for s in sent.view) == 1
            assert not any(s.cuts for s in sent.view[brief:])


@lenient
@given(messages=conversations(12), limit=LIMITS)
def test_law_3_a_restart_changes_no_byte(messages: list[Wire], limit: int) -> None:
    secret = b"k" * 32
    running, restarted = MemoryStore(secret), MemoryStore(secret)
    walker = Walker(limit, store=running)
    for part in prefixes(messages):
        raw = body(part)
        sent = walker.send(raw)
        # Another process: nothing but what was stored, and notes that it must not write again.
        for key in list(running.keys()):
            restarted.put(key, running.get(key) or b"")
        again = Walker(limit, store=restarted, notes=lambda conversation, before: None).send(raw)
        assert again.body == sent.body
        if sent.rewrite:
            stored = from_bytes(to_bytes(sent.rewrite))
            assert stored == sent.rewrite
            assert CHAT_COMPLETIONS.render(sent.parsed, splice(sent.parsed.conversation, stored)) == sent.body


@lenient
@given(messages=conversations(16), limit=LIMITS, compact_at=COMPACT_AT)
def test_law_4_between_two_rewrites_every_view_extends_the_one_before(
    messages: list[Wire], limit: int, compact_at: float
) -> None:
    walker = Walker(limit, compact_at=compact_at)
    before: Sent | None = None
    for part in prefixes(messages):
        sent = walker.send(body(part))
        if before and not sent.rewritten and sent.rewrite == before.rewrite:
            assert extends(sent.pieces, before.pieces)
        elif before and not sent.rewritten:
            assert parts_what_was_shown(before, part), "a view falls back only where it must"
        before = sent


def parts_what_was_shown(before: Sent, now: list[Wire]) -> bool:
    """Whether a late result made the place where the tail began no turn's beginning any more."""
    parsed = CHAT_COMPLETIONS.parse(body(now)).conversation
    assert before.rewrite
    at = parsed.brief_end + before.rewrite.replaced
    return all(turn.start != at for turn in parsed.turns)


@lenient
@given(messages=conversations(10), limit=LIMITS)
def test_law_4_below_every_limit_the_very_bytes_go_upstream(messages: list[Wire], limit: int) -> None:
    raw = body(messages)
    assert Walker(limit + 1_000_000).send(raw).body == raw


@lenient
@given(messages=conversations(14), limit=LIMITS)
def test_law_8_after_a_compaction_there_is_none_for_three_turns(messages: list[Wire], limit: int) -> None:
    for sent in play(Walker(limit), messages):
        if sent.compacted and sent.before and sent.before.compacted_at:
            now = sent.parsed.conversation
            since = [t for t in now.turns if t.start - now.brief_end >= sent.before.compacted_at]
            assert len(since) >= 3


def test_law_8_a_compaction_that_gains_little_is_not_made() -> None:
    # Tools and brief fill two thirds of the budget: over the threshold on every turn.
    fixed: list[Wire] = [{"role": "user", "content": "x" * 4 * 1_400}]
    walker = Walker(2_000)
    compacted = 0
    messages = list(fixed)
    for number in range(60):
        messages += work(number, 60)
        compacted += walker.send(body(messages)).compacted
    # A sixth of the budget is what five such turns take.
    assert 1 <= compacted <= 60 // 5


def work(number: int, tokens: int) -> list[Wire]:
    """A call and a result of about so many *tokens* together."""
    call = {"id": f"c{number}", "type": "function", "function": {"name": "bash", "arguments": "{}"}}
    said = f"{number} " + "abc " * (tokens - 2)
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"c{number}", "content": said},
    ]


def agent_session(rng: Random, turns: int, mean: int) -> list[Wire]:
    """
    A session as agents have it: a task, then calls, most of them short, one in eight a file read.

    *mean* is the mean size of a turn in tokens.
    """
    messages: list[Wire] = [
        {"role": "system", "content": "s" * 4 * 800},
        {"role": "user", "content": "t" * 4 * 300},
    ]
    for number in range(turns):
        size = mean * 4 if rng.random() < 0.125 else int(mean * rng.uniform(0.25, 0.9))
        messages += work(number, max(10, size))
    return messages


@pytest.mark.parametrize(
    ("window", "mean"),
    [
        pytest.param(8_192, 250, id="8k, small turns"),
        pytest.param(8_192, 360, id="8k, the measured turn"),
        pytest.param(16_384, 360, id="16k, the measured turn"),
        pytest.param(16_384, 800, id="16k, large turns"),
        pytest.param(32_768, 360, id="32k, the measured turn"),
        pytest.param(32_768, 1_100, id="32k, large turns"),
    ],
)
def test_law_10_a_session_that_only_trims_keeps_its_prefix_in_seven_turns_of_eight(
    window: int, mean: int, capsys: pytest.CaptureFixture[str]
) -> None:
    walker = Walker(window * 7 // 8, compact_at=0)
    messages = agent_session(Random(f"{window} {mean}"), turns=3 * window // mean, mean=mean)
    share, trims = moved(walker, messages)
    with capsys.disabled():
        print(f"\n  trim only, window {window}, {mean} tokens a turn: prefix moved in {share:.3f} of turns")
    assert trims >= 3
    assert share < 1 / 8


def moved(walker: Walker, messages: list[Wire]) -> tuple[float, int]:
    """The share of turns whose view does not extend the one before, and the number of trims."""
    turns = breaks = trims = 0
    before: Sent | None = None
    for part in prefixes(messages):
        sent = walker.send(body(part))
        assert walker.budget.fits(sent.size)
        if before:
            turns += 1
            breaks += not extends(sent.pieces, before.pieces)
        trims += sent.trimmed
        before = sent
    return breaks / turns, trims


@lenient
@given(messages=conversations(16), limit=LIMITS)
def test_law_10_what_was_trimmed_is_found_again_and_not_trimmed_twice(
    messages: list[Wire], limit: int
) -> None:
    walker = Walker(limit, compact_at=0)
    for part in prefixes(messages):
        first = walker.send(body(part))
        again = walker.send(body(part))
        if walker.budget.fits(first.size):
            assert again.body == first.body
            assert not again.rewritten


@pytest.mark.parametrize("compact_at", [0, 0.6])
def test_law_8_and_10_a_prefill_does_not_lose_a_rewrite(compact_at: float) -> None:
    walker = Walker(1_000, compact_at=compact_at)
    messages: list[Wire] = [{"role": "user", "content": "task"}]
    rewrites = 0
    for number in range(40):
        messages += work(number, 50)
        rewrites += walker.send(body([*messages, {"role": "assistant", "content": "{"}])).rewritten
    assert 1 <= rewrites <= 40 / 5


def test_generated_conversations_hold_what_they_are_meant_to_hold() -> None:
    text = "".join(json.dumps(conversation(Random(seed), 8)) for seed in range(300))
    wanted = """
        "function_call" cache_control image_url reasoning_content cutoffbytheli lost
        "role":"function" "role":"developer" "content":null "content":"" "content":[] "arguments":"" "id":""
    """
    tight = text.replace(" ", "")
    for piece in wanted.split():
        assert piece in tight, piece
    assert "\\ud83d" in text
