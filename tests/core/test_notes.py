"""Which answers may stand for the replaced turns, and what is left of them."""

import pytest

from proxy.core.notes import (
    RETRY_INSTRUCTION,
    RETRY_LARGE,
    RETRY_TOOL,
    Accepted,
    Flag,
    Reason,
    Rejected,
    instruct,
    judge,
    reasoning_allowance,
    without_reasoning,
)
from tests.core.sessions import tokens

ROOM = 100
GOOD = "The user wants the rate changed.\nThe agent changed it in rates.py.\nThe tests passed."
LINE = "The agent looked at one more part of the shop and found nothing.\n"


def judged(text: str, **how: object) -> Accepted | Rejected:
    asked = {
        "reasoned": False,
        "called": False,
        "cut": False,
        "room": ROOM,
        "count": tokens,
        "sources": (),
        "written": 0,
    }
    return judge(text, **(asked | how))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "how", "reason"),
    [
        pytest.param("", {}, Reason.EMPTY, id="nothing"),
        pytest.param(" \n\t ", {}, Reason.EMPTY, id="white space"),
        pytest.param("", {"reasoned": True}, Reason.ONLY_REASONING, id="reasoning beside it"),
        pytest.param("<think>Let me see", {}, Reason.ONLY_REASONING, id="reasoning that never ends"),
        pytest.param("<think>So.</think>\n", {}, Reason.ONLY_REASONING, id="reasoning alone"),
        pytest.param("<thinking>So", {"cut": True}, Reason.ONLY_REASONING, id="reasoning up to the limit"),
        pytest.param(GOOD, {"called": True}, Reason.TOOL_CALL, id="a call beside text"),
        pytest.param(
            'Now:\n<tool_call>{"name": "read"}</tool_call>', {}, Reason.TOOL_MARKUP, id="a call as markup"
        ),
        pytest.param('[TOOL_CALLS][{"name": "read"}]', {}, Reason.TOOL_MARKUP, id="Mistral's markup"),
        pytest.param("<|python_tag|>read()", {}, Reason.TOOL_MARKUP, id="Llama's markup"),
        pytest.param("<function=read>", {}, Reason.TOOL_MARKUP, id="a function tag"),
        pytest.param('{"name": "read", "arguments": {}}', {}, Reason.TOOL_MARKUP, id="a call as JSON"),
        pytest.param('```json\n[{"name": "read", "parameters": {}}]```', {}, Reason.TOOL_MARKUP, id="fenced"),
        pytest.param(LINE * 20, {}, Reason.TOO_LARGE, id="far larger than its room"),
        pytest.param("word " * 90, {"cut": True}, Reason.EMPTY, id="cut in its only line"),
        pytest.param("One.\n" + "word " * 90, {"cut": True}, Reason.TOO_LARGE, id="cut, hardly a line whole"),
    ],
)
def test_no_notes(text: str, how: dict[str, object], reason: Reason) -> None:
    verdict = judged(text, **how)
    assert isinstance(verdict, Rejected)
    assert verdict.reason is reason


@pytest.mark.parametrize(
    ("text", "how", "notes", "flags"),
    [
        pytest.param(GOOD, {}, GOOD, (), id="as they are"),
        pytest.param(f"\n\n{GOOD}\n", {}, GOOD, (), id="without space around"),
        pytest.param(f"<think>So.\n\nWell.</think>\n{GOOD}", {}, GOOD, (), id="without reasoning"),
        pytest.param(f"So the user\n</think>\n{GOOD}", {}, GOOD, (), id="reasoning opened by the template"),
        pytest.param("I would call <tool_call> here.", {}, "I would call <tool_call> here.", (), id="quoted"),
        pytest.param(
            LINE * 4 + "The agent then", {"cut": True}, (LINE * 4).rstrip(), (Flag.CUT,), id="to a full line"
        ),
        pytest.param(
            LINE * 3 + "It ended. The agent then",
            {"cut": True},
            LINE * 3 + "It ended.",
            (Flag.CUT,),
            id="to a full sentence",
        ),
        pytest.param(
            LINE * 7, {"cut": True}, (LINE * 5).rstrip(), (Flag.CUT,), id="cut at a limit over its room"
        ),
    ],
)
def test_notes(text: str, how: dict[str, object], notes: str, flags: tuple[Flag, ...]) -> None:
    assert judged(text, **how) == Accepted(notes, flags)


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("lines", range(1, 40))
def test_accepted_notes_are_never_larger_than_their_room(lines: int, cut: bool) -> None:
    verdict = judged(LINE * lines, cut=cut)
    assert isinstance(verdict, Rejected) or tokens(verdict.notes) <= ROOM


@pytest.mark.parametrize(
    ("text", "sources", "copied"),
    [
        pytest.param(GOOD, (GOOD,), True, id="a whole text"),
        pytest.param(GOOD, (GOOD.replace("\n", "  \n "),), True, id="with other white space"),
        pytest.param(LINE * 5, ("Before.\n" + LINE + "After.",), True, id="its lines"),
        pytest.param(LINE * 2 + GOOD, (LINE,), False, id="a quotation"),
        pytest.param(GOOD, ("The agent changed it.",), False, id="in its own words"),
    ],
)
def test_a_copy_of_the_input_is_flagged_not_rejected(
    text: str, sources: tuple[str, ...], copied: bool
) -> None:
    verdict = judged(text, sources=sources)
    assert isinstance(verdict, Accepted)
    assert (Flag.COPIED in verdict.flags) is copied


@pytest.mark.parametrize(
    ("text", "copied"),
    [
        pytest.param(LINE * 4 + GOOD, True, id="all of them"),
        pytest.param(GOOD, True, id="a part of them"),
        pytest.param(GOOD.replace("\n", " \n\n"), True, id="with other white space"),
        pytest.param(LINE * 4 + GOOD + "\nThen it changed the receipts.", False, id="and one thing more"),
        pytest.param("The agent changed the rate and the receipts.", False, id="in other words"),
    ],
)
def test_earlier_notes_may_be_carried_over_but_not_without_anything_new(text: str, copied: bool) -> None:
    verdict = judged(text, earlier=LINE * 4 + GOOD, room=200)
    assert isinstance(verdict, Accepted)
    assert (Flag.COPIED in verdict.flags) is copied


def test_only_calls_are_worth_another_word() -> None:
    assert judged("", called=True) == Rejected(Reason.TOOL_CALL, RETRY_TOOL)
    assert judged("<tool_call>") == Rejected(Reason.TOOL_MARKUP, RETRY_TOOL)
    assert judged("") == Rejected(Reason.EMPTY)


def test_the_instruction_asks_for_less_than_there_is_room() -> None:
    text = instruct("In {language}, {words} words, {as} it is.\n", language="French", notes_max=1000)
    assert text == "In French, 600 words, {as} it is."
    again = instruct("{words}", language="French", notes_max=10, correction="Shorter.")
    assert again == "50\n\nShorter."


@pytest.mark.parametrize(("window", "allowance"), [(4096, 512), (131072, 2048)])
def test_reasoning_has_an_allowance_of_its_own(window: int, allowance: int) -> None:
    assert reasoning_allowance(2048, window) == allowance


@pytest.mark.parametrize("text", ["<think>" * 2000, "</think>" * 2000, "<think>a</thinking>" * 500])
def test_odd_reasoning_tags_take_no_time(text: str) -> None:
    assert len(without_reasoning(text)) <= len(text)


# To the character: a token a character, and a room of a hundred


@pytest.mark.parametrize(
    ("text", "how", "notes", "flags"),
    [
        pytest.param("a" * 100, {}, "a" * 100, (), id="just its room"),
        pytest.param("a" * 99 + "\nb", {"cut": True}, "a" * 99, (Flag.CUT,), id="one over: to the full line"),
        pytest.param(
            "a" * 49 + ("\n" + "b" * 49) * 2,
            {"cut": True},
            "a" * 49 + "\n" + "b" * 49,
            (Flag.CUT,),
            id="lines",
        ),
        pytest.param(
            "a" * 50 + "\n" + "b" * 49 + "\nc", {"cut": True}, "a" * 50, (Flag.CUT,), id="no room for its end"
        ),
        pytest.param(
            "a" * 10 + "\nb", {"cut": True}, "a" * 10, (Flag.CUT,), id="a tenth of the room is enough"
        ),
        pytest.param(
            "a" * 98 + ". b", {"cut": True}, "a" * 98 + ".", (Flag.CUT,), id="a sentence that just fits"
        ),
        pytest.param(
            "a" * 90 + "\nb" + "b" * 7 + ". c",
            {"cut": True},
            "a" * 90 + "\n" + "b" * 8 + ".",
            (Flag.CUT,),
            id="a line and a sentence that just fit",
        ),
        pytest.param(
            "a" * 90 + "\nb" + "b" * 8 + ". c",
            {"cut": True},
            "a" * 90,
            (Flag.CUT,),
            id="a line, and a sentence that just does not fit",
        ),
        pytest.param("  " + "a" * 60 + ". b", {"cut": True}, "a" * 60 + ".", (Flag.CUT,), id="space around"),
        pytest.param(
            "a" * 60 + "\n  b. c", {"cut": True}, "a" * 60 + "\n  b.", (Flag.CUT,), id="a sentence set in"
        ),
        pytest.param(
            "a" * 90 + "\n. b", {"cut": True}, "a" * 90, (Flag.CUT,), id="a lone stop is no sentence"
        ),
        pytest.param("a" * 90 + "\nx. b", {"cut": True}, "a" * 90 + "\nx.", (Flag.CUT,), id="a short one is"),
        pytest.param("a" * 90 + "\nno end", {"cut": True}, "a" * 90, (Flag.CUT,), id="no sentence ends"),
        pytest.param(
            "a" * 60 + "\nb. c. d", {"cut": True}, "a" * 60 + "\nb. c.", (Flag.CUT,), id="the last end"
        ),
        pytest.param(
            "one\n" + "a" * 60 + "\n\nb", {"cut": True}, "one\n" + "a" * 60, (Flag.CUT,), id="no blank end"
        ),
        *(
            pytest.param(
                "a" * 60 + f"\nb{end}c",
                {"cut": True},
                "a" * 60 + f"\nb{end.rstrip()}",
                (Flag.CUT,),
                id=f"it ends with {end!r}",
            )
            for end in (". ", "。", "! ", "? ", "; ")
        ),
    ],
)
def test_what_is_left_of_notes_that_are_too_long(
    text: str, how: dict[str, object], notes: str, flags: tuple[Flag, ...]
) -> None:
    assert judged(text, count=len, **how) == Accepted(notes, flags)


@pytest.mark.parametrize(
    ("text", "cut", "verdict"),
    [
        pytest.param("a" * 100, False, Accepted("a" * 100), id="just as much"),
        pytest.param("a" * 101, False, Rejected(Reason.TOO_LARGE, RETRY_LARGE), id="one token over it"),
        pytest.param("a" * 150, False, Rejected(Reason.TOO_LARGE, RETRY_LARGE), id="half over it"),
        pytest.param("a" * 151, False, Rejected(Reason.TOO_LARGE), id="more: not worth another try"),
        pytest.param(
            "a" * 9 + "\n" + "b" * 95, True, Rejected(Reason.TOO_LARGE), id="cut, less than a tenth is left"
        ),
    ],
)
def test_notes_that_ended_by_themselves_over_their_room_are_refused(
    text: str, cut: bool, verdict: Accepted | Rejected
) -> None:
    assert judged(text, count=len, cut=cut) == verdict


@pytest.mark.parametrize(
    ("written", "accepted"),
    [
        pytest.param(0, False, id="it did not say"),
        pytest.param(100, True, id="just its room"),
        pytest.param(101, False, id="one token over it"),
        pytest.param(70, True, id="half of ours"),
        pytest.param(69, False, id="less than half: of something else"),
    ],
)
def test_the_upstreams_own_count_says_whether_notes_are_over_their_room(written: int, accepted: bool) -> None:
    verdict = judged("a" * 140, count=len, written=written)
    assert isinstance(verdict, Accepted) is accepted


@pytest.mark.parametrize(
    ("text", "notes"),
    [
        pytest.param(
            "a" * 40 + ". " + "b" * 40 + ". " + "c" * 40 + ". d",
            "a" * 40 + ". " + "b" * 40 + ".",
            id="two fit",
        ),
        pytest.param("a" * 40 + ". " + "b" * 57 + ". c", "a" * 40 + ". " + "b" * 57 + ".", id="two just fit"),
        pytest.param(
            "a" * 40 + ". " + "b" * 58 + ". c", "a" * 40 + ".", id="the second is one token too many"
        ),
        pytest.param("a. " * 200, ("a. " * 33).rstrip(), id="as many as fit"),
        pytest.param(
            "a" * 60 + "\n" + "b. " * 30 + "c", "a" * 60 + "\n" + ("b. " * 13).rstrip(), id="after a line"
        ),
    ],
)
def test_of_a_long_line_its_first_sentences_are_kept(text: str, notes: str) -> None:
    """Small models write all on one line."""
    assert judged(text, cut=True, count=len) == Accepted(notes, (Flag.CUT,))


def test_the_sentences_of_a_long_line_are_counted_in_tokens() -> None:
    assert judged("a. " * 200, cut=True) == Accepted(("a. " * 133).rstrip(), (Flag.CUT,))


@pytest.mark.parametrize("line", ["a" * 40, "a" * 39])
@pytest.mark.parametrize("lines", [3, 4])
def test_a_copy_is_four_long_lines_or_more(line: str, lines: int) -> None:
    verdict = judged("\n".join([line] * lines + ["own words"]), sources=(f"x{line}x",), room=10**4)
    assert isinstance(verdict, Accepted)
    assert (Flag.COPIED in verdict.flags) is (len(line) >= 40 and lines >= 4)


@pytest.mark.parametrize(("own", "copied"), [(1, True), (2, False)])
def test_a_copy_has_four_of_five_lines_from_elsewhere(own: int, copied: bool) -> None:
    text = "\n".join(["a" * 40] * 4 + [f"{i}" * 41 for i in range(own)])
    verdict = judged(text, sources=("b", "a" * 40), room=10**4)
    assert isinstance(verdict, Accepted)
    assert (Flag.COPIED in verdict.flags) is copied


def test_a_line_does_not_run_from_one_source_into_the_next() -> None:
    half = "a" * 20
    verdict = judged("\n".join([half + half] * 4), sources=(half, half), room=10**4)
    assert verdict == Accepted("\n".join([half + half] * 4))


ASKED = "Write a record of what\nhas happened in this conversation so far. Be brief. Goal: what is wanted."


@pytest.mark.parametrize(
    ("text", "left"),
    [
        pytest.param(f"Write a record of what has  happened in this\n{GOOD}", GOOD, id="a line of it"),
        pytest.param(f"{GOOD}\n{'has happened in this conversation'}", GOOD, id="at the end"),
        pytest.param(
            f"has happened in this conversa\n{GOOD}", f"has happened in this conversa\n{GOOD}", id="29 chars"
        ),
        pytest.param(f"has happened in this conversat\n{GOOD}", GOOD, id="30 characters"),
        pytest.param(f"Goal: what is wanted.\n{GOOD}", f"Goal: what is wanted.\n{GOOD}", id="a heading"),
        pytest.param(f"{GOOD}\n\n  Then it ended.", f"{GOOD}\n\n  Then it ended.", id="nothing of it"),
    ],
)
def test_what_repeats_the_instruction_is_left_out(text: str, left: str) -> None:
    assert judged(text, instruction=ASKED) == Accepted(left)
    assert judged(text) == Accepted(text)


def test_an_answer_that_is_nothing_but_the_instruction_is_told_so() -> None:
    line = "Write a record of what has happened"
    assert judged(f"{line}\n\n{line}", instruction=ASKED) == Rejected(Reason.EMPTY, RETRY_INSTRUCTION)


def test_a_window_that_is_no_multiple_leaves_whole_tokens_for_reasoning() -> None:
    assert str(reasoning_allowance(2048, 4095)) == "511"


def test_a_line_is_no_copy_of_what_only_stands_between_two_sources() -> None:
    copied = [letter * 45 for letter in "abc"]
    notes = "\n".join([*copied, "o" * 45, "XX" + "y" * 45])
    verdict = judged(notes, sources=("z", "y" * 45, *copied), room=10**4)
    assert verdict == Accepted(notes)
