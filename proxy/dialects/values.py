"""
What all dialects do with JSON values that anybody may have sent.

What is nested too deeply raises `NotUnderstood`; nothing else here raises on hostile input.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from proxy.core.volatile import without_volatile
from proxy.errors import NotUnderstood

Path = tuple[str | int, ...]

# Over a billion tokens is nonsense, whoever says it.
_MOST = 10**9
_USAGE = b'"usage"'
# Made once: for other settings than its own `json.dumps` makes one for every value.
SHORT = json.JSONEncoder(separators=(",", ":"))
SORTED = json.JSONEncoder(separators=(",", ":"), sort_keys=True)
# Tools may have parameters of that name, but hardly this many; to look at every one in a text of
# nothing else takes seconds.
_MOST_TRIES = 100
# Some name a file by its whole path.
_LONGEST_MODEL_NAME = 1000


def natural(value: Any) -> int | None:
    """A count of tokens, or None for anything that cannot be one."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST else None


def string(value: Any) -> str:
    """The string itself, else an empty one."""
    return value if isinstance(value, str) else ""


def model_name(value: Any) -> str:
    """The model that a request names, for telling models apart; names as long as a book are cut."""
    return string(value)[:_LONGEST_MODEL_NAME]


def objects(value: Any) -> list[dict[str, Any]]:
    """The objects of a list; empty for anything else."""
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def read_json(data: bytes | str) -> Any:
    """The value, or None for what is no JSON."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def usage_of(answer: Any) -> dict[str, Any]:
    """The usage of a whole answer; empty where there is none."""
    usage = answer.get("usage") if isinstance(answer, dict) else None
    return usage if isinstance(usage, dict) else {}


def first_usage(head: bytes) -> dict[str, Any]:
    """The first usage in *head*, the beginning of a stream; empty where there is none."""
    at = -1
    for _ in range(_MOST_TRIES):
        if (at := head.find(_USAGE, at + 1)) < 0:
            break
        if usage := _usage_at(head, at):
            return usage
    return {}


def last_usage(tail: bytes) -> dict[str, Any]:
    """
    The last usage in *tail*, which may begin in the middle of JSON; empty where there is none.

    The last frame of a stream may repeat the whole answer, so it is not parsed as a whole.
    """
    at = len(tail)
    for _ in range(_MOST_TRIES):
        if (at := tail.rfind(_USAGE, 0, at)) < 0:
            break
        if usage := _usage_at(tail, at):
            return usage
    return {}


def _usage_at(data: bytes, at: int) -> dict[str, Any]:
    """The object whose key stands at *at*; empty where it is not one that counts tokens."""
    start = data.find(b"{", at)
    if start < 0 or data[at + len(_USAGE) : start].strip() != b":":
        return {}
    try:
        value, _ = json.JSONDecoder().raw_decode(data[start:].decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return {}
    # A tool may have a parameter of that name, and its schema may come last.
    counts = (natural(value.get(field)) for field in ("input_tokens", "output_tokens"))
    return value if any(count is not None for count in counts) else {}


def arguments_form(arguments: str) -> str:
    """Call arguments without the differences that have no meaning."""
    try:
        return SORTED.encode(json.loads(arguments))
    except (ValueError, RecursionError):
        return arguments.strip()


def written(value: Any) -> str:
    """
    JSON of a value that came as one, with characters as they are, for counting and cutting.

    Raises:
        NotUnderstood: If it is nested too deeply.
    """
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError as error:
        raise NotUnderstood("body: a value is nested too deeply") from error


def hash_of(value: Any) -> str:
    """
    Stands for a value that is too large, or of no known form.

    Raises:
        NotUnderstood: If it is nested too deeply.
    """
    try:
        return hashlib.blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=16).hexdigest()
    except RecursionError as error:
        raise NotUnderstood("body: a value is nested too deeply") from error


def text_form(texts: Iterable[str]) -> list[Any]:
    """Texts as the normal form has them: without volatile spans, and without empty ones."""
    # Where a span goes the space around it goes, so that the rest must not have any either.
    return [left for text in texts if (left := without_volatile(text).strip())]


def normal_bytes(form: list[Any]) -> bytes:
    """The bytes of a normal form."""
    return SHORT.encode(form).encode()


def at_path(value: Any, path: Path) -> Any:
    """What stands at *path*."""
    for step in path:
        value = value[step]
    return value


def with_texts(wire: dict[str, Any], texts: Mapping[Path, Any]) -> dict[str, Any]:
    """A copy of *wire* with other values at some paths; what is on no path is not copied."""
    copy: Any = dict(wire)
    for path, text in texts.items():
        copy = _with_text(copy, path, text)
    return copy if isinstance(copy, dict) else wire


# By hand: `deepcopy` fails on what is nested more than a few hundred times.
def _with_text(value: Any, path: Path, text: Any) -> Any:
    if not path:
        return text
    copy = value.copy()
    copy[path[0]] = _with_text(value[path[0]], path[1:], text)
    return copy
