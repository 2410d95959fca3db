"""
The recorded session that the demo's agent replays, and how much of it to replay.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

# A session must be worth several compactions to show what they do.
WINDOWS_LONG = 4


@dataclass(frozen=True, slots=True)
class Session:
    """A recording in the OpenAI chat format. For each turn the agent sends what stands before it."""

    messages: tuple[dict[str, Any], ...]
    tools: tuple[dict[str, Any], ...]

    @property
    def turns(self) -> tuple[int, ...]:
        """Indices of the assistant messages: turn 1 is the request that asks for the first of them."""
        return tuple(i for i, message in enumerate(self.messages) if message["role"] == "assistant")

    def before(self, turn: int) -> list[dict[str, Any]]:
        """The messages of the request for *turn*, counted from 1."""
        return list(self.messages[: self.turns[turn - 1]])


def load_session() -> Session:
    """The recording that is shipped."""
    recorded = json.loads(files("proxy.demo").joinpath("session.json").read_text(encoding="utf-8"))
    return Session(messages=tuple(recorded["messages"]), tools=tuple(recorded["tools"]))


def is_enough(whole: Sequence[int], window: int, asked: int | None) -> bool:
    """
    Whether the turns counted so far are all that is to be replayed.

    Args:
        whole: Tokens of the unshortened prompt at each of them.
        window: Tokens that the server holds.
        asked: How many the person asked for, or None: then it takes `WINDOWS_LONG` windows.
    """
    if asked is not None:
        return len(whole) >= asked
    return bool(whole) and whole[-1] >= WINDOWS_LONG * window
