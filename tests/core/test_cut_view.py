"""What a view that is being cut says and takes after every cut. Sizes are in characters here."""

from collections.abc import Callable

import pytest

from proxy.core.cut_view import CutView
from proxy.core.messages import Conversation, Cut, Kind, Message, Role, Text, find_turns
from proxy.core.plan import Sizes
from proxy.core.rewrite import Rewrite
from tests.core.sessions import answers, asks, system, user

Count = Callable[[str], int]


def view(*messages: Message, rewrite: Rewrite | None = None, count: Count = len) -> CutView:
    """The view of *messages* as *rewrite* shows them; tools and brief take 7."""
    brief_end, turns = find_turns(messages)
    conversation = Conversation(messages=messages, brief_end=brief_end, turns=turns)
    before = rewrite or Rewrite(seen=0)
    puts = {(cut.at, cut.text): cut.put for cut in before.cuts}
    rest = messages[brief_end:]
    shown = tuple(
        sum(count(puts.get((at, i), text.text)) for i, text in enumerate(message.texts))
        if at >= before.replaced
        else 0
        for at, message in enumerate(rest)
    )
    return CutView(
        conversation, rewrite, Sizes(fixed=7, block=len(before.block), shown=shown, whole=shown), count
    )


def says(*texts: Text) -> Message:
    return Message(role=Role.ASSISTANT, texts=texts)


def said(text: str) -> Message:
    return says(Text(Kind.SAID, text))


def calls(name: str, size: int) -> list[Message]:
    """A turn of a call that takes 9 and a result that takes *size*."""
    return [asks((name, '{"p":"' + name + '"}')), answers(name * size)]


LETTERS = "h" * 200 + "m" * 300 + "t" * 100
MARK = "characters of this text were cut here to fit the context window …]"
# LETTERS cut to 300 and to 150 characters; a marker adds 75.
CUT_300 = "h" * 200 + f"\n[… 300 {MARK}\n" + "t" * 100
CUT_150 = "h" * 100 + f"\n[… 450 {MARK}\n" + "t" * 50


def test_it_begins_as_the_history_is_shown() -> None:
    begun = view(system("rules"), user("task"), *calls("a", 5), *calls("b", 6), user("c" * 4))
    assert begun.messages == (*calls("a", 5), *calls("b", 6), user("c" * 4))
    assert (begun.starts, begun.newest, begun.replaced) == ([0, 2], 2, 0)
    assert (begun.fixed, begun.block_size, begun.size, begun.newest_size) == (7, 0, 40, 19)
    assert [begun.shown_size(at) for at in range(5)] == [9, 5, 9, 6, 4]
    assert begun.touched == set()


def test_it_begins_with_the_block_and_the_cuts_of_before() -> None:
    before = Rewrite(seen=4, replaced=2, block="B" * 11, cuts=(Cut(at=3, text=0, put="---"),))
    begun = view(user("task"), *calls("a", 5), *calls("b", 6), *calls("c", 8), rewrite=before)
    assert (begun.starts, begun.newest, begun.replaced) == ([0, 2, 4], 4, 2)
    assert (begun.fixed, begun.block_size, begun.size, begun.newest_size) == (7, 11, 47, 17)
    assert (begun.now(2, 0), begun.now(3, 0), begun.now(5, 0)) == ('{"p":"b"}', "---", "cccccccc")
    assert (begun.now_size(3, 0), begun.shown_size(1), begun.shown_size(3)) == (3, 0, 3)
    assert begun.rewrite() == Rewrite(
        seen=6, replaced=2, block="B" * 11, cuts=(Cut(at=3, text=0, put="---"),), is_trim=True
    )


def test_without_a_turn_there_is_nothing_to_cut() -> None:
    begun = view(user("task"))
    assert (begun.messages, begun.starts, begun.newest, begun.size, begun.newest_size) == ((), [], 0, 7, 0)
    assert begun.rewrite() == Rewrite(seen=0, is_trim=True)
    assert begun.fewest_left_out(0) == 0


def test_texts_are_named_by_message_and_index() -> None:
    both = says(Text(Kind.REASONING, "r"), Text(Kind.SAID, "s"), Text(Kind.REASONING, "r"))
    begun = view(both, answers("x", said="y"), both)
    assert list(begun.texts(range(3), (Kind.REASONING,))) == [(0, 0), (0, 2), (2, 0), (2, 2)]
    assert list(begun.texts([2, 1], (Kind.SAID, Kind.RESULT))) == [(2, 1), (1, 0), (1, 1)]


@pytest.mark.parametrize(
    ("message", "text", "is_users"),
    [
        pytest.param(user("x"), 0, True, id="a user"),
        pytest.param(system("x"), 0, True, id="the client's system"),
        pytest.param(answers("x", said="y"), 1, True, id="a user beside a result"),
        pytest.param(answers("x", said="y"), 0, False, id="a result"),
        pytest.param(said("x"), 0, False, id="the model"),
        pytest.param(asks(("read", {})), 0, False, id="a call"),
    ],
)
def test_what_users_and_systems_say_is_known(message: Message, text: int, is_users: bool) -> None:
    assert view(said("first"), message).is_users(1, text) is is_users


def test_a_cut_stands_in_the_place_of_its_text_and_its_size_goes_from_the_sums() -> None:
    cut = view(says(Text(Kind.SAID, "x" * 50), Text(Kind.SAID, LETTERS)), user("go on"), *calls("y", 30))
    assert cut.gain(0, 1, 300) == (225, CUT_300)
    assert (cut.size, cut.now(0, 1)) == (7 + 650 + 5 + 39, LETTERS), "asking changes nothing"
    assert cut.cut(0, 1, 300) is True
    assert (cut.now(0, 0), cut.now(0, 1)) == ("x" * 50, CUT_300)
    assert (cut.now_size(0, 1), cut.shown_size(0)) == (375, 425)
    assert (cut.size, cut.newest_size, cut.touched) == (7 + 425 + 5 + 39, 39, {0})
    assert cut.rewrite() == Rewrite(seen=4, cuts=(Cut(at=0, text=1, put=CUT_300),), is_trim=True)


def test_a_cut_of_the_newest_turn_goes_from_its_size_too() -> None:
    cut = view(said("x"), said("y" * 30), user(LETTERS))
    assert (cut.newest, cut.newest_size) == (1, 630)
    assert cut.cut(2, 0, 300)
    assert (cut.size, cut.newest_size, cut.touched) == (7 + 1 + 30 + 375, 405, {2})
    first = view(said(LETTERS), user("x"))
    assert first.cut(0, 0, 300)
    assert (first.newest, first.newest_size) == (0, 376)


def test_a_further_cut_is_made_from_the_original() -> None:
    cut = view(said(LETTERS), user("y"))
    assert cut.cut(0, 0, 300)
    assert cut.cut(0, 0, 150) is True
    assert (cut.now(0, 0), cut.shown_size(0), cut.size) == (CUT_150, 225, 7 + 225 + 1)
    assert cut.cut(0, 0, 300) is False, "what is gone does not come back"
    assert (cut.now(0, 0), cut.size) == (CUT_150, 7 + 225 + 1)


CALLED = asks(("read", {"path": "a.py"}))
READ = 'the result of read({"path": "a.py"})'


@pytest.mark.parametrize(
    ("messages", "place", "put"),
    [
        pytest.param(
            [CALLED, answers(LETTERS)],
            (1, 0),
            "h" * 200
            + f"\n[… 300 characters of {READ} were cut here to fit the context window …]\n"
            + "t" * 100,
            id="a result",
        ),
        pytest.param(
            [CALLED, answers(LETTERS, "lost")],
            (1, 0),
            "h" * 200
            + "\n[… 300 characters of a result were cut here to fit the context window …]\n"
            + "t" * 100,
            id="a result without a call",
        ),
        pytest.param(
            [asks(("write", {"text": LETTERS}))],
            (0, 0),
            '{"text": "'
            + "h" * 200
            + "\\n[… 300 characters of an argument were cut here to fit the context window …]\\n"
            + "t" * 100
            + '"}',
            id="arguments",
        ),
        pytest.param([said(LETTERS)], (0, 0), CUT_300, id="what was said"),
        pytest.param([says(Text(Kind.REASONING, LETTERS))], (0, 0), CUT_300, id="reasoning"),
        pytest.param([says(Text(Kind.SEALED, LETTERS))], (0, 0), None, id="sealed reasoning stays"),
        pytest.param([said("h" * 499)], (0, 0), None, id="what is hardly longer stays"),
    ],
)
def test_a_marker_says_what_was_cut(messages: list[Message], place: tuple[int, int], put: str | None) -> None:
    cut = view(*messages)
    assert cut.cut(*place, 300) is (put is not None)
    assert cut.now(*place) == (put or messages[place[0]].texts[place[1]].text)


def test_parallel_results_are_named_by_their_own_calls_and_a_name_that_comes_again_by_the_nearest() -> None:
    both = Message(
        role=Role.TOOL,
        texts=(Text(Kind.RESULT, LETTERS, of=0), Text(Kind.RESULT, LETTERS, of=1)),
        answers=("c1", "c0"),
    )
    cut = view(asks(("a", {}), ("b", {})), both, asks(("c", {})), answers(LETTERS))
    for place in ((1, 0), (1, 1), (3, 0)):
        cut.cut(*place, 300)
    assert [
        cut.now(*place).split(" characters of the result of ")[1][:4] for place in ((1, 0), (1, 1), (3, 0))
    ] == [
        "b({}",
        "a({}",
        "c({}",
    ]


def zs(text: str) -> int:
    """A count in which nothing but a z takes room."""
    return text.count("z")


@pytest.mark.parametrize(
    ("freed", "is_put"),
    [
        pytest.param(-1, False, id="more"),
        pytest.param(0, False, id="the same"),
        pytest.param(1, True, id="less"),
    ],
)
def test_nothing_is_put_that_does_not_take_less(freed: int, is_put: bool) -> None:
    before = "z" * (2 + freed)
    put = view(said(before), said("y"), count=zs)
    assert put.put(0, 0, "zz") is is_put
    assert put.now(0, 0) == ("zz" if is_put else before)
    assert put.size == 7 + (2 if is_put else 2 + freed)
    assert put.touched == ({0} if is_put else set())


@pytest.mark.parametrize(
    ("gone", "is_cut"),
    [pytest.param("m" * 300, False, id="nothing"), pytest.param("m" * 299 + "z", True, id="a token")],
)
def test_a_cut_frees_at_least_a_token(gone: str, is_cut: bool) -> None:
    cut = view(said(LETTERS.replace("m" * 300, gone)), said("y"), count=zs)
    assert cut.gain(0, 0, 300) == ((1, CUT_300) if is_cut else None)
    assert cut.cut(0, 0, 300) is is_cut


@pytest.mark.parametrize(
    ("length", "is_cut"), [(len(CUT_300), False), (len(CUT_300) + 1, True)], ids=["as long", "longer"]
)
def test_a_cut_is_shorter_than_what_stands_there(length: int, is_cut: bool) -> None:
    before = Rewrite(seen=2, cuts=(Cut(at=0, text=0, put="z" * length),))
    cut = view(said(LETTERS), said("y"), rewrite=before, count=zs)
    assert cut.gain(0, 0, 300) == ((length, CUT_300) if is_cut else None)


def test_a_message_never_takes_less_than_nothing() -> None:
    """Sizes of parts, rounded one by one, can be more than that of the whole."""
    messages = (said("x" * 50), said("y" * 50))
    brief_end, turns = find_turns(messages)
    conversation = Conversation(messages=messages, brief_end=brief_end, turns=turns)
    sizes = Sizes(fixed=7, block=0, shown=(30, 50), whole=(30, 50))
    cut = CutView(conversation, None, sizes, len)
    assert cut.put(0, 0, "")
    assert (cut.shown_size(0), cut.size, cut.newest_size) == (0, 57, 50)


@pytest.mark.parametrize(
    ("room", "left_out"),
    [
        pytest.param(49, 3, id="one turn is enough, and one goes at least"),
        pytest.param(30, 3, id="to the token"),
        pytest.param(29, 4, id="one token over"),
        pytest.param(26, 4, id="the next turn"),
        pytest.param(25, 6, id="all but the newest"),
        pytest.param(0, 6, id="never the newest"),
    ],
)
def test_the_fewest_oldest_turns_go(room: int, left_out: int) -> None:
    turns = [
        said("a" * 6),
        user("a" * 6),
        user("a" * 7),
        said("b" * 4),
        said("c" * 3),
        user("c" * 3),
        said("d" * 12),
        user("d" * 8),
    ]
    assert view(user("task"), *turns).fewest_left_out(room) == left_out


@pytest.mark.parametrize(("room", "left_out"), [(99, 2), (24, 2), (23, 3), (20, 3), (19, 4)])
def test_turns_go_after_those_that_a_block_stands_for(room: int, left_out: int) -> None:
    before = Rewrite(seen=5, replaced=1, block="B" * 50)
    turns = [said("a" * 9), said("b" * 4), said("c" * 4), said("d" * 3), said("e" * 10), user("e" * 7)]
    assert view(user("task"), *turns, rewrite=before).fewest_left_out(room) == left_out


def test_a_block_stands_for_what_is_left_out() -> None:
    before = Rewrite(seen=4, replaced=1, block="B" * 50, notes="N", folds=2, compacted_at=3, is_mask=True)
    turns = [said("a" * 9), said(LETTERS), said("c" * 4), said(LETTERS), user("e" * 5)]
    cut = view(user("task"), *turns, rewrite=before)
    assert cut.cut(3, 0, 150)
    assert cut.cut(1, 0, 300)
    assert cut.size == 7 + 50 + 375 + 4 + 225 + 5
    assert cut.size_without(3, "new block") == 7 + 9 + 225 + 5
    assert (cut.size, cut.replaced, cut.block_size) == (7 + 50 + 375 + 4 + 225 + 5, 1, 50), (
        "asking changes nothing"
    )
    cut.leave_out(3, "new block")
    assert (cut.size, cut.replaced, cut.block_size) == (7 + 9 + 225 + 5, 3, 9)
    assert cut.touched == {1, 2, 3}
    assert cut.rewrite() == Rewrite(
        seen=5,
        replaced=3,
        block="new block",
        notes="N",
        folds=2,
        compacted_at=3,
        cuts=(Cut(at=3, text=0, put=CUT_150),),
        is_trim=True,
        is_mask=False,
    )


def test_cuts_are_listed_by_their_places() -> None:
    texts = [Text(Kind.SAID, LETTERS), Text(Kind.SAID, LETTERS)]
    cut = view(says(*texts), says(*texts), user("x"))
    for place in ((1, 0), (0, 1), (1, 1), (0, 0)):
        assert cut.cut(*place, 300)
    assert [(c.at, c.text) for c in cut.rewrite().cuts] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert cut.touched == {0, 1}


def test_what_is_touched_again_counts_once() -> None:
    cut = view(said(LETTERS), said("b"), said("c"), user("d"))
    assert cut.cut(0, 0, 300)
    cut.leave_out(1, "B")
    cut.leave_out(2, "B")
    assert cut.touched == {0, 1}
    assert cut.rewrite() == Rewrite(seen=4, replaced=2, block="B", is_trim=True)


@pytest.mark.parametrize(
    ("cut_at", "before", "seen"),
    [
        pytest.param(0, 0, 3, id="a trim does not depend on a prefill"),
        pytest.param(2, 0, 3, id="nor where the message before it is cut"),
        pytest.param(3, 0, 4, id="but where it is itself cut"),
        pytest.param(0, 4, 4, id="or what was there depends on it"),
        pytest.param(0, 2, 3, id="what was there may depend on less"),
    ],
)
def test_a_rewrite_knows_how_much_it_was_made_over(cut_at: int, before: int, seen: int) -> None:
    messages = [said(LETTERS), said("b"), user(LETTERS), said(LETTERS)]
    cut = view(*messages, rewrite=Rewrite(seen=before) if before else None)
    assert cut.cut(cut_at, 0, 300)
    assert cut.rewrite().seen == seen
