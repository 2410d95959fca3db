"""
Make one long text short: head and tail stay, a marker says what is gone.

JSON arguments stay valid JSON, since servers answer broken ones with an error.
Quantities are in characters.
"""

import json
from typing import Any

# Of what is kept, the head tells more than the tail; errors and totals stand at the end.
_HEAD_SHARE = 2 / 3
# A text is only cut where the marker does not eat the gain.
_LEAST_GAIN = 200
# Arguments count with their markers in them, which take about half of that.
_LEAST_NET_GAIN = 100
_LABEL_CHARS = 120
# Several long strings may each keep their share; beyond this many times what was to be kept,
# or where that is little this many characters, names and structure no longer help.
_FAR_OVER = 4
_LEAST_OBJECT = 2_000
# Under what name arguments that could only be cut as a text stand in their object.
CUT_KEY = "cut_arguments"
_JSON = json.JSONEncoder(ensure_ascii=False, allow_nan=False)


def label(name: str, arguments: str) -> str:
    """A call in a few words, for a marker."""
    shown = " ".join(arguments.split())
    if len(shown) > _LABEL_CHARS:
        shown = shown[:_LABEL_CHARS] + "…"
    return f"{name or 'the call'}({shown})"


def cut_middle(text: str, keep: int, what: str) -> str | None:
    """
    *text* with about *keep* characters of it left, None where that gains nothing.

    Args:
        text: What to cut.
        keep: Characters of it that stay.
        what: Of what it is, such as "the result of read(path)"; stands in the marker.
    """
    keep = max(keep, 0)
    return _cut(text, keep, what) if len(text) - keep >= _LEAST_GAIN else None


def cut_arguments(arguments: str, keep: int, what: str) -> str | None:
    """
    The same for a call's arguments: their long strings are cut; None where nothing is gained.

    What is no JSON, or is long without long strings, becomes an object that holds its text, cut.
    """
    keep = max(keep, 0)
    if len(arguments) - keep < _LEAST_GAIN:
        return None
    short = _with_short_strings(arguments, keep, what)
    # Then the other is shorter: of the characters of JSON none takes more than two when it is escaped.
    if short is None or len(short) > max(_FAR_OVER * keep, _LEAST_OBJECT):
        short = _JSON.encode({CUT_KEY: _cut(arguments, keep, "the arguments")})
    return short if len(short) < len(arguments) - _LEAST_NET_GAIN else None


def _cut(text: str, keep: int, what: str) -> str:
    gone = len(text) - keep
    head = int(keep * _HEAD_SHARE)
    marker = f"[… {gone:,} characters of {what} were cut here to fit the context window …]"
    return f"{text[:head]}\n{marker}\n{text[head + gone :]}"


def _with_short_strings(arguments: str, keep: int, what: str) -> str | None:
    try:
        return _JSON.encode(_shortened(json.loads(arguments), keep, what))
    except (ValueError, RecursionError):
        return None


def _shortened(value: Any, keep: int, what: str) -> Any:
    if isinstance(value, str):
        return cut_middle(value, keep, what) or value
    if isinstance(value, dict):
        return {key: _shortened(inner, keep, what) for key, inner in value.items()}
    if isinstance(value, list):
        return [_shortened(inner, keep, what) for inner in value]
    return value
