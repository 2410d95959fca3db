"""
Remember what each slot of a scripted upstream has processed, and queue for a free one.

As in llama.cpp a prompt goes to the free slot that shares the largest part of it, if
that is above a tenth, else to the one used longest ago; with every slot busy it waits
in line. Only prompts are remembered: generated tokens seldom render again exactly.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from tests.support.prompts import CHARS_PER_TOKEN, Prompt, common, count

_SIMILARITY = 0.1


class Slots:
    """The prompt caches of one server."""

    def __init__(self, number: int, chars_per_token: int = CHARS_PER_TOKEN) -> None:
        self._chars_per_token = chars_per_token
        # Oldest first.
        self._free: list[Prompt] = [()] * number
        self._places = asyncio.Semaphore(number)

    @contextlib.asynccontextmanager
    async def taken(self, prompt: Prompt) -> AsyncIterator[int]:
        """A slot for *prompt*; yields how many of its tokens were there already."""
        async with self._places:
            size = count(prompt, self._chars_per_token)
            shared = [common(held, prompt, self._chars_per_token) for held in self._free]
            best = max(range(len(shared)), key=shared.__getitem__)
            if shared[best] <= _SIMILARITY * size:
                best = 0
            cached = min(shared[best], size - 1)
            del self._free[best]
            try:
                yield cached
            finally:
                self._free.append(prompt)
