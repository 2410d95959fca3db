"""
Which sessions does the benchmark of prompt economy replay?

The one recorded for this repository, and where the folder beside it is there, those of other
agents. Each is a list of requests, as its agent would send them.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from proxy.demo.session import load_session
from tests.support.trajectories import FOLDER, Trajectory

# By the name in the table. The fourth recording is malformed on purpose and belongs to no goal.
_RECORDED = {
    "airline": "taubench_airline_052",
    "issue": "lmcache_miniswe_ba443702",
    "coding": "pi_before_compaction_window1",
}
OWN = "own"


@dataclass(frozen=True, slots=True)
class Session:
    """A session by its name in the table, as the bodies of its requests."""

    name: str
    bodies: Sequence[dict[str, Any]]


def sessions(names: Sequence[str] = ()) -> list[Session]:
    """
    The sessions that are here, or those of *names* among them.

    Raises:
        ValueError: If there is none of a name.
    """
    found = [_own(), *_recorded()]
    unknown = set(names) - {session.name for session in found}
    if unknown:
        here = ", ".join(session.name for session in found)
        raise ValueError(f"no session {', '.join(sorted(unknown))} here; there are {here}")
    return [session for session in found if not names or session.name in names]


def _own() -> Session:
    session = load_session()
    trajectory = Trajectory(name=OWN, messages=list(session.messages), tools=list(session.tools))
    return Session(OWN, list(trajectory.bodies()))


def _recorded() -> list[Session]:
    found = []
    for name, file in _RECORDED.items():
        path = FOLDER / f"{file}.json"
        if path.exists():
            recorded = json.loads(path.read_text(encoding="utf-8"))
            tools = recorded.get("tools") or []
            bodies = Trajectory(name=name, messages=recorded["messages"], tools=tools).bodies()
            found.append(Session(name, list(bodies)))
    return found
