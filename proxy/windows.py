"""
Know the window of each model, and what its server is.

Asked once per model and kept; asked again after an overflow answer, and after a while,
since servers are restarted with other settings. A configured window always wins.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from proxy.core.overflow import LEAST_WINDOW, Overflow, sane_window
from proxy.discovery import Ask, Found, ServerKind, discover
from proxy.events import emit, log_fault

# A restarted server is noticed after this at the latest; a smaller window shows itself
# earlier, by an overflow answer.
FRESH_SECONDS = 300.0
# Where the upstream could not be asked, sooner.
RETRY_SECONDS = 10.0
# Where there was nobody at all: until a server that is started has been asked, nothing is compacted.
ABSENT_SECONDS = 1.0
# All questions together: a request waits for the answers when a model is new.
LONGEST_SECONDS = 10.0
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
        longest_seconds: For all questions about a model together.
    """

    def __init__(
        self,
        ask: Ask,
        *,
        configured: int | None,
        now: Callable[[], float],
        kind: str = "",
        on_window: Callable[[str, int], None] = lambda model, window: None,
        longest_seconds: float = LONGEST_SECONDS,
    ) -> None:
        self._ask = ask
        self._configured = configured
        self._now = now
        self._kind = ServerKind(kind) if kind else None
        self._on_window = on_window
        self._longest_seconds = longest_seconds
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._asking: dict[str, asyncio.Task[_Known]] = {}

    async def of(self, model: str, headers: Sequence[tuple[str, str]]) -> Found:
        """What is known of *model*; never raises. Requests that come at once ask once."""
        known = self._known.get(model)
        if known is not None:
            if self._now() - known.asked_at >= _fresh_seconds(known.found):
                # Behind the request's back: a server that has fallen silent holds up one
                # request for each model, not one every ten seconds.
                self._begin(model, headers)
            return self._in_force(known)
        return self._in_force(await self._asked(model, headers))

    def configure(self, configured: int | None) -> None:
        """Take another `context.window`, None for auto."""
        self._configured = configured
        for model, known in self._known.items():
            if window := self._in_force(known).window:
                self._on_window(model, window)

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
        known = await self._asked(model, headers)
        window = sane_window(overflow, output_limit=output_limit, largest_prompt_that_worked=known.worked)
        found = self._in_force(known)
        if window is not None and (found.window is None or window < found.window):
            self._learned(model, known, window)
        return self._in_force(known)

    def guess(self, model: str, refused: int) -> None:
        """
        A prompt of about *refused* tokens did not fit, and nobody says what would.

        Without a guess every later request would be refused first. What was refused is above
        the window and what worked below it; the next refusal lowers the guess.
        """
        known = self._known.get(model)
        if known is None or known.found.window is not None or self._configured is not None:
            return
        window = max(LEAST_WINDOW, known.worked + 1, refused)
        if known.learned is None or window < known.learned:
            self._learned(model, known, window)

    def _learned(self, model: str, known: _Known, window: int) -> None:
        known.learned = window
        emit("context.window_learned", model=model, window=window)
        self._on_window(model, window)

    async def _asked(self, model: str, headers: Sequence[tuple[str, str]]) -> _Known:
        # One client that leaves must not take the answer from the others.
        return await asyncio.shield(self._begin(model, headers))

    def _begin(self, model: str, headers: Sequence[tuple[str, str]]) -> asyncio.Task[_Known]:
        task = self._asking.get(model)
        if task is None:
            task = self._asking[model] = asyncio.create_task(self._discover(model, headers))
            task.add_done_callback(lambda _: self._asking.pop(model, None))
        return task

    async def _discover(self, model: str, headers: Sequence[tuple[str, str]]) -> _Known:
        found = Found(kind=self._kind or ServerKind.OTHER, answered=False)
        try:
            async with asyncio.timeout(self._longest_seconds):
                found = await discover(self._ask, model, headers, kind=self._kind)
        except TimeoutError:
            emit("upstream.silent", level=logging.WARNING, model=model, seconds=self._longest_seconds)
        except Exception:
            log_fault("discovery")
        return self._note(model, found)

    def _note(self, model: str, found: Found) -> _Known:
        old = self._known.get(model)
        if old is not None and found.window is None and old.found.window is not None:
            # It does not answer now: what it said before is the better guess.
            found = old.found
        # A restarted server may hold less than what once worked, so that only counts
        # where the server itself still says the same.
        same = old is not None and old.found.window == found.window
        known = self._known[model] = _Known(
            found=found,
            asked_at=self._now(),
            worked=old.worked if old and same else 0,
            learned=old.learned if old and same else None,
        )
        self._known.move_to_end(model)
        while len(self._known) > _MOST_MODELS:
            self._known.popitem(last=False)
        window = self._in_force(known).window
        if window and not same:
            self._on_window(model, window)
        return known

    def _in_force(self, known: _Known) -> Found:
        if known.learned is not None:
            return replace(known.found, window=known.learned, window_source="an overflow answer")
        if self._configured is not None:
            return replace(known.found, window=self._configured, window_source="context.window")
        return known.found


def _fresh_seconds(found: Found) -> float:
    """How long what was found is good for."""
    if found.window:
        return FRESH_SECONDS
    return RETRY_SECONDS if found.answered else ABSENT_SECONDS
