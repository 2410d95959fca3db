"""
Say what the proxy would do with a recorded session, without any server.

The real compactor prepares every request of the recording; only the model server is
assumed (`replay_upstream`). So a person can choose `compact_at` before going live. Token
counts are estimates, and what depends on the assumed notes is an assumption as well.
"""

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from prometheus_client import CollectorRegistry

from proxy.asked import Asked, Outcome, Prepared
from proxy.board import Board
from proxy.board_rows import Change
from proxy.compactor import Compactor
from proxy.config import Config
from proxy.core.notes import reasoning_allowance
from proxy.counting import Counts
from proxy.dialects.base import Dialect, Parsed
from proxy.errors import NotUnderstood, ProxyError
from proxy.metrics import Metrics
from proxy.replay_files import Recording
from proxy.replay_upstream import AssumedServer, Cache, Seen, prompt_of
from proxy.sizing import Sizing
from proxy.stores.memory import MemoryStore
from proxy.tokenizer import Tokenizer
from proxy.turnstile import Turnstile
from proxy.windows import Windows

# Common on hardware at home; said wherever it is used.
DEFAULT_WINDOW = 32768


class NoRequest(ProxyError):
    """A body of the recording is no request of the endpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """
    One request of the recording.

    Attributes:
        number: From 1.
        turns: Turns in its history.
        whole: Tokens of the prompt as the client sent it.
        sent: Tokens of the prompt that goes upstream.
        budget: What a prompt may fill; 0 where the request leaves nothing.
        outcome: As in the header `x-compaction`.
        changes: Compactions, masks and trims made for it.
        processed: Tokens of it that the server had not cached.
        notes_processed: The same of the notes requests made for it.
        processed_alone: Tokens processed without the proxy.
        is_rewritten: Whether its prompt does not go on where the one before ended.
    """

    number: int
    turns: int
    whole: int
    sent: int
    budget: int
    outcome: Outcome
    changes: tuple[Change, ...] = ()
    processed: int = 0
    notes_processed: int = 0
    processed_alone: int = 0
    is_rewritten: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """
    Attributes:
        requests: Of the recording.
        compactions: Made.
        masks: Compactions without notes.
        trims: Made.
        rewritten: Requests whose prompt did not go on where the one before ended.
        processed: Tokens processed with the proxy, notes included.
        notes_processed: What of that was for notes.
        processed_alone: Tokens processed without it, up to the request that is refused.
        refused_alone: The first request that a server refuses without the proxy, or None.
        refused: Requests that do not fit even with it.
    """

    requests: int
    compactions: int
    masks: int
    trims: int
    rewritten: int
    processed: int
    notes_processed: int
    processed_alone: int
    refused_alone: int | None
    refused: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What would have happened. `notes_tokens` is None where notes are as long as they may be."""

    window: int
    compact_at: float
    compact_to: float
    notes_tokens: int | None
    turns: tuple[Turn, ...]
    totals: Totals


def replay(config: Config, recording: Recording, *, notes_tokens: int | None = None) -> Replayed:
    """
    Walk the requests of a recording through the compactor.

    Args:
        config: What holds; a window of "auto" is `DEFAULT_WINDOW`.
        recording: A session.
        notes_tokens: Assumed size of a set of notes; None for as long as they may be.

    Raises:
        NoRequest: If a body is none.
    """
    window = config.context.window
    window = DEFAULT_WINDOW if window == "auto" else window
    # Nobody reads a log here: what happened is told as the result.
    log = logging.getLogger("proxy")
    before, log.disabled = log.disabled, True
    try:
        walk = _Walk(config, recording.dialect, window, notes_tokens)
        turns = asyncio.run(walk.all(recording.bodies))
    finally:
        log.disabled = before
    return Replayed(
        window=window,
        compact_at=config.context.compact_at,
        compact_to=config.context.compact_to,
        notes_tokens=notes_tokens,
        turns=turns,
        totals=_totals(turns, window),
    )


class _Walk:
    """The compactor of `app`, with an assumed server behind it and nothing kept on disk."""

    def __init__(self, config: Config, dialect: Dialect, window: int, notes_tokens: int | None) -> None:
        self._dialect = dialect
        context = replace(config.context, window=window)
        self._tokenizer = Tokenizer()
        self._cache, self._cache_alone = Cache(), Cache()
        self._upstream = AssumedServer(
            window=window,
            dialect=dialect,
            notes_tokens=notes_tokens,
            allowance=reasoning_allowance(context.notes_reasoning_tokens, window),
            count=self._tokenizer.count,
            cache=self._cache,
        )
        self._board = Board(now=time.time)
        kind = "llama.cpp" if config.upstream.kind == "auto" else config.upstream.kind
        self._compactor = Compactor(
            context,
            upstream=self._upstream,
            store=MemoryStore(max_bytes=config.store.max_bytes),
            windows=Windows(self._upstream.ask, configured=window, now=time.monotonic, kind=kind),
            sizing=Sizing(self._tokenizer, Counts()),
            metrics=Metrics(CollectorRegistry()),
            turnstile=Turnstile(),
            board=self._board,
        )

    async def all(self, bodies: Sequence[bytes]) -> tuple[Turn, ...]:
        """Every request, in order."""
        try:
            return tuple([await self._one(number, body) for number, body in enumerate(bodies, 1)])
        finally:
            await self._upstream.close()

    async def _one(self, number: int, body: bytes) -> Turn:
        parsed = self._parsed(number, body)
        whole = self._count(parsed)
        prompt = prompt_of(self._dialect, body)
        alone = self._cache_alone.take(prompt)
        noted = len(self._upstream.notes)
        prepared = await self._compactor.prepare(
            Asked(
                dialect=self._dialect,
                parsed=parsed,
                url=self._upstream.target.url(f"/v1{self._dialect.endpoint}"),
                headers=(),
                credentials=(),
            )
        )
        before = self._cache.last_turn
        sent = prompt if prepared.body is None else prompt_of(self._dialect, prepared.body)
        seen = self._cache.take(sent, is_turn=True)
        tokens = prepared.tokens or whole
        size = whole / max(1, len(prompt))
        return Turn(
            number=number,
            turns=len(parsed.conversation.turns),
            whole=whole,
            sent=tokens,
            budget=prepared.budget,
            outcome=prepared.outcome,
            changes=self._changes(prepared),
            processed=_share(seen, tokens),
            notes_processed=sum(round(notes.new * size) for notes in self._upstream.notes[noted:]),
            processed_alone=_share(alone, whole),
            is_rewritten=not sent.startswith(before),
        )

    def _parsed(self, number: int, body: bytes) -> Parsed:
        try:
            return self._dialect.parse(body)
        except NotUnderstood as error:
            raise NoRequest(f"request {number} of the recording: {error}") from error

    def _count(self, parsed: Parsed) -> int:
        conversation = parsed.conversation
        messages = self._tokenizer.messages(conversation.messages)
        return sum(messages) + sum(map(self._tokenizer.count, conversation.fixed_texts))

    def _changes(self, prepared: Prepared) -> tuple[Change, ...]:
        story = self._board.story(prepared.conversation)
        if story is None:
            return ()
        number = story.conversation.totals.requests
        return tuple(change for change in story.changes if change.number == number)


def _share(seen: Seen, tokens: int) -> int:
    """What of a prompt of *tokens* is new."""
    return round(tokens * seen.new / seen.chars) if seen.chars else 0


def _totals(turns: Sequence[Turn], window: int) -> Totals:
    def count(what: str) -> int:
        return sum(change.what == what for turn in turns for change in turn.changes)

    # llama.cpp refuses a prompt that fills its window.
    refused = next((turn.number for turn in turns if turn.whole >= window), None)
    notes = sum(turn.notes_processed for turn in turns)
    until = turns if refused is None else turns[: refused - 1]
    return Totals(
        requests=len(turns),
        compactions=count("compacted"),
        masks=count("masked"),
        trims=count("trimmed"),
        rewritten=sum(turn.is_rewritten for turn in turns),
        processed=sum(turn.processed for turn in turns) + notes,
        notes_processed=notes,
        processed_alone=sum(turn.processed_alone for turn in until),
        refused_alone=refused,
        refused=sum(turn.sent >= window for turn in turns),
    )
