"""What a trim cuts, in which order, and how far."""

import json
from collections.abc import Callable

import pytest

from proxy.core.budget import Budget
from proxy.core.messages import Conversation, Kind, Message, Role, find_turns
from proxy.core.plan import Sizes
from proxy.core.rewrite import Rewrite
from proxy.core.splice import splice
from proxy.core.trim import Trim, What, aim_of, trim
from tests.core.sessions import answers, asks, system, tokens, user


def talk(*messages: Message) -> Conversation:
    brief_end, turns = find_turns(messages)
    return Conversation(messages=messages, brief_end=brief_end, turns=turns)


def measure(
    conversation: Conversation, rewrite: Rewrite | None = None, tokens: Callable[[str], int] = tokens
) -> Sizes:
    cuts = {(cut.at, cut.text): cut.put for cut in rewrite.cuts} if rewrite else {}
    replaced = rewrite.replaced if rewrite else 0
    rest = conversation.messages[conversation.brief_end :]
    whole = tuple(sum(tokens(t.text) for t in m.texts) for m in rest)
    shown = [
        sum(tokens(cuts.get((at, i), t.text)) for i, t in enumerate(m.texts)) if at >= replaced else 0
        for at, m in enumerate(rest)
    ]
    fixed = sum(tokens(t.text) for m in conversation.messages[: conversation.brief_end] for t in m.texts)
    block = tokens(rewrite.block) if rewrite and replaced else 0
    return Sizes(fixed=fixed, block=block, shown=tuple(shown), whole=whole)


def cut(
    conversation: Conversation,
    limit: int,
    *,
    rewrite: Rewrite | None = None,
    aim: int | None = None,
    block: str = "B",
) -> Trim | None:
    made = trim(
        conversation,
        rewrite,
        measure(conversation, rewrite),
        aim=aim if aim is not None else limit * 3 // 4,
        limit=limit,
        keep_chars=100,
        count=tokens,
        block=lambda replaced: f"{block} for {replaced}",
    )
    if made is not None:
        assert made.size == measure(conversation, made.rewrite).total
        assert made.size <= limit
        assert made.rewrite.is_trim
    return made


def read(number: int, chars: int) -> list[Message]:
    return [
        asks(("read", {"path": f"{number}.py"}), ids=(f"c{number}",)),
        answers(f"{number}" * chars, f"c{number}"),
    ]


def test_oldest_results_go_first_and_only_as_many_as_needed() -> None:
    conversation = talk(user("task"), *read(1, 2_000), *read(2, 2_000), *read(3, 2_000), *read(4, 400))
    made = cut(conversation, 1_400, aim=1_100)
    assert made is not None
    assert made.what == (What.RESULTS,)
    assert [c.at for c in made.rewrite.cuts] == [1, 3]
    assert 'the result of read({"path": "1.py"}) were cut here' in made.rewrite.cuts[0].put
    assert made.messages == 2


def test_a_result_is_named_by_its_own_call_even_where_results_are_alike() -> None:
    same = "same " * 500
    conversation = talk(
        user("task"),
        asks(("read", {"path": "a"}), ("read", {"path": "b"})),
        answers(same, "c1"),
        answers(same, "c0"),
        *read(3, 10),
    )
    made = cut(conversation, 500)
    assert made is not None
    assert '{"path": "b"}' in made.rewrite.cuts[0].put
    assert '{"path": "a"}' in made.rewrite.cuts[1].put


def test_then_reasoning_arguments_and_what_was_said_but_never_users() -> None:
    reasoned = Message(role=Role.ASSISTANT, texts=())
    wrote = asks(("write", {"path": "x", "content": "w" * 3_000}), ids=("w",))
    conversation = talk(user("task"), reasoned, wrote, answers("ok", "w"), user("u" * 800), *read(5, 10))
    made = cut(conversation, 600)
    assert made is not None
    assert made.what == (What.TEXTS,)
    [only] = made.rewrite.cuts
    assert json.loads(only.put)["path"] == "x"


def test_a_turn_is_left_out_before_what_a_user_said_in_it_is_cut() -> None:
    conversation = talk(user("task"), *read(1, 40), user("u" * 3_000), *read(2, 40), *read(3, 40))
    made = cut(conversation, 300)
    assert made is not None
    assert made.what == (What.TURNS,)
    assert made.rewrite.cuts == ()


def test_then_whole_oldest_turns_and_a_block_says_so() -> None:
    conversation = talk(user("task"), *(m for n in range(40) for m in read(n, 90)))
    made = cut(conversation, 700, aim=500)
    assert made is not None
    assert made.what == (What.TURNS,)
    assert made.rewrite.block == f"B for {made.rewrite.replaced}"
    assert 0 < made.rewrite.replaced < 78
    # The fewest that will do: one turn more would have been over.
    one_less = measure(
        conversation, Rewrite(seen=80, replaced=made.rewrite.replaced - 2, block=made.rewrite.block)
    )
    assert made.size <= 500 < one_less.total


def test_where_the_block_of_few_turns_is_too_large_all_old_turns_go() -> None:
    conversation = talk(user("task"), *(m for n in range(40) for m in read(n, 90)))
    made = trim(
        conversation,
        None,
        measure(conversation),
        aim=500,
        limit=700,
        keep_chars=100,
        count=tokens,
        block=lambda replaced: "B" * (4 if replaced == 78 else 4_000),
    )
    assert made is not None
    assert (made.rewrite.replaced, made.rewrite.block) == (78, "BBBB")


def test_a_block_that_takes_more_than_what_it_stands_for_is_not_put() -> None:
    conversation = talk(user("task"), *read(1, 90), *read(2, 4_000))
    made = trim(
        conversation,
        None,
        measure(conversation),
        aim=60,
        limit=200,
        keep_chars=100,
        count=tokens,
        block=lambda replaced: "B" * 600,
    )
    assert made is not None
    assert made.what == (What.NEWEST,)


def test_one_huge_newest_result_does_not_cost_the_history() -> None:
    conversation = talk(user("task"), *(m for n in range(5) for m in read(n, 90)), *read(9, 100_000))
    made = cut(conversation, 1_000)
    assert made is not None
    assert made.what == (What.NEWEST,)
    assert made.rewrite.replaced == 0
    assert made.size > 500, "as much of it stays as fits"


def test_parallel_results_of_the_newest_turn_are_cut_to_one_length() -> None:
    conversation = talk(
        user("task"),
        asks(("read", {"p": 1}), ("read", {"p": 2}), ("read", {"p": 3})),
        answers("a" * 9_000, "c0"),
        answers("b" * 300, "c1"),
        answers("c" * 9_000, "c2"),
    )
    made = cut(conversation, 1_000)
    assert made is not None
    assert [c.at for c in made.rewrite.cuts] == [1, 3]
    first, second = (c.put for c in made.rewrite.cuts)
    assert first.count("a") == pytest.approx(second.count("c"), abs=40)


def test_what_a_user_wrote_in_the_newest_turn_is_cut_last() -> None:
    conversation = talk(user("task"), *read(1, 4_000), user("u" * 1_500))
    made = cut(conversation, 700)
    assert made is not None
    assert [c.at for c in made.rewrite.cuts] == [1]
    pressed = cut(conversation, 300)
    assert pressed is not None
    assert [c.at for c in pressed.rewrite.cuts] == [1, 2]


@pytest.mark.parametrize(
    "conversation",
    [
        pytest.param(talk(user("x" * 9_000)), id="no turn"),
        pytest.param(talk(), id="nothing"),
        pytest.param(talk(system("x" * 9_000), user("t"), *read(1, 10)), id="the brief alone is over"),
        pytest.param(
            talk(user("t"), asks(*[("read", {"p": n}) for n in range(400)])),
            id="short texts, too many of them",
        ),
    ],
)
def test_where_nothing_helps_there_is_no_trim(conversation: Conversation) -> None:
    assert cut(conversation, 1_000) is None


def test_a_view_that_is_down_already_is_not_trimmed() -> None:
    assert cut(talk(user("t"), *read(1, 10)), 1_000) is None


def test_broken_arguments_of_the_newest_call_can_be_cut() -> None:
    broken = asks(("write", '{"path": "a.py", "content": "' + "x" * 9_000))
    made = cut(talk(user("t"), broken, answers("invalid JSON")), 500)
    assert made is not None
    json.loads(made.rewrite.cuts[0].put)


def test_a_marker_that_takes_more_than_it_saves_is_not_put() -> None:
    spaces = answers(" " * 500)

    def cheap(text: str) -> int:
        return len(text.split()) + 1

    conversation = talk(user("t " * 50), asks(("a", {})), spaces, asks(("b", {})), answers("x " * 200))
    whole = tuple(sum(cheap(t.text) for t in m.texts) for m in conversation.messages[1:])
    made = trim(
        conversation,
        None,
        Sizes(fixed=51, block=0, shown=whole, whole=whole),
        aim=100,
        limit=250,
        keep_chars=100,
        count=cheap,
        block=lambda replaced: "B " * 200,
    )
    assert made is not None
    assert all(c.at != 1 for c in made.rewrite.cuts)


def test_an_earlier_cut_stays_and_is_made_from_the_original_when_it_goes_further() -> None:
    conversation = talk(user("task"), *read(1, 8_000))
    first = cut(conversation, 1_500)
    assert first is not None
    later = talk(*conversation.messages, *read(2, 8_000))
    second = cut(later, 1_500, rewrite=first.rewrite)
    assert second is not None
    by_place = {c.at: c.put for c in second.rewrite.cuts}
    assert by_place[1].count("were cut here") == 1
    assert len(by_place[1]) < len(first.rewrite.cuts[0].put)
    shown = splice(later, second.rewrite)
    assert [s.message for s in shown] == list(later.messages)


def test_large_fixed_parts_leave_a_third_of_the_rest_filled() -> None:
    conversation = talk(user("x" * 4 * 900), *(m for n in range(60) for m in read(n, 40)))
    made = cut(conversation, 1_200)
    assert made is not None
    assert 950 < made.size < 1_050


def test_a_trim_does_not_depend_on_a_prefill() -> None:
    prefill = Message(role=Role.ASSISTANT)
    conversation = talk(user("task"), *read(1, 4_000), *read(2, 40), prefill)
    made = cut(conversation, 700)
    assert made is not None
    assert made.rewrite.seen == 4


def test_the_aim_is_lower_where_no_notes_are_made_and_turns_are_large() -> None:
    conversation = talk(user("task"), *(m for n in range(10) for m in read(n, 400)))
    sizes = measure(conversation)
    with_notes = Budget(window=2_200, reserve=200)
    without = Budget(window=2_200, reserve=200, compact_at=0)
    assert aim_of(conversation, sizes, with_notes, share=0.75) == 1_500
    turn = sum(sizes.whole) // 10
    assert aim_of(conversation, sizes, without, share=0.75) == pytest.approx(2_000 - 12 * turn, abs=12)
    assert aim_of(talk(user("x")), measure(talk(user("x"))), without, share=0.75) == 1_500


@pytest.mark.parametrize(
    ("sizes", "aim"),
    [
        pytest.param((10, 10, 11), 2_000 - 12 * 31 // 3, id="twelve turns have room"),
        pytest.param((10, 12, 11), 2_000 - 132, id="as many whole tokens"),
        pytest.param((10, 10, 3), 2_000 - 92, id="rounded down"),
        pytest.param((900, 900, 900), 0, id="none of them has"),
    ],
)
def test_the_aim_without_notes_is_a_whole_number(sizes: tuple[int, ...], aim: int) -> None:
    conversation = talk(user("task"), *[Message(role=Role.ASSISTANT)] * 3, user("go on"))
    found = aim_of(
        conversation,
        Sizes(fixed=1, block=0, shown=(*sizes, 0), whole=(*sizes, 0)),
        Budget(window=2_200, reserve=200, compact_at=0),
        share=0.99,
    )
    assert isinstance(found, int)
    assert found == aim


def test_five_thousand_messages_cost_linear_time() -> None:
    # With a sum for each text this is hundreds of millions of steps.
    conversation = talk(user("task"), *(m for n in range(20_000) for m in read(n, 60)))
    made = cut(conversation, 400_000)
    assert made is not None
    assert What.TURNS in made.what
    assert all(text.kind is not Kind.REASONING for m in conversation.messages for text in m.texts)
