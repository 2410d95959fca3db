"""
How few tokens could a server process for these prompts?

The first bound is the history itself: every token of the longest request once. The second
is what was really sent: every token of every view once, where the longest beginning that a
prompt shares with any before it costs nothing, whatever a slot still holds of it.
"""

from collections.abc import Hashable, Sequence


class Prefixes:
    """Every beginning of every prompt so far, as tokens."""

    def __init__(self) -> None:
        self._root: dict[Hashable, dict[Hashable, object]] = {}

    def add(self, prompt: Sequence[Hashable]) -> int:
        """Tokens of *prompt* after the longest beginning that was there already; it is there from now on."""
        node = self._root
        known = 0
        for token in prompt:
            after = node.get(token)
            if after is None:
                break
            node = after  # type: ignore[assignment]  # a tree of dicts has no finite type
            known += 1
        for token in prompt[known:]:
            node[token] = node = {}  # type: ignore[assignment]
        return len(prompt) - known
