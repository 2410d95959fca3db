"""A proxy that is killed at any moment finds its store again; the short form of `benchmarks.kill`."""

import sys

import pytest

from benchmarks import kill

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="sees from /proc that a process is there")


async def test_a_kill_at_any_moment_changes_no_view() -> None:
    report = await kill.run(3, seed=1, agents=3)
    assert report.wrong == []
    assert report.kills == 3
    assert report.turns >= 9
