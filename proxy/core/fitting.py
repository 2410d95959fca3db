"""
Fit a text under a head into a room of tokens: whole, or with its middle cut out.

`cutting` does the same by characters, for texts that stay where they are; this is for the
parts of the block, whose rooms are in tokens of the `count` that is passed in.
"""

from collections.abc import Callable

Count = Callable[[str], int]

# Less of a text than this says nothing.
_SHORTEST_CUT_CHARS = 40


def fit(text: str, head: str, room: int, count: Count) -> str:
    """*text* under *head*, its middle cut out to fit *room*; empty where too little would be left."""
    whole = f"{head}\n{text}"
    if count(whole) <= room:
        return whole
    low, high, best = _SHORTEST_CUT_CHARS, len(text) - 1, ""
    while low <= high:
        kept = (low + high) // 2
        tail = kept // 3
        cut = len(text) - kept
        piece = (
            f"{head}\n{text[: kept - tail]}\n[… {cut} characters cut out here …]\n{text[len(text) - tail :]}"
        )
        if count(piece) <= room:
            best, low = piece, kept + 1
        else:
            high = kept - 1
    return best
