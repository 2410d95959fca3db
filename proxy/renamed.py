"""
Which answers does a client know by another id than the upstream does?

A stream that waited for notes was announced before the upstream had named its answer. Where
the client comes back with the announced id, the upstream is asked by its own.
"""

import re
from collections import OrderedDict
from collections.abc import Sequence

from proxy.core.digests import caller
from proxy.dialects.waiting import ANNOUNCED

# About 3 MB when full; an id is of use while its conversation goes on.
_MOST = 10_000
_AN_ID = re.compile(r"[A-Za-z0-9_.:~-]{1,200}")


class Renamed:
    """Ids of the last answers that were announced. For one event loop; forgotten at a restart."""

    def __init__(self, *, most: int = _MOST) -> None:
        self._theirs: OrderedDict[tuple[bytes, bytes], bytes] = OrderedDict()
        self._most = most

    def remember(self, credentials: Sequence[str], announced: str, theirs: str) -> None:
        """The upstream calls *theirs* what the client with *credentials* knows as *announced*."""
        if not _AN_ID.fullmatch(theirs):
            # It is going to be put into paths and bodies.
            return
        self._theirs[caller(credentials), announced.encode()] = theirs.encode("utf-8", "replace")
        if len(self._theirs) > self._most:
            self._theirs.popitem(last=False)

    def restored(self, credentials: Sequence[str], said: bytes) -> bytes:
        """
        *said*, a body or a path, by the upstream's ids.

        As it is where it names none of those that were announced to this caller.
        """
        if not self._theirs:
            return said
        whose = caller(credentials)
        return ANNOUNCED.sub(lambda found: self._theirs.get((whose, found[0]), found[0]), said)
