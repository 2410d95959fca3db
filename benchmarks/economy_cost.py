"""
What did one session cost behind the proxy, by the server's own numbers, over what it must cost?
"""

import json
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.economy_bounds import Prefixes
from tests.support.prompts import text_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """
    One request that reached the server.

    Attributes:
        view: Its prompt as tokens; of a notes request what stands before the instruction.
        prompt: Tokens of the whole prompt; 0 where it was refused.
        cached: How many of them the server had.
        is_notes: Whether it asked for notes.
    """

    view: Sequence[Hashable]
    prompt: int
    cached: int
    is_notes: bool


@dataclass(slots=True, kw_only=True)
class Cost:
    """
    Attributes:
        session: Its name.
        window: Tokens that the server held.
        history: Tokens of the longest request as the client sent it.
        requests: Of the client.
        refused: How many of them it got no answer to, or reached the server in vain.
        compactions: Made, a row of steps counted as one.
        trims: Made.
        asked: What reached the server, in order.
        users: Of each request the share of user messages that the server saw word for word.
    """

    session: str
    window: int
    history: int = 0
    requests: int = 0
    refused: int = 0
    compactions: int = 0
    trims: int = 0
    asked: list[Asked] = field(default_factory=list)
    users: list[float] = field(default_factory=list)

    @property
    def processed(self) -> int:
        """Tokens of all prompts that the server had to process, those of notes included."""
        return sum(one.prompt - one.cached for one in self.asked)

    @property
    def over_history(self) -> float:
        """Processed tokens over the history's own."""
        return self.processed / self.history

    @property
    def over_views(self) -> float:
        """Processed tokens over the least for what was sent."""
        seen = Prefixes()
        return self.processed / sum(seen.add(one.view) for one in self.asked)

    @property
    def fill(self) -> float:
        """Mean share of the window that the client's requests filled."""
        sizes = [one.prompt for one in self.asked if not one.is_notes]
        return sum(sizes) / len(sizes) / self.window

    @property
    def notes_cached(self) -> float | None:
        """Share of the notes requests' prompts that the server had; None where there were none."""
        notes = [one for one in self.asked if one.is_notes and one.prompt]
        whole = sum(one.prompt for one in notes)
        return sum(one.cached for one in notes) / whole if whole else None

    @property
    def users_kept(self) -> float:
        """Mean share of user messages that stood in the prompt word for word."""
        return sum(self.users) / len(self.users)


def users_shown(sent: dict[str, Any], view: bytes) -> float:
    """The share of the user messages in the body *sent* that the body *view* holds word for word."""
    said = {text_of(message) for message in sent["messages"] if message["role"] == "user"} - {""}
    shown = "\n".join(text_of(message) for message in json.loads(view)["messages"])
    return sum(text in shown for text in said) / len(said) if said else 1.0


HEADER = (
    "| session | window | requests | refused | history | processed | / history | / views | fill "
    "| user words | compactions | trims | notes cached |"
)


def row(cost: Cost) -> str:
    """A line of the table under `HEADER`."""
    cached = cost.notes_cached
    cells = (
        cost.session,
        str(cost.window),
        str(cost.requests),
        str(cost.refused),
        str(cost.history),
        str(cost.processed),
        f"{cost.over_history:.2f}",
        f"{cost.over_views:.3f}",
        f"{cost.fill:.0%}",
        f"{cost.users_kept:.0%}",
        str(cost.compactions),
        str(cost.trims),
        "-" if cached is None else f"{cached:.1%}",
    )
    return f"| {' | '.join(cells)} |"
