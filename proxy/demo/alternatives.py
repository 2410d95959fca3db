"""
Compute what the same session would have met without the proxy.

Both answers rest on the server's own count of the unshortened prompts.
"""

from collections.abc import Sequence


def died_at(whole: Sequence[int], window: int) -> int | None:
    """The first turn (from 1) that llama.cpp refuses: a prompt of *window* tokens or more. None if none."""
    return next((turn for turn, tokens in enumerate(whole, start=1) if tokens >= window), None)


def processed_by_sliding_cut(whole: Sequence[int], budget: int) -> int:
    """
    Tokens processed if the oldest turns were dropped on each call, just as many as it takes to fit.

    Such a cut moves on nearly every call; behind the brief nothing of the server's
    cached prefix is then left.
    """
    brief = whole[0]
    processed, dropped = brief, 0
    for i in range(1, len(whole)):
        cut = dropped
        while cut < i and brief + whole[i] - whole[cut] > budget:
            cut += 1
        moved = cut != dropped
        processed += whole[i] - whole[cut] if moved else whole[i] - whole[i - 1]
        dropped = cut
    return processed
