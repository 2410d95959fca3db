"""
Draw bars and numbers for a terminal, in a width, and with colours only where it shows them.

What strangers said is made harmless here: a name must not move the cursor.
"""

import os
import shutil
from dataclasses import dataclass
from typing import TextIO

GREEN, YELLOW, RED, CYAN, DIM, BOLD = "32", "33", "31", "36", "2", "1"
# What stands beside tables in pipes and files, whose width nobody knows.
_PIPE_WIDTH = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Screen:
    """
    What a stream can show.

    Attributes:
        width: Columns.
        is_live: Whether it is a terminal, whose cursor can be moved.
        colour: Whether to use ANSI colours.
        unicode: Whether blocks and arrows can be written.
    """

    width: int = 100
    is_live: bool = False
    colour: bool = False
    unicode: bool = True

    @classmethod
    def of(cls, stream: TextIO) -> "Screen":
        """What *stream* can show now; NO_COLOR and a dumb terminal are respected."""
        is_live = stream.isatty()
        encoding = (stream.encoding or "").lower().replace("-", "")
        return cls(
            width=shutil.get_terminal_size().columns if is_live else _PIPE_WIDTH,
            is_live=is_live,
            colour=is_live and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb",
            unicode=encoding.startswith("utf"),
        )

    @property
    def arrow(self) -> str:
        """What stands between a size before and one after."""
        return "→" if self.unicode else "->"

    def paint(self, text: str, code: str) -> str:
        """*text* in a colour, or as it is."""
        return f"\x1b[{code}m{text}\x1b[0m" if self.colour and text else text

    def fit(self, text: str, width: int) -> str:
        """*text*, which has no colours yet, made harmless and exactly *width* columns long."""
        kept = "".join(c if c.isprintable() else "?" for c in text)
        if not self.unicode:
            kept = kept.encode("ascii", "replace").decode()
        if len(kept) > width > 0:
            kept = kept[: width - 1] + ("…" if self.unicode else "~")
        return kept[: max(0, width)].ljust(width)

    def bar(self, share: float, width: int, *, compact_at: float, compact_to: float = 0.0) -> str:
        """*share* of *width*, with marks where a compaction is due and what it aims for (0 for none)."""
        full, empty, due, aim = ("█", "·", "┃", "┊") if self.unicode else ("#", ".", "|", ":")
        filled = round(min(1.0, max(0.0, share)) * width)
        marks = {
            min(width - 1, round(at * width)): mark
            for at, mark in ((compact_to, aim), (compact_at, due))
            if at
        }
        over = compact_at and share > compact_at
        colour = RED if share > 0.9 else YELLOW if over else GREEN
        rest = "".join(marks.get(i, empty) for i in range(filled, width))
        return self.paint(full * filled, colour) + self.paint(rest, DIM)


def grouped(value: int) -> str:
    """12345 is "12,345"."""
    return f"{value:,}"


def short(value: int) -> str:
    """At most six characters: 12345 is "12.3k"."""
    if value < 10_000:
        return grouped(value)
    if value < 999_500:
        return f"{value / 1000:.1f}k" if value < 99_950 else f"{value / 1000:.0f}k"
    return f"{value / 1e6:.2f}M"


def ago(seconds: float) -> str:
    """How long ago something was."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s ago"
    if whole < 3600:
        return f"{whole // 60} min ago"
    return f"{whole // 3600} h ago" if whole < 86400 else f"{whole // 86400} d ago"
