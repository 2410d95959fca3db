"""
Look at a history as it would be sent: the view, its size, and the terms that hold for it.
"""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from proxy.asked import Asked, Trigger
from proxy.config import ContextConfig
from proxy.core.block import Rooms
from proxy.core.budget import Budget, reserve_for
from proxy.core.digests import caller
from proxy.core.messages import Conversation, View, has_reasoned
from proxy.core.notes import reasoning_allowance
from proxy.core.plan import Policy
from proxy.core.rewrite import Rewrite
from proxy.core.splice import splice
from proxy.discovery import Found, count
from proxy.errors import ConfigError
from proxy.sizing import Measured, Sizing
from proxy.upstream import Upstream

# A server that did not count when asked made the request wait for it: estimates serve for
# so many questions.
_SKIPS_AFTER_SILENCE = 20
_NOTES_DIVISOR, _NOTES_LEAST, _NOTES_MOST = 10, 256, 2048

# By so many tokens, and such a part of it, the size of a prompt may be wrong.
_LEAST_MARGIN, _MARGIN_DIVISOR = 64, 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """A view, and how large it is."""

    conversation: Conversation
    rewrite: Rewrite | None
    view: View
    measured: Measured

    @property
    def total(self) -> int:
        """Tokens of the whole prompt."""
        return self.measured.total


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """
    What holds for one request while it is prepared.

    Attributes:
        asked: The request.
        digests: Of every prefix of its messages.
        found: The server that it goes to.
        budget: What its prompt may fill.
        policy: What a compaction keeps.
        rooms: Room for the parts of a block.
        notes_room: The longest view that notes can be made over.
        allowance: Most tokens left for reasoning before the notes.
        allowance_needed: How many of them must be left: all where the model reasons here.
        trigger: What set a compaction off, if there is one.
        gate: How notes pass to the upstream that no request waits for; None where one does.
        count: Size of a text, at the scale of this very history: what other sessions taught of the
            model's tokens must not move what this one is shown.
    """

    asked: Asked
    digests: tuple[bytes, ...]
    found: Found
    budget: Budget
    policy: Policy
    rooms: Rooms
    notes_room: int
    allowance: int
    allowance_needed: int
    trigger: Trigger
    count: Callable[[str], int]
    gate: Callable[[], AbstractAsyncContextManager[None]] | None = None

    def allowance_for(self, prompt: int) -> int:
        """Tokens for reasoning in a notes request over a view of *prompt* tokens."""
        left = self.notes_room + self.allowance_needed - prompt
        if self.found.enforces_limit:
            # It refuses a request that is a few tokens over, and our count may be.
            left -= max(_LEAST_MARGIN, prompt // _MARGIN_DIVISOR)
        return max(0, min(self.allowance, left))

    @property
    def conversation_id(self) -> str:
        """Short id of the conversation, for logs: its brief's digest."""
        return self.digests[self.asked.parsed.conversation.brief_end].hex()[:12]


def budget_for(config: ContextConfig, conversation: Conversation, found: Found) -> Budget | None:
    """None where the window is not known, or the request's own limit leaves nothing of it."""
    if found.window is None:
        return None
    reserve = reserve_for(
        found.window,
        conversation.output_limit,
        None if config.reserve == "auto" else config.reserve,
        enforced=found.enforces_limit,
    )
    try:
        return Budget(
            window=found.window,
            reserve=reserve,
            compact_at=config.compact_at,
            compact_to=config.compact_to,
        )
    except ConfigError:
        return None


def beside_fixed(budget: Budget, look: Look, found: Found) -> Budget:
    """*budget* for the tools and brief of *look*; as it is where prompt and limit must fit together."""
    if found.enforces_limit and look.conversation.output_limit is not None:
        return budget
    return budget.with_room_for_turns(look.measured.sizes.fixed)


class Looking:
    """Makes looks and terms. For one event loop."""

    def __init__(self, config: ContextConfig, *, upstream: Upstream, sizing: Sizing) -> None:
        self._config = config
        self._upstream = upstream
        self._sizing = sizing
        self._skips = 0

    def terms(
        self,
        asked: Asked,
        digests: tuple[bytes, ...],
        found: Found,
        budget: Budget,
        trigger: Trigger,
        *,
        look: Look,
    ) -> Terms:
        """The terms for a request whose budget is known, and whose history was seen as *look*."""
        config = self._config
        auto = min(_NOTES_MOST, max(_NOTES_LEAST, budget.limit // _NOTES_DIVISOR))
        notes_max = auto if config.notes_max_tokens == "auto" else config.notes_max_tokens
        window = found.window or budget.window
        allowance = reasoning_allowance(config.notes_reasoning_tokens, window)
        count_text = self._sizing.counter(look.measured)
        instruction = count_text(config.notes_instruction)
        # A model that has never reasoned here is not kept from notes by room for it.
        needed = allowance if has_reasoned(look.conversation) else 0
        return Terms(
            asked=asked,
            digests=digests,
            found=found,
            budget=budget,
            policy=Policy(
                keep_turns=config.compact_keep_turns,
                min_gain=config.compact_min_gain,
                worth=config.compact_worth,
                notes_max=notes_max,
            ),
            rooms=Rooms(
                task=int(config.keep_task_share * budget.limit),
                users=int(config.keep_user_share * budget.limit),
                ledger=int(config.ledger_share * budget.limit),
                system=int(config.keep_user_share * budget.limit),
                todos=int(config.ledger_share * budget.limit),
            ),
            notes_room=window - notes_max - needed - instruction,
            allowance=allowance,
            allowance_needed=needed,
            trigger=trigger,
            count=count_text,
        )

    async def look(
        self,
        asked: Asked,
        conversation: Conversation,
        rewrite: Rewrite | None,
        found: Found,
        budget: Budget,
    ) -> Look:
        """
        The view of *conversation*, which may be a prefix of the one that was asked.

        Only where it is the whole is the upstream asked for its size.
        """
        view = splice(conversation, rewrite)
        dialect, parsed = asked.dialect, asked.parsed

        async def ask() -> int | None:
            if self._skips:
                self._skips -= 1
                return None
            body = dialect.render(parsed, view)
            said = await count(self._upstream.ask, found, f"/v1{dialect.endpoint}", body, asked.headers)
            self._skips = 0 if said is not None else _SKIPS_AFTER_SILENCE
            return said

        is_whole = len(conversation.messages) == len(parsed.conversation.messages)
        measured = await self._sizing.measure(
            conversation,
            rewrite,
            view,
            message_bytes=lambda shown: dialect.message_bytes((shown,))[0],
            # What the upstream said of a prompt is known to the caller alone who sent it.
            outside=caller(asked.credentials) + b"\0" + parsed.outside,
            budget=budget,
            ask=ask if found.count_path and is_whole else None,
        )
        return Look(conversation=conversation, rewrite=rewrite, view=view, measured=measured)
