"""What compaction-conformance-kit finds of the sessions that it plants its canaries in."""

import pytest

pytest.importorskip("compaction_kit", reason="compaction-conformance-kit is not installed")


def test_every_type_stays_whole_for_every_round() -> None:
    from benchmarks.conformance import ROUNDS, reports

    for session, report in reports(seeds=(1,)).items():
        assert len(report.findings) == 5
        curves = {finding.canary_type: finding.curve for finding in report.findings}
        assert curves == {kind: [1.0] * ROUNDS for kind in curves}, session
