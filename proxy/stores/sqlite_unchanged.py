"""
Tell without asking SQLite that nothing was written to its file.

Asking takes a thread, and most requests only learn that nothing is stored for them. Whoever commits,
in this process or another, writes to the file or to the log beside it, and the file system keeps when.
"""

import os
import time
from pathlib import Path

# What was written so shortly before a look may be written once more without a trace: file systems
# keep times to two seconds at worst.
_SETTLED_SECONDS = 3.0
# Where a time has a part of a second it is the system's clock at its last tick, 1 to 10 ms ago.
_SETTLED_WITH_PARTS_SECONDS = 0.2
_SECOND_NS = 1_000_000_000

_Mark = tuple[tuple[int, int, int] | None, ...]


class Unchanged:
    """
    The last state of one file that is known.

    Args:
        path: Of the file; its log stands beside it.
    """

    def __init__(self, path: Path) -> None:
        self._paths = (str(path), f"{path}-wal")
        self._known: _Mark | None = None

    def look(self) -> _Mark | None:
        """The state now, for `read`; None where the next change might not show."""
        mark = self._mark()
        if mark[0] is None:
            return None
        newest = max(entry[2] for entry in mark if entry is not None)
        settled = _SETTLED_WITH_PARTS_SECONDS if newest % _SECOND_NS else _SETTLED_SECONDS
        return mark if time.time() - newest / _SECOND_NS > settled else None

    def read(self, mark: _Mark | None) -> None:
        """What the file held in the state *mark*, which was looked at before, has been read."""
        self._known = mark

    def holds(self) -> bool:
        """Whether the file is as it was when it was read. Asks the file system, not the disk."""
        known = self._known
        return known is not None and known == self._mark()

    def _mark(self) -> _Mark:
        return tuple(map(_state, self._paths))


def _state(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
