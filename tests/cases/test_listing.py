"""No reported failure is left out, and `docs/cases.md` says what the tests say."""

import json

import pytest

from tests.cases.listing import CHECKOUT, PAGE, Held, collected, held, ids, page
from tests.cases.not_ours import NEAREST, NOT_OURS

REPORTS = CHECKOUT.parent / "shared" / "cases" / "bug_reports.jsonl"


@pytest.fixture(scope="module")
def found() -> list[Held]:
    return held(collected())


def test_every_case_is_tested_or_said_not_to_apply(found: list[Held]) -> None:
    tested = {one.case for one in found}
    assert sorted(set(ids()) - tested - NOT_OURS.keys()) == []
    assert sorted(tested & NOT_OURS.keys()) == []


def test_no_test_names_a_case_that_is_not_listed(found: list[Held]) -> None:
    assert sorted({one.case for one in found} - set(ids())) == []
    assert len(set(ids())) == len(ids())


def test_few_cases_do_not_apply() -> None:
    assert len(NOT_OURS) <= len(ids()) / 10
    assert sorted((NOT_OURS.keys() | NEAREST.keys()) - set(ids())) == []


def test_the_page_is_what_the_tests_say(found: list[Held]) -> None:
    assert PAGE.read_text(encoding="utf-8") == page(found), "run python -m tests.cases.listing"


@pytest.mark.skipif(not REPORTS.exists(), reason="the reports themselves are not here")
def test_the_list_is_that_of_the_reports() -> None:
    lines = REPORTS.read_text(encoding="utf-8").splitlines()
    assert sorted(json.loads(line)["id"] for line in lines) == sorted(ids())
