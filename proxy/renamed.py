"""
Which answers does a client know by another id than the upstream does?

A stream that waited for notes was announced before the upstream had named its answer. Where
the client comes back with the announced id, the upstream is asked by its own.
"""

from collections import OrderedDict

from proxy.dialects.waiting import ANNOUNCED

# About 3 MB when full; an id is of use while its conversation goes on.
_MOST = 10_000


class Renamed:
    """Ids of the last answers that were announced. For one event loop; forgotten at a restart."""

    def __init__(self, *, most: int = _MOST) -> None:
        self._theirs: OrderedDict[bytes, bytes] = OrderedDict()
        self._most = most

    def remember(self, announced: str, theirs: str) -> None:
        """The upstream calls *theirs* what the client knows as *announced*."""
        self._theirs[announced.encode()] = theirs.encode("utf-8", "replace")
        if len(self._theirs) > self._most:
            self._theirs.popitem(last=False)

    def restored(self, said: bytes) -> bytes:
        """*said*, a body or a path, by the upstream's ids; as it is where it names none of ours."""
        return ANNOUNCED.sub(lambda found: self._theirs.get(found[0], found[0]), said)
