"""
What has become of the recent conversations?

The state behind the status page: fed by small calls while requests are prepared and
answered, read as the values of `board_rows`. It is bounded in number and in memory,
newest first, and holds numbers only; the block that stands for old turns is kept where
`show_content` says so.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from proxy.board_rows import Change, Counted, Request, Story, Summary, Totals, What
from proxy.core.budget import Budget
from proxy.dialects.base import Usage

# A page of this many is more than a person looks through; 500 requests are a long session.
MOST_CONVERSATIONS = 100
MOST_STEPS = 500
# Names come from clients.
_MOST_NAME_CHARS = 100
# Rooms of a block are shares of the budget, so this cuts only what no window holds.
_MOST_BLOCK_CHARS = 200_000
_NOTHING: Mapping[str, int] = {}
# Members of `Totals`.
_COUNTED_AS = {
    What.COMPACTED: "compactions",
    What.MASKED: "masks",
    What.TRIMMED: "trims",
    What.FAILED: "failures",
}


@dataclass(slots=True)
class _Row:
    known: Summary
    requests: deque[Request]
    changes: deque[Change]
    counted: Counted
    changed: dict[str, Any]
    revision: int = 0
    noting: int = 0
    block: str = ""

    @property
    def tokens(self) -> int:
        """Of the newest prompt."""
        tokens: int = self.changed.get("tokens", self.known.tokens)
        return tokens

    def summary(self) -> Summary:
        """The row as it is shown; made where somebody looks."""
        if self.changed:
            self.known = replace(self.known, totals=self.counted.totals(), **self.changed)
            self.changed.clear()
        return self.known


class Board:
    """
    For one event loop.

    Args:
        now: Seconds since the epoch.
        most: Conversations that are kept, the longest unheard go first; 0 keeps none.
        most_steps: Requests, and changes, that are kept of each.
        show_content: Whether blocks are kept.
    """

    def __init__(
        self,
        *,
        now: Callable[[], float],
        most: int = MOST_CONVERSATIONS,
        most_steps: int = MOST_STEPS,
        show_content: bool = False,
    ) -> None:
        self._now = now
        self._most = most
        self._most_steps = most_steps
        self._rows: OrderedDict[str, _Row] = OrderedDict()
        self.show_content = show_content
        self.revision = 0
        """Grows with every change of anything here."""
        self.forgotten = 0
        """Conversations that had to go."""
        self._counted = Counted()
        self.on_change: Callable[[], None] = lambda: None

    @property
    def totals(self) -> Totals:
        """Of all conversations since the proxy started."""
        return self._counted.totals()

    def prepared(
        self,
        conversation: str,
        *,
        model: str,
        turns: int,
        tokens: int,
        budget: Budget,
        outcome: str,
        block: str = "",
    ) -> None:
        """A request is about to go upstream; *block* is what stands for its old turns."""
        row = self._row(conversation, model)
        number = row.counted["requests"] + 1
        row.requests.append(
            Request(
                number=number, at=self._now(), turn=turns, tokens=tokens, budget=budget.limit, outcome=outcome
            )
        )
        row.block = _clean(block, _MOST_BLOCK_CHARS, lines=True) if self.show_content else ""
        self._heard(
            row,
            {"requests": 1},
            model=_clean(model),
            turns=turns,
            tokens=tokens,
            budget=budget.limit,
            window=budget.window,
            compact_at=budget.compact_at,
            compact_to=budget.compact_to,
            last_outcome=outcome,
        )

    def answered(self, conversation: str, tokens: int, usage: Usage) -> None:
        """The upstream reported *usage* of the request that was measured as *tokens*."""
        row = self._rows.get(conversation)
        if row is None:
            return
        for i in range(len(row.requests) - 1, -1, -1):
            request = row.requests[i]
            if request.tokens == tokens and not request.is_answered:
                row.requests[i] = replace(request, tokens=usage.prompt, cached=usage.cached, is_answered=True)
                break
        self._heard(
            row,
            {"prompt_tokens": usage.prompt, "cached_tokens": usage.cached or 0},
            tokens=usage.prompt if row.tokens == tokens else row.tokens,
        )

    def compacted(
        self,
        conversation: str,
        *,
        model: str,
        before: int,
        after: int,
        turns: int,
        seconds: float,
        trigger: str,
    ) -> None:
        """Notes stand for *turns* turns now."""
        self._changed(
            self._row(conversation, model),
            what=What.COMPACTED,
            before=before,
            after=after,
            turns=turns,
            seconds=round(seconds, 3),
            why=trigger,
        )

    def masked(
        self, conversation: str, *, model: str, before: int, after: int, seconds: float, trigger: str
    ) -> None:
        """Old results were cut to a line each."""
        self._changed(
            self._row(conversation, model),
            what=What.MASKED,
            before=before,
            after=after,
            seconds=round(seconds, 3),
            why=trigger,
        )

    def trimmed(self, conversation: str, *, model: str, before: int, after: int, cut: str) -> None:
        """Long texts, or turns, were cut so that the view fits."""
        self._changed(self._row(conversation, model), what=What.TRIMMED, before=before, after=after, why=cut)

    def failed(self, conversation: str, *, model: str, tokens: int, reason: str) -> None:
        """Notes came to nothing; the prompt stays at *tokens*."""
        self._changed(
            self._row(conversation, model), what=What.FAILED, before=tokens, after=tokens, why=reason
        )

    def noting(self, conversation: str, model: str, *, begins: bool) -> None:
        """A request begins, or ends, to wait for notes."""
        row = self._row(conversation, model)
        row.noting = max(0, row.noting + (1 if begins else -1))
        self._heard(row, is_noting=row.noting > 0)

    def summaries(self, since: int = -1) -> tuple[Summary, ...]:
        """What changed after the revision *since*, newest first; everything without it."""
        return tuple(row.summary() for row in reversed(self._rows.values()) if row.revision > since)

    def story(self, conversation: str) -> Story | None:
        """The time line of a conversation; None where it is not known, or no more."""
        row = self._rows.get(conversation)
        if row is None:
            return None
        block = row.block if self.show_content and row.block else None
        return Story(
            conversation=row.summary(),
            requests=tuple(row.requests),
            changes=tuple(row.changes),
            block=block,
        )

    def _row(self, conversation: str, model: str) -> _Row:
        row = self._rows.get(conversation)
        if row is None:
            summary = Summary(id=conversation, model=_clean(model), first_at=self._now())
            requests: deque[Request] = deque(maxlen=self._most_steps)
            changes: deque[Change] = deque(maxlen=self._most_steps)
            row = _Row(known=summary, requests=requests, changes=changes, counted=Counted(), changed={})
            self._rows[conversation] = row
            while len(self._rows) > self._most:
                self._rows.popitem(last=False)
                self.forgotten += 1
        return row

    def _changed(
        self,
        row: _Row,
        *,
        what: What,
        before: int,
        after: int,
        turns: int = 0,
        seconds: float = 0.0,
        why: str = "",
    ) -> None:
        change = Change(
            # It comes before the request that it was made for.
            number=row.counted["requests"] + 1,
            at=self._now(),
            what=what,
            before=before,
            after=after,
            turns=turns,
            seconds=seconds,
            why=why,
        )
        row.changes.append(change)
        self._heard(row, {_COUNTED_AS[what]: 1}, last=change)

    def _heard(self, row: _Row, more: Mapping[str, int] = _NOTHING, **changed: Any) -> None:
        """*more* was counted, and members of the summary have *changed*."""
        row.counted.add(more)
        self._counted.add(more)
        row.changed.update(changed, last_at=self._now())
        self.revision += 1
        row.revision = self.revision
        if row.known.id in self._rows:
            self._rows.move_to_end(row.known.id)
        self.on_change()


def _clean(text: str, most: int = _MOST_NAME_CHARS, *, lines: bool = False) -> str:
    """*text* with what is no character, and what moves a terminal's cursor, made visible; bounded."""
    if text.isprintable():
        return text[:most]
    kept = "\n\t" if lines else ""
    return "".join(c if c.isprintable() or c in kept else "\ufffd" for c in text[:most])
