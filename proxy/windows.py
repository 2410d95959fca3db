"""
Know the window of each model, and what its server is.

Asked once per model and kept; asked again after an overflow answer, and after a while,
since servers are restarted with other settings. A configured window always wins.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from proxy.core.overflow import Overflow, sane_window
from proxy.discovery import Ask, Found, ServerKind, discover
from proxy.events import emit

# A restarted server is noticed after this at the latest; a smaller window shows itself
# earlier, by an overflow answer.
FRESH_SECONDS = 300.0
# Where the upstream could not be asked, sooner.
RETRY_SECONDS = 10.0
_MOST_MODELS = 200


@dataclass(slots=True)
class _Known:
    found: Found
    asked_at: float
    # The largest prompt that was answered: a window below it is nonsense.
    worked: int = 0
    learned: int | None = None


class Windows:
    """
    What is known of the models behind one upstream. For one event loop.

    Args:
        ask: The upstream.
        configured: `context.window`, None for auto.
        now: Seconds, monotonic.
        kind: `upstream.kind`, empty for auto.
        on_window: Told of every change of a model's window.
    """

    def __init__(
        self,
        ask: Ask,
        *,
        configured: int | None,
        now: Callable[[], float],
        kind: str = "",
        on_window: Callable[[str, int], None] = lambda model, window: None,
    ) -> None:
        self._ask = ask
        self._configured = configured
        self._now = now
        self._kind = ServerKind(kind) if kind else None
        self._on_window = on_window
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._asking: dict[str, asyncio.Task[Found]] = {}

    async def of(self, model: str, headers: Sequence[tuple[str, str]]) -> Found:
        """What is known of *model*; never raises. Requests that come at once ask once."""
        known = self._known.get(model)
        if known is not None:
            fresh = FRESH_SECONDS if known.found.window else RETRY_SECONDS
            if self._now() - known.asked_at < fresh:
                return self._in_force(known)
        task = self._asking.get(model)
        if task is None:
            task = asyncio.create_task(discover(self._ask, model, headers, kind=self._kind))
            self._asking[model] = task
            task.add_done_callback(lambda _: self._asking.pop(model, None))
        # One client that leaves must not take the answer from the others.
        found = await asyncio.shield(task)
        known = self._known.get(model)
        if known is None or known.asked_at < self._now():
            self._note(model, found)
        return self._in_force(self._known[model])

    def worked(self, model: str, prompt: int) -> None:
        """A prompt of that many tokens was answered."""
        known = self._known.get(model)
        if known is not None and prompt > known.worked:
            known.worked = prompt

    async def learn(
        self, model: str, overflow: Overflow, headers: Sequence[tuple[str, str]], output_limit: int | None
    ) -> Found:
        """
        What an overflow answer tells: the server is asked again, and the window in the answer
        is taken where it is sane and smaller than what the server says of itself.
        """
        before = self._known.pop(model, None)
        found = await self.of(model, headers)
        known = self._known[model]
        # A restarted server may hold less than what once worked, so that only counts
        # where the server itself still says so.
        still = before is not None and before.found.window == found.window
        known.worked = before.worked if before and still else 0
        known.learned = before.learned if before and still else None
        window = sane_window(overflow, output_limit=output_limit, largest_prompt_that_worked=known.worked)
        if window is not None and (found.window is None or window < found.window):
            known.learned = window
            emit("context.window_learned", model=model, window=window)
            self._on_window(model, self._in_force(known).window or 0)
        return self._in_force(known)

    def _note(self, model: str, found: Found) -> None:
        old = self._known.get(model)
        if old is not None and found.window is None and old.found.window is not None:
            # It does not answer now: what it said before is the better guess.
            found = old.found
        same = old is not None and old.found.window == found.window
        self._known[model] = _Known(
            found=found,
            asked_at=self._now(),
            worked=old.worked if old and same else 0,
            learned=old.learned if old and same else None,
        )
        self._known.move_to_end(model)
        while len(self._known) > _MOST_MODELS:
            self._known.popitem(last=False)
        window = self._in_force(self._known[model]).window
        if window and not same:
            self._on_window(model, window)

    def _in_force(self, known: _Known) -> Found:
        if known.learned is not None:
            return replace(known.found, window=known.learned, window_source="an overflow answer")
        if self._configured is not None:
            return replace(known.found, window=self._configured, window_source="context.window")
        return known.found
