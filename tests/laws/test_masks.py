"""
The laws where old results are masked before notes are made.

As in `test_views`: generated conversations, request by request, with the store between them.
"""

import json
from collections.abc import Iterator
from random import Random

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from proxy.core.mask import MASKED_SHARE
from proxy.stores.memory import MemoryStore
from tests.laws.generated import Wire, body, brief, call, content, prefixes, randoms, result, text, turn
from tests.laws.judging import RESULT, check_view, extends, first_assistant, received
from tests.laws.walk import Sent, Walker, measure

LIMITS = st.integers(1_500, 4_000)
TURNS = 14
LINE = "\nwhat the tool said"


def reading(rng: Random, turns: int = TURNS) -> list[Wire]:
    """A session that long results fill, as an agent's; every fourth turn is as odd as any."""
    messages = brief(rng) or [{"role": "user", "content": "hi"}]
    for number in range(turns):
        if rng.random() < 0.25:
            messages += turn(rng, number, 300)
            continue
        made = [call(rng, number * 10 + i, 100) for i in range(rng.choice((1, 1, 1, 2)))]
        said = text(rng) if rng.random() < 0.5 else ""
        messages.append({"role": "assistant", **content(rng, said), "tool_calls": made})
        messages += [
            {
                "role": "tool",
                "tool_call_id": one["id"],
                **content(rng, result(rng, 300) + LINE * rng.randrange(90)),
            }
            for one in made
        ]
    return messages


READING = st.builds(reading, randoms(), st.integers(0, TURNS))
# Without shrinking: on a random generator it takes minutes, and a failure shows the conversation.
lenient = settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
)


def play(walker: Walker, messages: list[Wire]) -> Iterator[tuple[list[Wire], Sent]]:
    """Every request of a session with what was sent for it, one after the other."""
    for part in prefixes(messages):
        yield part, walker.send(body(part))


@lenient
@given(messages=READING, limit=LIMITS)
def test_law_2_and_6_brief_and_tail_stay_and_no_pair_is_parted(messages: list[Wire], limit: int) -> None:
    for asked, sent in play(Walker(limit, mask_first=True), messages):
        check_view(asked, sent)


@lenient
@given(messages=READING, limit=LIMITS)
def test_law_2_a_mask_shortens_results_alone_and_not_those_of_the_newest_turn(
    messages: list[Wire], limit: int
) -> None:
    walker = Walker(limit, mask_first=True)
    for asked, sent in play(walker, messages):
        if not sent.masked or (sent.before and sent.before.cuts):
            continue
        assert sent.size <= MASKED_SHARE * walker.budget.limit
        replaced = sent.rewrite.replaced if sent.rewrite else 0
        end = first_assistant(asked)
        conversation = sent.parsed.conversation
        newest = conversation.turns[-1].start
        shown = received(sent.body)[-(len(asked) - end - replaced) :]
        for at, (original, left) in enumerate(
            zip(asked[end + replaced :], shown, strict=True), end + replaced
        ):
            if original["role"] not in RESULT or at >= newest:
                assert left == original


@lenient
@given(messages=READING, limit=LIMITS)
def test_law_3_a_restart_changes_no_byte(messages: list[Wire], limit: int) -> None:
    secret = b"k" * 32
    running, restarted = MemoryStore(secret), MemoryStore(secret)
    walker = Walker(limit, store=running, mask_first=True)
    for asked, sent in play(walker, messages):
        for key in list(running.keys()):
            restarted.put(key, running.get(key) or b"")
        # Another process, which is told to make notes and cannot: what was masked is found again.
        again = Walker(limit, store=restarted, notes=lambda conversation, before: None)
        assert again.send(body(asked)).body == sent.body


@lenient
@given(messages=READING, limit=LIMITS)
def test_law_4_after_a_mask_every_view_extends_the_one_before(messages: list[Wire], limit: int) -> None:
    before: Sent | None = None
    for _, sent in play(Walker(limit, mask_first=True), messages):
        if before and not sent.rewritten and sent.rewrite == before.rewrite:
            assert extends(sent.pieces, before.pieces)
        before = sent


@lenient
@given(messages=READING, limit=LIMITS)
def test_law_8_after_a_mask_there_is_no_compaction_for_three_turns(messages: list[Wire], limit: int) -> None:
    for _, sent in play(Walker(limit, mask_first=True), messages):
        if (sent.masked or sent.compacted) and sent.before and sent.before.compacted_at:
            now = sent.parsed.conversation
            since = [t for t in now.turns if t.start - now.brief_end >= sent.before.compacted_at]
            assert len(since) >= 3


@lenient
@given(messages=READING, limit=LIMITS)
def test_law_9_and_11_a_mask_is_made_once_and_needs_no_notes(messages: list[Wire], limit: int) -> None:
    def never(*_: object) -> None:
        return None

    walker = Walker(limit, mask_first=True, notes=never)
    for asked, sent in play(walker, messages):
        if sent.masked:
            again = walker.send(body(asked))
            assert again.body == sent.body
            assert not again.masked
            assert sent.rewrite
            assert not sent.rewrite.notes
            # In another's name nothing is found, that of somebody new each time: this one may trim.
            seed = f"other {len(asked)}".encode()
            other = Walker(limit, mask_first=False, store=walker.store, seed=seed, notes=never)
            assert other.send(body(asked)).before is None


def agent(rng: Random, turns: int, chars: int) -> list[Wire]:
    """A session of reads, in which the user now and then says something."""
    messages: list[Wire] = [
        {"role": "system", "content": "rules"},
        {"role": "user", "content": "Read everything, and keep to rule 7."},
    ]
    for number in range(turns):
        function = {"name": "read", "arguments": json.dumps({"path": f"src/part_{number}.py"})}
        call = {"id": f"c{number}", "type": "function", "function": function}
        messages += [
            {"role": "assistant", "content": f"Now part {number}. " + "I see. " * 12, "tool_calls": [call]},
            {
                "role": "tool",
                "tool_call_id": f"c{number}",
                "content": f"{number}: " + "x" * rng.randrange(chars),
            },
        ]
        if number % 9 == 8:
            messages.append({"role": "user", "content": f"And mind word {number} as well."})
    return messages


def test_law_7_notes_made_over_a_masked_view_fold_it() -> None:
    walker = Walker(4_000, mask_first=True)
    messages = agent(Random(7), 90, 2_400)
    masks = folds = 0
    for asked, sent in play(walker, messages):
        masks += sent.masked
        if not sent.compacted or not (sent.before and sent.before.is_mask):
            continue
        folds += 1
        assert sent.rewrite
        assert not sent.rewrite.is_mask
        assert not sent.rewrite.cuts, "the tail is whole again"
        gone = sent.rewrite.replaced
        assert sent.rewrite.replaced > max(cut.at for cut in sent.before.cuts)
        # The list is made of the original calls, what users said is there word for word.
        calls = sum(1 for message in asked[2 : 2 + gone] if message.get("tool_calls"))
        assert f"{calls} calls: {calls} reads." in sent.rewrite.block
        said = [m["content"] for m in asked[2 : 2 + gone] if m["role"] == "user"]
        assert all(text in sent.rewrite.block for text in said[-3:])
    assert masks >= 3
    assert folds >= 1


def test_masking_first_needs_fewer_notes_and_no_more_rewrites() -> None:
    messages = agent(Random(3), 60, 2_400)
    counts = {}
    for mask_first in (False, True):
        sent = [each for _, each in play(Walker(4_000, mask_first=mask_first), messages)]
        counts[mask_first] = (
            sum(each.compacted for each in sent),
            sum(each.masked for each in sent),
            sum(each.trimmed for each in sent),
        )
    assert counts[False][1] == 0
    assert counts[True][0] <= counts[False][0] / 2
    assert counts[True][1] > 0
    assert counts[True][2] == 0


def test_generated_sessions_are_masked_often_enough_to_show_something() -> None:
    masks = notes = 0
    for seed in range(30):
        rng = Random(seed)
        walker = Walker(1_500 + 80 * seed, mask_first=True)
        for _, sent in play(walker, reading(rng)):
            masks += sent.masked
            notes += sent.compacted
    assert masks >= 15
    assert notes >= 15


def test_a_masks_size_is_what_is_sent() -> None:
    walker = Walker(4_000, mask_first=True)
    for _, sent in play(walker, agent(Random(1), 40, 2_400)):
        assert sent.size == measure(sent.parsed.conversation, sent.rewrite).total
