"""
Which values of a body stood in an earlier one?

An agent sends its whole history with every call, so nearly all of a body was read before. A value
is known again by its very bytes, and then neither scanned nor read: what follows a value was seen
to follow it before, so that one comparison finds it. Only objects, arrays and strings are
known so: their own bytes say where they end.

Each caller has what it sent itself, since the time that reading takes would tell one what another
has sent. All together stay within a number of bytes.
"""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Any

from proxy.core.messages import Message

# 18 sessions of 450 messages and 440 KB. Beyond this the longest unused are read again.
MOST_BYTES = 40 * 1024 * 1024
# What is dropped at once, so that the next value does not make it necessary again.
_DROPPED_SHARE = 0.2
# The bytes themselves, the texts in them, and the normal form; what stands around a value; and each
# value inside it, which may have been written in two bytes.
_COPIES, _VALUE_BYTES, _INNER_BYTES, _QUOTE_BYTES = 3, 1200, 100, 25
# A comma in so many bytes is too often for text.
_DENSE = 16
# A single one must not push out all others.
_MOST_SHARE = 0.25
# Hints are small, but anyone can make up a name.
MOST_CALLERS = 256
_MOST_HINTS = 64


class Item:
    """
    One value of a body.

    Attributes:
        value: As JSON reads it; never changed.
        made: What a dialect has made of it, for the next time; None for nothing yet.
        next: The item that followed it last.
        used: Number of the body that it stood in last.
        cost_bytes: About what it takes in memory; 0 where it is not kept.
    """

    __slots__ = ("_at", "_before", "_slice", "_text", "cost_bytes", "made", "next", "used", "value")

    def __init__(self, raw: bytes | str, value: Any) -> None:
        self._slice = raw if isinstance(raw, bytes) else raw.encode("utf-8", "surrogatepass")
        self._text: str | None = None
        self.value = value
        self.made: Any = None
        self.next: Item | None = None
        self.used = 0
        self.cost_bytes = 0
        # What leads to it, so that whoever is dropped is held by nothing.
        self._before: Item | None = None
        self._at: tuple[dict[str, Item], str] | None = None

    @property
    def slice(self) -> bytes:
        """As it stands in the body."""
        return self._slice

    @property
    def raw(self) -> str:
        """The same as text."""
        if self._text is None:
            self._text = self.slice.decode("utf-8", "surrogatepass")
        return self._text

    def is_followed_by(self, item: "Item") -> None:
        """*item* stood after it."""
        if self.next is not None:
            self.next._before = None
        self.next, item._before = item, self

    def is_hinted(self, hints: "dict[str, Item]", name: str) -> None:
        """It is the last one that stood in the place *name*."""
        if name in hints or len(hints) < _MOST_HINTS:
            hints[name] = self
            self._at = hints, name

    def drop(self) -> None:
        """Nothing leads to it any more; whoever holds it may go on using it."""
        if self._before is not None and self._before.next is self:
            self._before.next = None
        if self.next is not None and self.next._before is self:
            self.next._before = None
        if self._at is not None and self._at[0].get(self._at[1]) is self:
            del self._at[0][self._at[1]]
        # Who refers to itself would wait for the garbage collector.
        for message in self.made.values() if isinstance(self.made, dict) else (self.made,):
            if isinstance(message, Message):
                message.memo.shown = None
        self.next = self._before = self._at = self.made = None


class Known:
    """The values that one caller sent."""

    def __init__(self, items: "Items", caller: Hashable) -> None:
        self.hints: dict[str, Item] = {}
        """The last item in a place that has a name: a field, or the beginning of an array."""
        self._items = items
        self._caller = caller

    def began(self) -> int:
        """Another body is read; the number is what its items are to have in `used`."""
        self._items.bodies += 1
        return self._items.bodies

    def item(self, raw: bytes) -> Item | None:
        """The item with these very bytes."""
        return self._items.by_bytes.get((self._caller, raw))

    def add(self, raw: bytes, value: Any, used: int) -> Item:
        """A new item."""
        item = Item(raw, value)
        item.used = used
        self._items.add((self._caller, raw), item)
        return item


class Items:
    """
    The values of all callers in one format. For one event loop.

    Args:
        most_bytes: About what they may take, with what is made of them.
        most_callers: Who are known; the longest unheard are forgotten.
    """

    def __init__(self, *, most_bytes: int = MOST_BYTES, most_callers: int = MOST_CALLERS) -> None:
        self.by_bytes: dict[tuple[Hashable, bytes], Item] = {}
        self.bodies = 0
        self.bytes = 0
        self._most_bytes = most_bytes
        self._most_callers = most_callers
        self._callers: OrderedDict[Hashable, Known] = OrderedDict()
        # Number of the body for which there is no more room.
        self._filled_by = 0

    def of(self, caller: Hashable) -> Known:
        """What *caller* sent."""
        known = self._callers.get(caller)
        if known is None:
            known = self._callers[caller] = Known(self, caller)
            if len(self._callers) > self._most_callers:
                self._callers.popitem(last=False)
        else:
            self._callers.move_to_end(caller)
        return known

    def add(self, key: tuple[Hashable, bytes], item: Item) -> None:
        """Keep *item*, unless it is huge, and drop what was unused for longest where there is no room."""
        raw = key[1]
        cost_bytes = _cost(raw)
        if cost_bytes > self._most_bytes * _MOST_SHARE or not self._has_room(cost_bytes):
            return
        item.cost_bytes = cost_bytes
        self.by_bytes[key] = item
        self.bytes += item.cost_bytes

    def _has_room(self, cost_bytes: int) -> bool:
        if self.bytes + cost_bytes > self._most_bytes and self._filled_by != self.bodies:
            self._make_room()
        if self.bytes + cost_bytes <= self._most_bytes:
            return True
        self._filled_by = self.bodies
        return False

    def _make_room(self) -> None:
        enough = self._most_bytes * (1 - _DROPPED_SHARE)
        for oldest, item in sorted(self.by_bytes.items(), key=lambda entry: entry[1].used):
            # A history that is larger than all the room would push out its own beginning, and next
            # time nothing of it would be known.
            if self.bytes <= enough or item.used == self.bodies:
                break
            del self.by_bytes[oldest]
            self.bytes -= item.cost_bytes
            item.cost_bytes = 0
            item.drop()


def _cost(raw: bytes) -> int:
    """About what a value takes in memory with what is made of it."""
    commas = raw.count(b",")
    # Texts hold commas too, but not so many.
    inner = _INNER_BYTES * commas if commas * _DENSE > len(raw) else _QUOTE_BYTES * raw.count(b'"')
    return _COPIES * len(raw) + _VALUE_BYTES + inner
