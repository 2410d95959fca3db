"""
Find the recorded agent sessions, and replay one as its agent sent it.

They are their authors' data and no part of this repository: a test that needs one skips
where the folder beside the repository is absent.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[3] / "shared" / "trajectories"
NAMES = (
    "lmcache_miniswe_ba443702",
    "pi_before_compaction_window1",
    "pi_large_session_raw_orphans",
    "taubench_airline_052",
)


@dataclass(frozen=True, slots=True)
class Trajectory:
    """A recorded session in the OpenAI chat format."""

    name: str
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]]

    def bodies(self, **members: Any) -> Iterator[dict[str, Any]]:
        """
        The request before each assistant message, in order.

        *members* are added to each body; `model` is there already.
        """
        for i, message in enumerate(self.messages):
            if message.get("role") == "assistant" and i > 0:
                body: dict[str, Any] = {"model": "scripted", "messages": self.messages[:i]}
                if self.tools:
                    body["tools"] = self.tools
                yield body | members


def load(name: str) -> Trajectory:
    """The session *name*, one of `NAMES`; skips the test where the recordings are absent."""
    path = FOLDER / f"{name}.json"
    if not path.exists():
        pytest.skip("the recorded sessions (../shared/trajectories) are not here")
    recorded = json.loads(path.read_text(encoding="utf-8"))
    return Trajectory(name=name, messages=recorded["messages"], tools=recorded.get("tools") or [])
