"""What the board keeps of conversations, and what it lets go."""

import orjson
import pytest

from proxy.board import Board
from proxy.board_rows import What
from proxy.core.budget import Budget
from proxy.dialects.base import Usage

BUDGET = Budget(window=1000, reserve=200)


class Clock:
    """Seconds that pass when they are told to."""

    def __init__(self) -> None:
        self.at = 100.0

    def __call__(self) -> float:
        self.at += 1
        return self.at


def ask(
    board: Board, conversation: str = "a", *, tokens: int = 300, block: str = "", model: str = "m"
) -> None:
    board.prepared(
        conversation, model=model, turns=2, tokens=tokens, budget=BUDGET, outcome="none", block=block
    )


def test_a_request_is_shown_with_its_budget_and_thresholds() -> None:
    board = Board(now=Clock())
    ask(board)
    (row,) = board.summaries()
    assert (row.id, row.model, row.turns, row.tokens, row.budget, row.window) == ("a", "m", 2, 300, 800, 1000)
    assert (row.compact_at, row.compact_to) == (0.6, 0.25)


def test_the_upstreams_count_takes_the_place_of_the_estimate() -> None:
    board = Board(now=Clock())
    ask(board, tokens=300)
    board.answered("a", 300, Usage(prompt=320, completion=5, cached=200))
    story = board.story("a")
    assert story is not None
    assert [(r.tokens, r.cached, r.is_answered) for r in story.requests] == [(320, 200, True)]
    assert story.conversation.tokens == 320
    assert (story.conversation.totals.prompt_tokens, story.conversation.totals.cached_tokens) == (320, 200)


def test_answers_find_their_request_among_parallel_ones() -> None:
    board = Board(now=Clock())
    ask(board, tokens=300)
    ask(board, tokens=400)
    board.answered("a", 300, Usage(prompt=310, completion=5, cached=None))
    story = board.story("a")
    assert story is not None
    assert [(r.tokens, r.is_answered) for r in story.requests] == [(310, True), (400, False)]
    assert story.conversation.tokens == 400


def test_a_change_is_told_with_the_request_that_it_was_made_for() -> None:
    board = Board(now=Clock())
    ask(board)
    board.compacted("a", model="m", before=700, after=200, turns=9, seconds=1.5, trigger="threshold")
    ask(board, tokens=200)
    board.trimmed("a", model="m", before=900, after=600, cut="result")
    board.failed("a", model="m", tokens=700, reason="empty")
    board.masked("a", model="m", before=800, after=300, seconds=0.01, trigger="threshold")
    story = board.story("a")
    assert story is not None
    told = [(c.what, c.number, c.before, c.after, c.why) for c in story.changes]
    assert told == [
        (What.COMPACTED, 2, 700, 200, "threshold"),
        (What.TRIMMED, 3, 900, 600, "result"),
        (What.FAILED, 3, 700, 700, "empty"),
        (What.MASKED, 3, 800, 300, "threshold"),
    ]
    totals = story.conversation.totals
    assert (totals.requests, totals.compactions, totals.trims, totals.failures) == (2, 1, 1, 1)
    assert totals.masks == 1
    assert board.totals == totals


def test_a_change_may_come_before_the_first_request() -> None:
    board = Board(now=Clock())
    board.compacted("a", model="m", before=700, after=200, turns=9, seconds=1.5, trigger="threshold")
    ask(board)
    story = board.story("a")
    assert story is not None
    assert (story.requests[0].number, story.changes[0].number) == (1, 1)


def test_waiting_for_notes_ends_with_the_last_that_waits() -> None:
    board = Board(now=Clock())
    board.noting("a", "m", begins=True)
    board.noting("a", "m", begins=True)
    board.noting("a", "m", begins=False)
    assert board.summaries()[0].is_noting
    board.noting("a", "m", begins=False)
    assert not board.summaries()[0].is_noting


def test_newest_come_first_and_the_longest_unheard_go() -> None:
    board = Board(now=Clock(), most=2)
    for conversation in ("a", "b", "a", "c"):
        ask(board, conversation)
    assert [row.id for row in board.summaries()] == ["c", "a"]
    assert (board.story("b"), board.forgotten) == (None, 1)
    assert board.totals.requests == 4


def test_steps_of_one_conversation_are_bounded_and_its_counts_go_on() -> None:
    board = Board(now=Clock(), most_steps=3)
    for tokens in range(10):
        ask(board, tokens=tokens)
    story = board.story("a")
    assert story is not None
    assert [r.number for r in story.requests] == [8, 9, 10]
    assert story.conversation.totals.requests == 10


def test_a_board_of_none_keeps_none() -> None:
    board = Board(now=Clock(), most=0)
    ask(board)
    board.answered("a", 300, Usage(prompt=320, completion=5, cached=200))
    assert board.summaries() == ()


def test_only_what_changed_since_is_told() -> None:
    board = Board(now=Clock())
    ask(board, "a")
    seen = board.revision
    ask(board, "b")
    assert [row.id for row in board.summaries(since=seen)] == ["b"]
    assert board.summaries(since=board.revision) == ()


def test_each_change_is_announced() -> None:
    board = Board(now=Clock())
    heard: list[int] = []
    board.on_change = lambda: heard.append(board.revision)
    ask(board)
    board.noting("a", "m", begins=True)
    assert heard == [1, 2]


@pytest.mark.parametrize(
    ("show_content", "kept"),
    [pytest.param(False, None, id="off: not kept"), pytest.param(True, "the block", id="on: kept")],
)
def test_the_block_is_kept_only_where_content_is_shown(show_content: bool, kept: str | None) -> None:
    board = Board(now=Clock(), show_content=show_content)
    ask(board, block="the block")
    story = board.story("a")
    assert story is not None
    assert story.block == kept
    assert ("the block" in repr(vars(board))) is show_content


@pytest.mark.parametrize(
    ("model", "shown"),
    [
        pytest.param("m\x1b[2J", "m\ufffd[2J", id="an escape sequence"),
        pytest.param("a\nb", "a\ufffdb", id="a line break"),
        pytest.param("\ud800x", "\ufffdx", id="a lone surrogate"),
        pytest.param("a\u202eb", "a\ufffdb", id="a turn of the writing direction"),
        pytest.param("x" * 5000, "x" * 100, id="too long"),
    ],
)
def test_names_are_shortened_and_made_harmless(model: str, shown: str) -> None:
    board = Board(now=Clock())
    ask(board, model=model)
    assert board.summaries()[0].model == shown
    assert orjson.dumps(board.story("a"))
