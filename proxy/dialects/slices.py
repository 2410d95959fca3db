"""
Find where in a JSON body each value stands.

A view is put together from the slices that the client sent: what the proxy did not
change keeps its bytes, with every number, escape and key order in it.

The bytes are scanned as if each were a character: JSON's own signs are ASCII, so the places
are right, and only what holds other characters is read again as what it is.
"""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any

from proxy.dialects.known import Item, Items, Known
from proxy.errors import NotUnderstood

__all__ = ["Body", "Item", "array", "dump", "put_together", "take_apart"]

_SPACE = " \t\n\r"
# Shorter values of fields are scanned as quickly as they are found.
_LEAST_KNOWN_BYTES = 256
_OBJECT, _OPENING = ord("{"), b'{["'


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"the number {text[:20]} is too large")
    return value


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no number of JSON")


# What Python reads beyond JSON it could not write again.
_scan = json.JSONDecoder(parse_float=_finite, parse_constant=_no_number).scan_once  # type: ignore[attr-defined]


class _Stretch(Item):
    """A long value that is cut out of its body only where somebody asks for it."""

    __slots__ = ("_body", "_end", "_start")

    def __init__(self, body: bytes, start: int, end: int, value: Any) -> None:
        super().__init__(b"", value)
        self._body, self._start, self._end = body, start, end

    @property
    def slice(self) -> bytes:
        """As it stands in the body."""
        return self._body[self._start : self._end]


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """
    A JSON object, taken apart.

    Attributes:
        fields: Its fields in the order of the body.
        lists: For the fields that were asked for and are arrays, their elements.
    """

    fields: Mapping[str, Item]
    lists: Mapping[str, tuple[Item, ...]]

    def value(self, key: str) -> Any:
        """The field's value; None where it is absent."""
        field = self.fields.get(key)
        return None if field is None else field.value


def take_apart(raw: bytes, lists: Iterable[str], known: Known | None = None) -> Body:
    """
    Read *raw* as a JSON object; elements of the arrays named in *lists* get slices of their own.

    What is *known* from earlier bodies is not read again; what is new is known from then on.

    Raises:
        NotUnderstood: If it is no JSON object in UTF-8, is nested too deeply, holds a number that
            no float can hold (1e400), or names a field twice (servers differ in which one they take).
    """
    try:
        return _Reader(raw, known or Items().of(None)).object(frozenset(lists))
    except (UnicodeDecodeError, StopIteration, RecursionError, ValueError, IndexError) as error:
        raise NotUnderstood(f"body: not a JSON object ({type(error).__name__}: {error})") from error


def put_together(body: Body, changed: Mapping[str, str | bytes | None]) -> bytes:
    """
    The body with other raw JSON for some fields.

    None drops a field; a field that the body lacks is added at its end.
    """
    parts = []
    for key, item in body.fields.items():
        put = changed[key] if key in changed else item.slice  # noqa: SIM401 (a slice may be cut just for this)
        if put is not None:
            parts.append(_field(key, put))
    for key, put in changed.items():
        if key not in body.fields and put is not None:
            parts.append(_field(key, put))
    return b"{" + b",".join(parts) + b"}"


def _field(key: str, put: str | bytes) -> bytes:
    # A slice holds what was valid UTF-8, and what is made here is ASCII.
    return b"%b:%b" % (json.dumps(key).encode(), put if isinstance(put, bytes) else put.encode())


def array(raws: Iterable[bytes]) -> bytes:
    """An array of raw values."""
    return b"[" + b",".join(raws) + b"]"


def dump(value: Any) -> str:
    """
    JSON of our making; ASCII only, so that lone surrogates stay escaped.

    Raises:
        NotUnderstood: If it is nested too deeply, or holds a number that JSON cannot say.
    """
    try:
        return json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    except (ValueError, RecursionError) as error:
        raise NotUnderstood(f"body: cannot be written again ({error})") from error


class _Reader:
    """One body while it is taken apart."""

    def __init__(self, raw: bytes, known: Known) -> None:
        self._raw = raw
        self._text = raw.decode("latin-1")
        self._known = known
        self._number = known.began()

    def object(self, lists: frozenset[str]) -> Body:
        text = self._text
        fields: dict[str, Item] = {}
        found: dict[str, tuple[Item, ...]] = {}
        at = _skip(text, 0)
        if text[at] != "{":
            raise ValueError("expected an object")
        at = _skip(text, at + 1)
        if text[at] == "}":
            _end(text, at + 1)
            return Body(fields=fields, lists=found)
        while True:
            if text[at] != '"':
                raise ValueError(f"expected a key at {at}")
            key, at = self._key(at)
            at = _skip(text, at)
            if text[at] != ":":
                raise ValueError(f"expected a colon at {at}")
            start = _skip(text, at + 1)
            if key in lists and text[start] == "[":
                items, at = self._array(start, key + "[")
                found[key] = items
                item: Item = _Stretch(self._raw, start, at, [item.value for item in items])
            else:
                item, at = self._field(start, key)
            if key in fields:
                raise ValueError(f"the field {key!r} stands twice")
            fields[key] = item
            at = _skip(text, at)
            if text[at] == "}":
                break
            if text[at] != ",":
                raise ValueError(f"expected a comma at {at}")
            at = _skip(text, at + 1)
        _end(text, at + 1)
        return Body(fields=fields, lists=found)

    def _array(self, at: int, name: str) -> tuple[tuple[Item, ...], int]:
        text, raw, known, number = self._text, self._raw, self._known, self._number
        items: list[Item] = []
        at = _skip(text, at + 1)
        if text[at] == "]":
            return (), at + 1
        before: Item | None = None
        expected = known.hints.get(name)
        while True:
            if expected is not None and raw.startswith(expected._slice, at):
                item, end = expected, at + len(expected._slice)
                item.used = number
            else:
                item, end = self._item(at)
                if item.cost_bytes:
                    if before is None:
                        item.is_hinted(known.hints, name)
                    elif before.cost_bytes:
                        # What is not kept must not be held by what is.
                        before.is_followed_by(item)
            items.append(item)
            before, expected = item, item.next
            sign = text[end]
            if sign in _SPACE:
                end = _skip(text, end)
                sign = text[end]
            if sign == "]":
                return tuple(items), end + 1
            if sign != ",":
                raise ValueError(f"expected a comma at {end}")
            at = end + 1
            if text[at] in _SPACE:
                at = _skip(text, at)

    def _item(self, at: int) -> tuple[Item, int]:
        """An element that was not expected here; an object may be known all the same."""
        value, end = _scan(self._text, at)
        raw = self._raw[at:end]
        if raw[0] != _OBJECT:
            return Item(raw, _read(raw, value)), end
        item = self._known.item(raw)
        if item is None:
            return self._known.add(raw, _read(raw, value), self._number), end
        item.used = self._number
        return item, end

    def _field(self, at: int, key: str) -> tuple[Item, int]:
        raw, known = self._raw, self._known
        before = known.hints.get(key)
        if before is not None and raw.startswith(before._slice, at):
            before.used = self._number
            return before, at + len(before._slice)
        value, end = _scan(self._text, at)
        piece = raw[at:end]
        if len(piece) < _LEAST_KNOWN_BYTES or piece[:1] not in _OPENING:
            return Item(piece, _read(piece, value)), end
        item = known.item(piece) or known.add(piece, _read(piece, value), self._number)
        item.used = self._number
        if item.cost_bytes:
            item.is_hinted(known.hints, key)
        return item, end

    def _key(self, at: int) -> tuple[str, int]:
        key, end = scanstring(self._text, at + 1, True)
        raw = self._raw[at:end]
        return (key if raw.isascii() else scanstring(raw.decode("utf-8"), 1, True)[0]), end


def _read(raw: bytes, scanned: Any) -> Any:
    """The value of *raw*; what was *scanned* is right where every character is one byte."""
    return scanned if raw.isascii() else _scan(raw.decode("utf-8"), 0)[0]


def _skip(text: str, at: int) -> int:
    while text[at] in _SPACE:
        at += 1
    return at


def _end(text: str, at: int) -> None:
    if text[at:].strip(_SPACE):
        raise ValueError(f"something stands after the object at {at}")
