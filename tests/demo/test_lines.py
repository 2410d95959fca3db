"""The demo's lines fit the terminal, say what happened, and are plain where they must be."""

import re

import pytest

from proxy.demo.lines import Look, event_lines, head_line, number, summary_lines, turn_line
from proxy.demo.seen import Event, Outcome, TurnSeen

PLAIN = Look(width=80)
COMPACTED = Event(
    name="context.compacted",
    fields={
        "tokens_before": 3082,
        "tokens_after": 1840,
        "turns": 3,
        "calls": 5,
        "notes_tokens": 390,
        "notes_prompt_tokens": 3356,
        "notes_cached_tokens": 2909,
        "seconds": 10.548,
        "folded": True,
    },
)
TRIMMED = Event(name="context.trimmed", fields={"tokens_before": 4355, "tokens_after": 2795, "messages": 8})
FAILED = Event(name="context.compaction_failed", fields={"reason": "empty", "retry_after_turns": 3})
UNTOLD = Event(
    name="context.compacted",
    fields={"notes_prompt_tokens": None, "notes_cached_tokens": None, "seconds": None},
)


def turn(number_: int = 7, prompt: int = 2050, **changes: object) -> TurnSeen:
    fields: dict[str, object] = {
        "number": number_,
        "whole": 5000,
        "prompt": prompt,
        "budget": 4084,
        "processed": 302,
        "cached": 1748,
    }
    return TurnSeen(**(fields | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    look = Look(width=width)
    lines = [head_line(look), turn_line(turn(), look), turn_line(turn(error="x" * 300), look)]
    lines += [line for event in (COMPACTED, TRIMMED, FAILED) for line in event_lines(event, look)]
    assert max(map(len, lines)) <= max(width, 45)


def test_a_bar_is_as_long_as_the_prompt_is_of_the_budget() -> None:
    assert turn_line(turn(prompt=0), PLAIN).count("█") == 0
    half = turn_line(turn(prompt=2042), PLAIN)
    full = turn_line(turn(prompt=4084), PLAIN)
    assert half.count("█") == round(full.count("█") / 2)
    assert turn_line(turn(prompt=9999), PLAIN).count("█") == full.count("█")


def test_a_turn_shows_prompt_budget_processed_and_cached() -> None:
    assert re.search(r"2 050 / 4 084\s+302\s+1 748$", turn_line(turn(), PLAIN))


def test_a_budget_that_was_not_told_is_no_error() -> None:
    assert "/ 0" in turn_line(turn(budget=0), PLAIN)


def test_a_failed_turn_says_why() -> None:
    assert turn_line(turn(error="400: too long"), PLAIN) == "   7  failed: 400: too long"


def test_a_compaction_shows_before_and_after() -> None:
    assert event_lines(COMPACTED, PLAIN) == [
        "      ▼ compacted: 3 082 → 1 840 tokens",
        "        3 turns and 5 calls became 390 tokens of notes (2 909 cached, 10.5 s)",
    ]


def test_trims_and_failures_are_shown_too() -> None:
    assert event_lines(TRIMMED, PLAIN) == ["      ▼ trimmed: 4 355 → 2 795 tokens, 8 messages shortened"]
    assert event_lines(FAILED, PLAIN) == ["      ! no usable notes (empty); not again for 3 turns"]
    assert event_lines(Event(name="context.other", fields={}), PLAIN) == []


def test_what_an_event_does_not_tell_is_no_error() -> None:
    assert event_lines(UNTOLD, PLAIN)[0] == "      ▼ compacted: 0 → 0 tokens"


@pytest.mark.parametrize("look", [PLAIN, Look(unicode=False)])
def test_without_colour_there_is_no_escape(look: Look) -> None:
    lines = [head_line(look), turn_line(turn(), look), *event_lines(COMPACTED, look)]
    assert not any("\x1b" in line for line in lines)


def test_without_unicode_every_line_is_ascii() -> None:
    look = Look(unicode=False, width=50)
    lines = [
        head_line(look),
        turn_line(turn(), look),
        *event_lines(COMPACTED, look),
        *event_lines(TRIMMED, look),
    ]
    assert all(line.isascii() for line in lines)


def test_colour_paints_without_changing_what_is_said() -> None:
    painted = turn_line(turn(), Look(colour=True))
    assert "\x1b[32m" in painted
    assert re.sub(r"\x1b\[\d*m", "", painted) == turn_line(turn(), PLAIN)


def test_the_summary_adds_up() -> None:
    turns = [
        turn(1, processed=900, whole=900),
        turn(2, processed=300, whole=4200, events=(COMPACTED, FAILED)),
    ]
    outcome = Outcome(turns=turns, window=4096, died_at=2, sliding_cut=9466)
    assert summary_lines(outcome, PLAIN) == [
        "turns       2, 0 errors",
        "session     4 200 tokens, 1.0 windows of 4 096",
        "compactions 1 (1 folding), 1 without usable notes",
        f"processed   {number(900 + 300 + 447)} tokens in all, 447 of them for notes",
        "            9 466 if old turns were cut on each call instead",
        "without it  dead at turn 2: 4 200 tokens for a window of 4 096",
    ]


def test_a_session_that_fits_would_not_have_died() -> None:
    outcome = Outcome(turns=[turn(1, whole=900)], window=4096, died_at=None, sliding_cut=900)
    assert summary_lines(outcome, PLAIN)[-1] == "without it  the session would have fitted"
