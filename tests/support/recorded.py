"""
Keep what reached a scripted upstream, and wait for more to reach it.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from tests.support.answers import Numbers
from tests.support.prompts import Prompt
from tests.support.translated import RESPONSES, as_chat, format_of


@dataclass(slots=True, eq=False)
class Recorded:
    """
    One request as it arrived, and what became of it.

    Attributes:
        path: With its query, as it was sent.
        headers: In order, names in lower case (the server makes them so), repeats included.
        json: The parsed body; None where it is not JSON.
        prompt: The rendered prompt of a chat completions request, else empty.
        numbers: What was counted; None until an answer was under way, and for refusals.
        status: Of the answer; 0 until it began.
        is_cancelled: The client left before the answer was complete.
        is_done: Answered to the end, or cancelled.
    """

    method: str
    path: str
    headers: list[tuple[str, str]]
    body: bytes
    json: Any = None
    prompt: Prompt = ()
    numbers: Numbers | None = None
    status: int = 0
    is_cancelled: bool = False
    is_done: bool = False

    @property
    def format(self) -> str:
        """The path of the format in which it asks for a completion; empty for other requests."""
        return format_of(self.path) if self.method == "POST" else ""

    @property
    def is_chat(self) -> bool:
        """Whether it asks for a completion, in any format."""
        return bool(self.format)

    @property
    def chat(self) -> dict[str, Any]:
        """It as a chat completions body; empty for nonsense."""
        return as_chat(self.path, self.json)

    @property
    def messages(self) -> list[Any]:
        """Of a request for a completion; empty where there is no list of them."""
        field = "input" if self.format == RESPONSES else "messages"
        messages = self.json.get(field) if isinstance(self.json, dict) else None
        return messages if isinstance(messages, list) else []

    def header(self, name: str) -> str | None:
        """The first value of *name*, or None."""
        return next((v for n, v in self.headers if n.lower() == name.lower()), None)


_S = TypeVar("_S")


@dataclass(slots=True)
class Changes(Generic[_S]):
    """Lets a test wait until something holds of *source*, without looking again and again."""

    source: _S
    _condition: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def tell(self) -> None:
        """Something changed: have every waiter ask again."""
        async with self._condition:
            self._condition.notify_all()

    async def until(self, holds: Callable[[_S], bool]) -> None:
        """Wait until *holds* is true; it is asked now and at every change."""
        async with self._condition:
            await self._condition.wait_for(lambda: holds(self.source))
