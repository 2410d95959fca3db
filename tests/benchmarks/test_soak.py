"""Nothing is lost, mixed up or kept under load and faults; the short form of `benchmarks.soak`."""

import sys

import pytest

from benchmarks import soak


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="looks at the process through /proc")
async def test_everybody_gets_their_own_answer_and_nothing_is_kept() -> None:
    report, upstream = await soak.run(8, 10, pace_seconds=0.2, share=0.1)
    assert dict(report.wrong) == {}
    assert report.answered > 50
    assert upstream.kinds.total() > 3
