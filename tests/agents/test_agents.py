"""
Agents as they are shipped notice nothing of a run three times as long as the window.

`python -m tests.agents.run --install` installs them and does the same.
"""

from pathlib import Path

import pytest

from tests.agents.agents import AGENTS, PI
from tests.agents.installing import PACKAGES, main
from tests.agents.running import run
from tests.agents.seen import Run, explain
from tests.support.scripted import ScriptedUpstream


@pytest.mark.slow
@pytest.mark.parametrize("name", AGENTS)
async def test_an_agent_notices_nothing(name: str, tmp_path: Path) -> None:
    package = AGENTS[name].package
    if not package.is_installed:
        pytest.skip(f"{name} is not installed; python -m tests.agents.installing {name}")
    seen = await run(AGENTS[name], tmp_path)
    assert not seen.faults, explain(seen)


def test_a_run_that_came_to_nothing_says_so() -> None:
    seen = Run(
        agent=PI,
        exit_code=1,
        output="Error: 400 the request exceeds the context",
        upstream=ScriptedUpstream(window=16384),
        marks=["mark-0-of-the-shop"],
        compacted=0,
        trimmed=0,
        outside=["telemetry.invalid:443"],
    )
    assert seen.faults == [
        "it ended with 1",
        "its last text is not in its output",
        "its output says 'error'",
        "its output says 'exceed'",
        "it tried to reach ['telemetry.invalid:443']",
        "its task did not reach the model",
        "of 1 files 0 reached the model whole",
        "no list of the files reached the model",
        "it was compacted 0 times",
    ]


def test_what_cannot_be_installed_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["no-such-agent"]) == 1
    assert capsys.readouterr().err == f"no-such-agent: not one of {', '.join(PACKAGES)}\n"


def test_agents_are_installed_outside_the_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = PACKAGES["pi"].folder
    assert folder == tmp_path / "compaction-proxy" / "agents" / "pi-coding-agent-0.73.1"
    assert not PACKAGES["pi"].is_installed
