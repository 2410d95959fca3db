"""
What do the upstream's answers teach of its window, and of what a text takes there?

Both are believed only as far as they can be true; `windows` and `counting` keep them.
"""

from dataclasses import replace

from proxy.asked import Asked, Prepared
from proxy.board import Board
from proxy.core.budget import Budget
from proxy.core.overflow import MOST_WINDOW, Overflow
from proxy.dialects.base import Usage
from proxy.discovery import Found
from proxy.looking import Looking
from proxy.metrics import Metrics
from proxy.sizing import Sizing
from proxy.windows import Windows

# After an overflow answer without numbers this share of what did not fit is tried.
_BLIND_SHARE = 0.8


class Lessons:
    """Learns from answers. For one event loop."""

    def __init__(
        self, *, windows: Windows, sizing: Sizing, looking: Looking, metrics: Metrics, board: Board
    ) -> None:
        self._windows = windows
        self._counts = sizing.counts
        self._looking = looking
        self._metrics = metrics
        self._board = board

    async def of_overflow(self, asked: Asked, overflow: Overflow, before: Prepared) -> None:
        """What an answer says that refused *before* as too long."""
        conversation = asked.parsed.conversation
        if overflow.prompt and before.key:
            self._counts.remember(conversation.model, before.key, overflow.prompt)
            self._counts.learn(conversation.model, before.raw, overflow.prompt, before.attachments)
        found = await self._windows.learn(
            conversation.model, overflow, asked.headers, conversation.output_limit
        )
        if found.window is None or (overflow.window is None and overflow.prompt is None):
            # What the answer says of the prompt may be as wrong as what it says of the window.
            refused = max(overflow.prompt or 0, before.tokens or await self._size(asked, found))
            self._windows.guess(conversation.model, refused)

    def of_answer(self, prepared: Prepared, usage: Usage) -> None:
        """What the upstream said of a request that was answered."""
        model = self._metrics.model(prepared.model)
        self._metrics.answered(model, usage)
        # Also where no window is known yet: an overflow answer must not teach one below it.
        self._windows.worked(prepared.model, usage.prompt)
        if prepared.key:
            error = abs(prepared.tokens - usage.prompt) / usage.prompt
            self._metrics.estimate_error.labels(model).observe(error)
            self._counts.remember(prepared.model, prepared.key, usage.prompt)
            self._counts.learn(prepared.model, prepared.raw, usage.prompt, prepared.attachments)
            self._board.answered(prepared.conversation, prepared.tokens, usage)

    async def _size(self, asked: Asked, found: Found) -> int:
        """About how many tokens a request has that was forwarded untouched."""
        anything = Budget(window=MOST_WINDOW, reserve=0)
        look = await self._looking.look(asked, asked.parsed.conversation, None, found, anything)
        return look.total


def shrunk(budget: Budget, total: int) -> Budget:
    """A budget that *total*, which was refused, does not fit."""
    limit = max(1, int(_BLIND_SHARE * total))
    return replace(budget, window=limit + budget.reserve)
