"""
What the demo saw: of each turn, and of each thing that the proxy did to the conversation.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One of the proxy's log events: `context.compacted`, `context.trimmed`, `context.compaction_failed`."""

    name: str
    fields: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnSeen:
    """
    One request of the agent, and its answer.

    Attributes:
        number: From 1.
        whole: Tokens of the unshortened prompt, by the server's own count.
        prompt: Tokens of the prompt that the proxy sent.
        budget: What it may fill; the one before where the proxy did not say (while it waits
            for notes, a stream's headers go out before it knows).
        processed: Tokens that the server had to process for it.
        cached: Tokens that it had already.
        seconds: From the request to the end of the answer, notes included.
        events: What the proxy did meanwhile.
        error: Why the request failed; empty where it did not.
    """

    number: int
    whole: int
    prompt: int = 0
    budget: int = 0
    processed: int = 0
    cached: int = 0
    seconds: float = 0.0
    events: tuple[Event, ...] = ()
    error: str = ""

    @property
    def processed_for_notes(self) -> int:
        """Tokens that the server had to process for notes."""
        return sum(
            (event.fields.get("notes_prompt_tokens") or 0) - (event.fields.get("notes_cached_tokens") or 0)
            for event in self.events
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The whole session, with what it would have met without the proxy (see `alternatives`)."""

    turns: Sequence[TurnSeen]
    window: int
    died_at: int | None
    sliding_cut: int

    @property
    def events(self) -> list[Event]:
        """Of all turns, in order."""
        return [event for turn in self.turns for event in turn.events]

    @property
    def errors(self) -> int:
        """Requests that failed."""
        return sum(bool(turn.error) for turn in self.turns)


class EventLog(logging.Handler):
    """Collects the proxy's events, which are records of the logger `proxy`, in place of printing them."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._events: list[Event] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep what concerns the conversation."""
        if record.getMessage().startswith("context."):
            fields = getattr(record, "fields", {})
            self._events.append(Event(name=record.getMessage(), fields=fields))

    def take(self) -> tuple[Event, ...]:
        """What was collected since the last call."""
        taken, self._events = tuple(self._events), []
        return taken

    def install(self) -> None:
        """Become the only handler of the proxy's log in this process."""
        log = logging.getLogger("proxy")
        log.handlers[:] = [self]
        log.setLevel(logging.INFO)
        log.propagate = False
