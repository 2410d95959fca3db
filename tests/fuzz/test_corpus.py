"""What fuzzing found stays mended: each case that once failed is played again."""

from pathlib import Path

import pytest

from tests.fuzz.cases import Case
from tests.fuzz.play import INSTRUCTION, Echo, play
from tests.support.fronted import fronted, sample

_CASES = sorted((Path(__file__).parent / "corpus").glob("*.json"))


@pytest.mark.parametrize("kept", [pytest.param(path, id=path.stem) for path in _CASES])
async def test_a_case_that_once_failed_is_answered_as_it_must_be(kept: Path) -> None:
    case = Case.from_json(kept.read_text(encoding="utf-8"))
    context = {"window": case.window, "notes_instruction": INSTRUCTION}
    async with Echo().running() as echo, fronted(echo.upstream.url, context=context) as url:
        assert await play(case, url, echo) == ""
        assert await sample(url, "context_faults_total") == 0
