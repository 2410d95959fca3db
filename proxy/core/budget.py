"""
Measure a prompt against what the upstream can hold.

The budget says *whether* a prompt is too long; `plan` says *what* to replace. The
tokenizer is not known here: sizes come in as numbers.

Every quantity is in tokens unless its name says otherwise.
"""

from dataclasses import dataclass, replace

from proxy.errors import ConfigError

# A reserve of an eighth, but enough for an answer with a tool call, and no more than
# long answers need.
_RESERVE_DIVISOR, _RESERVE_LEAST, _RESERVE_MOST = 8, 1024, 8192
# A request's own limit is often far more than it will use: believed up to this share.
_LARGEST_SHARE_DIVISOR = 4
# Over this share of the budget a compaction is worth a smaller gain.
_PRESSING_SHARE = 0.95
# Turns get this share of the budget beside tools and brief, or so much where that is less: with
# fewer no cut would rest. For that the reserve gives way, down to this part of the window.
_LEAST_TURNS_SHARE = 0.4
_LEAST_TURNS = 4096
_LEAST_RESERVE_DIVISOR = 16
# Within this share of a limit an estimate is too rough.
_NEAR_SHARE = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """
    How much of the context window a prompt may fill.

    Attributes:
        window: Prompt plus completion, as the upstream enforces it.
        reserve: Kept free for the completion.
        compact_at: Share of `limit` above which turns are replaced by notes; 0 for never.
        compact_to: Share of `limit` that a compaction aims for.

    Raises:
        ConfigError: If no room is left, or compact_to is not below compact_at.
    """

    window: int
    reserve: int
    compact_at: float = 0.6
    compact_to: float = 0.25

    def __post_init__(self) -> None:
        if self.limit <= 0:
            raise ConfigError(
                f"budget: a window of {self.window} leaves nothing after a reserve of "
                f"{self.reserve}; lower `reserve` or give the server a larger context"
            )
        # The gap keeps a conversation that hovers at compact_at from paying for
        # notes, and for a rewritten prefix, on every turn.
        if self.compact_at and not 0 < self.compact_to < self.compact_at <= 1:
            raise ConfigError(
                f"budget: need 0 < compact_to < compact_at <= 1, got {self.compact_to} "
                f"and {self.compact_at}; leave both out for 0.25 and 0.6"
            )

    @property
    def limit(self) -> int:
        """The largest prompt that is sent."""
        return self.window - self.reserve

    def with_room_for_turns(self, fixed: int) -> "Budget":
        """
        The same with less kept free where *fixed*, tools and brief, leaves turns too little of it.

        Where they take even more than all of it nothing is changed: that is the upstream's to judge.
        """
        if fixed > self.limit:
            return self
        least = min(self.reserve, self.window // _LEAST_RESERVE_DIVISOR)
        needed = fixed + min(int(_LEAST_TURNS_SHARE * self.limit), _LEAST_TURNS)
        reserve = min(self.reserve, max(least, self.window - needed))
        return replace(self, reserve=reserve)

    def is_over(self, prompt: int) -> bool:
        """Whether a *prompt* has passed `compact_at`."""
        return self.compact_at > 0 and prompt > self.compact_at * self.limit

    def will_rest(self, prompt: int) -> bool:
        """Whether a compacted *prompt* is so far below `compact_at` that it can grow for a while."""
        return prompt <= (self.compact_at + self.compact_to) / 2 * self.limit

    def is_pressing(self, prompt: int) -> bool:
        """Whether a *prompt* is so long that even a small gain is worth a rewrite."""
        return self.compact_at > 0 and prompt > max(_PRESSING_SHARE, self.compact_at) * self.limit

    def fits(self, prompt: int) -> bool:
        """Whether a *prompt* may be sent."""
        return prompt <= self.limit

    def is_near_a_limit(self, prompt: int) -> bool:
        """Whether an estimate of *prompt* is too rough to decide by."""
        limits = (self.compact_at * self.limit, self.limit)
        return any(abs(prompt - limit) <= _NEAR_SHARE * limit for limit in limits if limit)


def reserve_for(window: int, output_limit: int | None, configured: int | None, *, enforced: bool) -> int:
    """
    Tokens to keep for the completion.

    Args:
        window: What the upstream holds.
        output_limit: The request's own, None without one.
        configured: `context.reserve`, None for auto.
        enforced: Whether the upstream refuses prompt + limit > window (vLLM does).
    """
    if output_limit is not None and enforced:
        return output_limit
    # In a window of a few thousand tokens the least reserve would be most of it.
    most = window // _LARGEST_SHARE_DIVISOR
    if output_limit is not None:
        return min(output_limit, most)
    if configured is not None:
        return configured
    return min(most, max(_RESERVE_LEAST, min(_RESERVE_MOST, window // _RESERVE_DIVISOR)))
