"""What is replaced and what is kept."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.core.budget import Budget
from proxy.core.messages import Call, Conversation, Cut, Message, Role, Turn
from proxy.core.plan import (
    Compact,
    Decision,
    Leave,
    Policy,
    Sizes,
    Why,
    before_newest,
    before_prefill,
    cuts_within,
    has_rested,
    last_turn_start,
    next_turn_end,
    plan,
    prefix,
    step,
    turns_since,
)
from proxy.core.rewrite import Rewrite

BUDGET = Budget(window=1_100, reserve=100, compact_at=0.6)
POLICY = Policy(notes_max=50)


def talk(turns: int, brief: int = 1) -> Conversation:
    """*turns* turns of two messages each."""
    messages = [Message(role=Role.USER)] * brief
    messages += [Message(role=Role.ASSISTANT), Message(role=Role.TOOL)] * turns
    spans = tuple(Turn(start=brief + 2 * n, end=brief + 2 * n + 2) for n in range(turns))
    return Conversation(messages=tuple(messages), brief_end=brief, turns=spans)


def sizes(turns: Sequence[int], *, fixed: int = 100, block: int = 0, replaced: int = 0) -> Sizes:
    """Sizes of turns whose second message takes all; the first *replaced* messages are not shown."""
    whole = tuple(size for turn in turns for size in (0, turn))
    shown = tuple(0 if i < replaced else size for i, size in enumerate(whole))
    return Sizes(fixed=fixed, block=block, shown=shown, whole=whole)


def decide(turns: Sequence[int], rewrite: Rewrite | None = None, **changed: object) -> Decision:
    options = {"fixed": 100, "block": 0, "kept": 20, "forced": False} | changed
    return plan(
        talk(len(turns)),
        rewrite,
        sizes(
            turns,
            fixed=int(str(options["fixed"])),
            block=int(str(options["block"])),
            replaced=rewrite.replaced if rewrite else 0,
        ),
        BUDGET,
        policy=POLICY,
        kept=lambda replaced: int(str(options["kept"])),
        forced=bool(options["forced"]),
    )


@pytest.mark.parametrize(
    ("turns", "decision"),
    [
        pytest.param([100] * 5, Leave(Why.FITS), id="at compact_at: left alone"),
        pytest.param([], Leave(Why.FITS), id="no turn"),
        pytest.param([900], Leave(Why.ONE_TURN), id="one turn: the model has not seen its results"),
        pytest.param(
            [40] * 13, Compact(replaced=22, tail_turns=2), id="as many turns as compact_to leaves room for"
        ),
        pytest.param([20] * 30, Compact(replaced=54, tail_turns=3), id="never more than three"),
        pytest.param([300, 300, 300], Compact(replaced=4, tail_turns=1), id="the last, however large"),
        pytest.param([60, 60, 600], Leave(Why.NO_GAIN), id="a large newest turn: nothing to gain"),
    ],
)
def test_decisions(turns: list[int], decision: Decision) -> None:
    assert decide(turns) == decision


def test_a_smaller_gain_will_do_when_the_window_is_nearly_full() -> None:
    # 160 replaced become 20 + 50: 90 of 1000.
    assert decide([160, 500]) == Leave(Why.NO_GAIN)
    assert decide([160, 700]) == Compact(replaced=2, tail_turns=1)


@pytest.mark.parametrize(
    ("turns", "room", "is_due"),
    [
        # A block of 100 and 50 for notes: three times that, besides these.
        pytest.param([600, 20], None, True, id="just three times what is processed again"),
        pytest.param([599, 20], None, False, id="one less"),
        pytest.param([599, 251], None, False, id="at nineteen twentieths"),
        pytest.param([599, 252], None, True, id="past them there is no time to wait"),
        pytest.param([599, 20], 719, False, id="notes can be made over all of it"),
        pytest.param([599, 20], 718, True, id="later they could not"),
        pytest.param([770, 10, 20], None, True, id="with a turn that is kept beside the newest"),
    ],
)
def test_it_waits_until_it_is_worth_it(turns: list[int], room: int | None, is_due: bool) -> None:
    decision = plan(
        talk(len(turns)),
        None,
        sizes(turns),
        BUDGET,
        policy=Policy(notes_max=50, worth=3),
        kept=lambda _: 100,
        room=room,
    )
    assert isinstance(decision, Compact) is is_due


def test_a_turn_kept_beside_the_newest_is_processed_again_the_newest_is_not() -> None:
    policy = Policy(notes_max=50, worth=3)
    # 450 to be gained with one of 20 beside it, 390 without.
    for oldest, tail_turns in ((580, 2), (579, 1)):
        decision = plan(talk(3), None, sizes([oldest, 20, 20]), BUDGET, policy=policy, kept=lambda _: 80)
        assert isinstance(decision, Compact)
        assert decision.tail_turns == tail_turns, oldest


def test_what_the_block_keeps_counts_against_the_gain() -> None:
    assert isinstance(decide([300, 300]), Compact)
    assert decide([300, 300], kept=200) == Leave(Why.NO_GAIN)


def test_after_an_overflow_size_and_rest_do_not_count() -> None:
    recent = Rewrite(seen=4, replaced=2, compacted_at=4)
    assert decide([50, 100, 100], forced=True) == Compact(replaced=4, tail_turns=1)
    assert isinstance(decide([50, 300, 300], recent, block=40, forced=True), Compact)


@pytest.mark.parametrize(
    ("turns", "rested"),
    [pytest.param(4, False, id="two turns later"), pytest.param(5, True, id="three turns later")],
)
def test_after_a_compaction_there_is_none_for_three_turns(turns: int, rested: bool) -> None:
    rewrite = Rewrite(seen=4, replaced=2, compacted_at=4)
    assert has_rested(talk(turns), rewrite) is rested
    decision = decide([50, *[300] * (turns - 1)], rewrite, block=40)
    assert decision == (Compact(replaced=2 * turns - 2, tail_turns=1) if rested else Leave(Why.TOO_SOON))


def test_a_trim_needs_no_rest() -> None:
    assert has_rested(talk(3), Rewrite(seen=6, replaced=2, is_trim=True))
    assert has_rested(talk(3), None)


def test_what_is_replaced_only_grows() -> None:
    rewrite = Rewrite(seen=2, replaced=8)
    assert decide([10, 10, 10, 10, 600], rewrite, block=40) == Leave(Why.NO_GAIN)


def run_step(turns: Sequence[int], room: int, rewrite: Rewrite | None = None, kept: int = 20) -> int | None:
    return step(
        talk(len(turns)),
        rewrite,
        sizes(turns, replaced=rewrite.replaced if rewrite else 0, block=30 if rewrite else 0),
        BUDGET,
        policy=POLICY,
        kept=lambda replaced: kept,
        room=room,
    )


@pytest.mark.parametrize(
    ("turns", "room", "upto"),
    [
        pytest.param([200] * 6, 700, 6, id="the longest prefix that fits"),
        pytest.param([200] * 6, 10_000, 12, id="all of it"),
        pytest.param([5_000, 5_000, 10], 700, 4, id="at least two turns, however large"),
        pytest.param([5_000], 700, None, id="one turn: the last one stays"),
        pytest.param([], 700, None, id="none"),
        pytest.param([30, 5_000, 5_000], 700, None, id="the replaced part gains too little"),
    ],
)
def test_steps(turns: list[int], room: int, upto: int | None) -> None:
    assert run_step(turns, room) == upto


def test_a_step_goes_on_where_the_last_one_ended() -> None:
    rewrite = Rewrite(seen=6, replaced=4, block="b")
    assert run_step([200] * 6, 750, rewrite) == 10


@given(
    st.lists(st.integers(1, 900), max_size=9),
    st.integers(0, 1_500),
    st.integers(0, 1_500),
    st.integers(50, 1_500),
)
def test_a_step_is_decided_alike_whether_or_not_the_most_that_is_kept_is_known(
    turns: list[int], kept: int, more: int, room: int
) -> None:
    conversation, now = talk(len(turns)), sizes(turns)
    asked: list[int] = []

    def ask(replaced: int) -> int:
        asked.append(replaced)
        return kept

    alike = step(conversation, None, now, BUDGET, policy=POLICY, kept=ask, room=room)
    times = len(asked)
    known = step(conversation, None, now, BUDGET, policy=POLICY, kept=ask, room=room, most_kept=kept + more)
    assert known == alike
    # Where the most is not too much nobody asks.
    if more == 0 and alike is not None:
        assert len(asked) == times


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.integers(1, 900), max_size=14),
    st.integers(0, 1_500),
    st.integers(0, 14),
    st.integers(0, 300),
    st.integers(50, 1_500),
)
def test_plan_and_step_replace_whole_turns_and_gain_what_they_say(
    turns: list[int], fixed: int, replaced_turns: int, kept: int, room: int
) -> None:
    replaced = 2 * min(replaced_turns, max(0, len(turns) - 1))
    rewrite = Rewrite(seen=replaced, replaced=replaced, block="b") if replaced else None
    conversation = talk(len(turns))
    now = sizes(turns, fixed=fixed, block=40 if replaced else 0, replaced=replaced)
    decision = plan(conversation, rewrite, now, BUDGET, policy=POLICY, kept=lambda _: kept)
    if isinstance(decision, Compact):
        assert replaced < decision.replaced == 2 * (len(turns) - decision.tail_turns)
        assert 1 <= decision.tail_turns <= 3
        after = fixed + kept + POLICY.notes_max + sum(now.whole[decision.replaced :])
        assert after < now.total
    elif decision.why is Why.FITS:
        assert not BUDGET.is_over(now.total)
    upto = step(conversation, rewrite, now, BUDGET, policy=POLICY, kept=lambda _: kept, room=room)
    if upto is not None:
        part = prefix(conversation, upto)
        assert part.turns[-1].end == len(part.messages)
        assert last_turn_start(conversation, upto) > replaced
        assert turns_since(part, last_turn_start(conversation, upto)) == 1
        takes = fixed + now.block + sum(now.shown[:upto])
        assert takes <= room or turns_since(part, replaced) == 2


def test_a_prefix_keeps_what_stands_around_the_messages() -> None:
    whole = Conversation(
        messages=talk(3).messages,
        brief_end=1,
        turns=talk(3).turns,
        model="m",
        tool_names=("bash",),
        output_limit=7,
        stream=True,
        fixed_texts=("[]",),
    )
    part = prefix(whole, 4)
    assert (len(part.messages), part.turns, part.brief_end) == (5, whole.turns[:2], 1)
    assert (part.model, part.tool_names, part.output_limit) == ("m", ("bash",), 7)
    assert (part.stream, part.fixed_texts) == (True, ("[]",))


# To the token: limit 1000, notes 50 at most, the block keeps 20


def decide_by(turns: Sequence[tuple[int, int]], rewrite: Rewrite | None = None, **changed: int) -> Decision:
    """As `decide`, with a size for each of a turn's two messages."""
    whole = tuple(size for turn in turns for size in turn)
    replaced = rewrite.replaced if rewrite else 0
    shown = tuple(0 if i < replaced else size for i, size in enumerate(whole))
    now = Sizes(fixed=changed.get("fixed", 100), block=40 if rewrite else 0, shown=shown, whole=whole)
    return plan(talk(len(turns)), rewrite, now, BUDGET, policy=POLICY, kept=lambda _: 20)


@pytest.mark.parametrize(
    ("turns", "rewrite", "tail_turns"),
    [
        pytest.param([220, 400], None, 1, id="just the least gain"),
        pytest.param([219, 400], None, 0, id="one less"),
        pytest.param([104, 800], None, 1, id="just the least when pressing; notes take a third"),
        pytest.param([103, 800], None, 0, id="one less when pressing"),
        pytest.param([30, 80, 800], Rewrite(seen=2, replaced=2), 1, id="a fold: notes of the most"),
        pytest.param([30, 79, 800], Rewrite(seen=2, replaced=2), 0, id="one less for a fold"),
        pytest.param([30, 40, 820], Rewrite(seen=2, replaced=2), 0, id="the old block counts as notes to be"),
    ],
)
def test_the_least_gain(turns: list[int], rewrite: Rewrite | None, tail_turns: int) -> None:
    decision = decide(turns, rewrite, block=40 if rewrite else 0)
    assert decision == (
        Compact(replaced=2 * len(turns) - 2, tail_turns=1) if tail_turns else Leave(Why.NO_GAIN)
    )


@pytest.mark.parametrize(
    ("fixed", "tail", "tail_turns"),
    [
        pytest.param(0, [90, 90], 2, id="just what compact_to leaves"),
        pytest.param(0, [90, 91], 1, id="one more than that"),
        pytest.param(130, [25, 25], 2, id="just a twentieth, where compact_to leaves less"),
        pytest.param(130, [25, 26], 1, id="one more than a twentieth"),
    ],
)
def test_the_room_of_the_tail(fixed: int, tail: list[int], tail_turns: int) -> None:
    decision = decide([300, 300, *tail], fixed=fixed)
    assert decision == Compact(replaced=2 * (4 - tail_turns), tail_turns=tail_turns)


def test_every_message_counts_from_the_first_that_is_not_replaced_yet() -> None:
    assert decide_by([(220, 0), (0, 400)]) == Compact(replaced=2, tail_turns=1)
    assert decide_by([(219, 0), (0, 400)]) == Leave(Why.NO_GAIN)
    assert decide_by([(104, 0), (0, 800)]) == Compact(replaced=2, tail_turns=1)
    assert decide_by([(103, 0), (0, 800)]) == Leave(Why.NO_GAIN)


def test_what_is_replaced_already_is_not_replaced_again_however_large_its_block() -> None:
    rewrite = Rewrite(seen=2, replaced=8)
    assert decide([10, 10, 10, 10, 300], rewrite, block=500) == Leave(Why.NO_GAIN)


def test_no_gain_below_the_least_of_all_is_worth_a_rewrite() -> None:
    eager = Policy(notes_max=50, min_gain=0.0)
    for turn, replaced in ((104, True), (103, False)):
        now = sizes([turn, 500])
        decision = plan(talk(2), None, now, BUDGET, policy=eager, kept=lambda _: 20)
        assert isinstance(decision, Compact) is replaced


def test_the_policy_says_how_many_turns_stay() -> None:
    now = sizes([20] * 30)
    for keep in (1, 2, 3, 4):
        policy = Policy(notes_max=50, keep_turns=keep)
        decision = plan(talk(30), None, now, BUDGET, policy=policy, kept=lambda _: 20)
        assert decision == Compact(replaced=60 - 2 * keep, tail_turns=keep)


@pytest.mark.parametrize(
    ("turns", "room", "rewrite", "upto"),
    [
        pytest.param([200, 200], 700, None, 4, id="two turns are enough"),
        pytest.param([104, 900], 700, None, 4, id="just the least gain"),
        pytest.param([103, 900], 700, None, None, id="one less"),
        pytest.param([9, 74, 900], 700, Rewrite(seen=2, replaced=2), 6, id="the old block goes too"),
        pytest.param([9, 73, 900], 700, Rewrite(seen=2, replaced=2), None, id="one less with a block"),
        pytest.param([200] * 6, 699, None, 4, id="one token short of a third turn"),
        pytest.param([200] * 6, 730, Rewrite(seen=6, replaced=4), 10, id="the old block takes room"),
        pytest.param([200] * 6, 729, Rewrite(seen=6, replaced=4), 8, id="one token short with a block"),
    ],
)
def test_a_step_to_the_token(turns: list[int], room: int, rewrite: Rewrite | None, upto: int | None) -> None:
    assert run_step(turns, room, rewrite) == upto


def test_where_the_last_turn_of_a_range_begins() -> None:
    assert [last_turn_start(talk(3), upto) for upto in range(7)] == [0, 0, 0, 2, 2, 4, 4]
    assert [last_turn_start(talk(3, brief=2), upto) for upto in range(7)] == [0, 0, 0, 2, 2, 4, 4]
    assert last_turn_start(talk(0), 0) == 0


def test_where_the_next_turn_ends() -> None:
    assert [next_turn_end(talk(3), at) for at in range(8)] == [2, 2, 4, 4, 6, 6, 6, 7]


@pytest.mark.parametrize(
    ("last", "is_prefill"),
    [
        pytest.param(Message(role=Role.ASSISTANT), True, id="an assistant's, after results"),
        pytest.param(Message(role=Role.ASSISTANT, calls=(Call("a", "read", "{}"),)), False, id="with a call"),
        pytest.param(Message(role=Role.USER), False, id="a user's"),
    ],
)
def test_what_stands_before_a_prefill(last: Message, is_prefill: bool) -> None:
    messages = (*talk(2).messages, last)
    turns = (Turn(start=1, end=3), Turn(start=3, end=6))
    conversation = Conversation(messages=messages, brief_end=1, turns=turns)
    assert before_prefill(conversation) == (4 if is_prefill else 5)


def test_a_lone_assistant_message_begins_a_turn_and_is_no_prefill() -> None:
    messages = (Message(role=Role.USER), Message(role=Role.ASSISTANT))
    assert before_prefill(Conversation(messages=messages, brief_end=1, turns=(Turn(start=1, end=2),))) == 1
    assert before_prefill(Conversation(messages=messages[1:], brief_end=1, turns=())) == 0


def test_cuts_beyond_a_range_are_not_shown_in_it() -> None:
    cuts = (Cut(at=2, text=0, put="a"), Cut(at=3, text=1, put="b"))
    rewrite = Rewrite(seen=6, replaced=1, block="b", cuts=cuts)
    assert cuts_within(None, 3) is None
    assert cuts_within(rewrite, 4) is rewrite
    assert cuts_within(rewrite, 3) == replace(rewrite, cuts=cuts[:1])
    assert cuts_within(rewrite, 2) == replace(rewrite, cuts=())


def test_a_prefix_is_the_conversation_as_it_was() -> None:
    whole = replace(
        talk(3), model="m", tool_names=("read",), output_limit=7, stream=True, fixed_texts=("tools",)
    )
    part = prefix(whole, 3)
    assert part == replace(
        whole, messages=whole.messages[:4], turns=(Turn(start=1, end=3), Turn(start=3, end=4))
    )
    assert prefix(whole, 2).turns == (Turn(start=1, end=3),)
    assert prefix(whole, 6) == whole


def test_what_the_block_keeps_is_asked_for_the_range_that_goes() -> None:
    asked: list[int] = []

    def kept(replaced: int) -> int:
        asked.append(replaced)
        return 20

    now = sizes([220, 400])
    assert isinstance(plan(talk(2), None, now, BUDGET, policy=POLICY, kept=kept), Compact)
    assert step(talk(2), None, now, BUDGET, policy=POLICY, kept=kept, room=700) == 4
    assert asked == [2, 2]


@pytest.mark.parametrize(
    ("most_kept", "is_asked"),
    [
        pytest.param(None, True, id="not known"),
        pytest.param(20, False, id="leaves just enough"),
        pytest.param(21, True, id="one more: it may be less"),
    ],
)
def test_a_step_asks_only_where_the_most_may_be_too_much(most_kept: int | None, is_asked: bool) -> None:
    asked: list[int] = []

    def kept(replaced: int) -> int:
        asked.append(replaced)
        return 20

    now = sizes([104, 900])
    upto = step(talk(2), None, now, BUDGET, policy=POLICY, kept=kept, room=700, most_kept=most_kept)
    assert upto == 4
    assert bool(asked) is is_asked


def test_where_the_newest_turn_begins() -> None:
    assert [before_newest(talk(turns, brief=2)) for turns in range(4)] == [0, 0, 2, 4]
