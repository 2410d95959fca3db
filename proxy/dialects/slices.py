"""
Find where in a JSON body each value stands.

A view is put together from the slices that the client sent: what the proxy did not
change keeps its bytes, with every number, escape and key order in it.
"""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any

from proxy.errors import NotUnderstood

_SPACE = " \t\n\r"


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"the number {text[:20]} is too large")
    return value


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no number of JSON")


# What Python reads beyond JSON it could not write again.
_scan = json.JSONDecoder(parse_float=_finite, parse_constant=_no_number).scan_once  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True)
class Item:
    """One value: `raw` as it stands in the body, `value` as JSON reads it."""

    raw: str
    value: Any


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


def take_apart(raw: bytes, lists: Iterable[str]) -> Body:
    """
    Read *raw* as a JSON object; elements of the arrays named in *lists* get slices of their own.

    Raises:
        NotUnderstood: If it is no JSON object in UTF-8, is nested too deeply, holds a number that
            no float can hold (1e400), or names a field twice (servers differ in which one they take).
    """
    try:
        text = raw.decode("utf-8")
        return _object(text, frozenset(lists))
    except (UnicodeDecodeError, StopIteration, RecursionError, ValueError, IndexError) as error:
        raise NotUnderstood(f"body: not a JSON object ({type(error).__name__}: {error})") from error


def put_together(body: Body, changed: Mapping[str, str | None]) -> bytes:
    """
    The body with other raw JSON for some fields.

    None drops a field; a field that the body lacks is added at its end.
    """
    parts = []
    for key, item in body.fields.items():
        put = changed.get(key, item.raw)
        if put is not None:
            parts.append(f"{json.dumps(key)}:{put}")
    for key, put in changed.items():
        if key not in body.fields and put is not None:
            parts.append(f"{json.dumps(key)}:{put}")
    # A slice holds what was valid UTF-8, and what is made here is ASCII.
    return ("{" + ",".join(parts) + "}").encode("utf-8")


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


def _object(text: str, lists: frozenset[str]) -> Body:
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
        key, at = scanstring(text, at + 1, True)
        at = _skip(text, at)
        if text[at] != ":":
            raise ValueError(f"expected a colon at {at}")
        start = _skip(text, at + 1)
        if key in lists and text[start] == "[":
            items, at = _array(text, start)
            found[key] = items
            value: Any = [item.value for item in items]
        else:
            value, at = _scan(text, start)
        if key in fields:
            raise ValueError(f"the field {key!r} stands twice")
        fields[key] = Item(text[start:at], value)
        at = _skip(text, at)
        if text[at] == "}":
            break
        if text[at] != ",":
            raise ValueError(f"expected a comma at {at}")
        at = _skip(text, at + 1)
    _end(text, at + 1)
    return Body(fields=fields, lists=found)


def _array(text: str, at: int) -> tuple[tuple[Item, ...], int]:
    items: list[Item] = []
    at = _skip(text, at + 1)
    if text[at] == "]":
        return (), at + 1
    while True:
        value, end = _scan(text, at)
        items.append(Item(text[at:end], value))
        end = _skip(text, end)
        if text[end] == "]":
            return tuple(items), end + 1
        if text[end] != ",":
            raise ValueError(f"expected a comma at {end}")
        at = _skip(text, end + 1)


def _skip(text: str, at: int) -> int:
    while text[at] in _SPACE:
        at += 1
    return at


def _end(text: str, at: int) -> None:
    if text[at:].strip(_SPACE):
        raise ValueError(f"something stands after the object at {at}")
