"""The page of survival is what the command prints, and what code keeps survives whole within its rooms."""

import asyncio

import pytest

from benchmarks import survival

# For the notes alone; a model that drops everything drops these.
BY_NOTES = {"decision only spoken"}
# Has a room that the small window makes too small for so many calls.
IN_LEDGER = {"file read", "file edited", "command and its error", "search", "page fetched"}


@pytest.fixture(scope="module")
def page() -> survival.Page:
    return asyncio.run(survival.measure_all())


def test_the_page_is_what_the_command_prints(page: survival.Page) -> None:
    assert page.text() == survival.PAGE.read_text(encoding="utf-8"), (
        "docs/survival.md is old: python -m benchmarks.survival --write"
    )


def test_what_code_keeps_survives_every_fold_within_its_rooms(page: survival.Page) -> None:
    lost = {
        kind: shares
        for kind, shares in page.roomy.survival.items()
        if kind not in BY_NOTES and set(shares.values()) != {1.0}
    }
    assert lost == {}
    assert len(page.roomy.survival) == 12
    assert all(tuple(shares) == survival.FOLDS for shares in page.roomy.survival.values())


def test_what_only_notes_can_keep_survives_where_they_say_it(page: survival.Page) -> None:
    for kind in BY_NOTES:
        assert set(page.roomy.survival[kind].values()) == {0.0}
        assert set(page.noted.survival[kind].values()) == {1.0}


def test_in_a_small_window_only_the_list_of_calls_gives_way(page: survival.Page) -> None:
    lost = {kind for kind, shares in page.tight.survival.items() if set(shares.values()) != {1.0}}
    assert lost <= BY_NOTES | IN_LEDGER
    assert "file edited" not in lost


def test_the_block_stays_small(page: survival.Page) -> None:
    # Task, users, system, notes, ledger and to-dos have rooms of 15, 10, 10, 10, 5 and 5 %.
    assert max(page.roomy.block_share, page.noted.block_share, page.tight.block_share) < 0.55
