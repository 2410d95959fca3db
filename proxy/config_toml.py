"""
Read a TOML file together with the line on which each key stands.

`tomllib` does not tell lines, so they are looked up afterwards, in the text of a file
that is known to parse. A key that the search misses (inside an inline table, say) has
no line, and its faults then name the file alone.
"""

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HEADER = re.compile(r"\s*\[{1,2}([^\[\]]+)\]{1,2}\s*(#.*)?$")
_NAME = r"""(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')"""
KEY = re.compile(rf"\s*({_NAME}(?:\s*\.\s*{_NAME})*)\s*=(.*)$", re.DOTALL)
# Strings on one line and comments cannot open a text of several lines, and are skipped.
OPENING = re.compile(r'''"""|\'\'\'|"(?:\\.|[^"\\])*"|'[^']*'|#.*''')


class Unreadable(Exception):
    """The file is not there, or is not TOML; the text says which and what to do."""


@dataclass(frozen=True, slots=True)
class Document:
    """
    What a TOML file holds.

    Attributes:
        tables: As `tomllib` reads it.
        lines: Line of each key, counted from 1, by its dotted path: ("context", "window").
            A table has the line of its header.
    """

    tables: dict[str, Any]
    lines: dict[tuple[str, ...], int]


def read(path: Path) -> Document:
    """The file at *path*. Raises `Unreadable`."""
    try:
        # Editors on Windows put a byte-order mark before the text; TOML does not know it.
        text = path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise Unreadable(f"{path}: there is no such file; name another one, or leave --config out") from None
    except OSError as error:
        raise Unreadable(f"{path}: cannot be read ({error.strerror}); it must be a readable file") from None
    except UnicodeDecodeError as error:
        raise Unreadable(f"{path}: byte {error.start} is not UTF-8; save the file as UTF-8") from None
    except ValueError as error:
        raise Unreadable(f"{path}: no file can have this name ({error})") from None
    try:
        tables = tomllib.loads(text)
    except RecursionError:
        raise Unreadable(
            f"{path}: not TOML: nested too deeply; config.toml shows what belongs in it"
        ) from None
    except ValueError as error:  # a TOMLDecodeError, or a number of too many digits
        raise Unreadable(f"{path}: not TOML: {error}; texts stand in quotes, tables in [brackets]") from None
    return Document(tables, find_lines(text))


def find_lines(text: str) -> dict[tuple[str, ...], int]:
    """The line of each key and table header in *text*, which must be TOML."""
    lines: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    closing = ""
    for number, line in enumerate(text.split("\n"), start=1):
        rest = line
        if closing:
            _, found, rest = line.partition(closing)
            if not found:
                continue
            closing = _open_string(rest)
            continue
        if header := HEADER.match(line):
            table = _names(header[1])
            lines.setdefault(table, number)
            continue
        if key := KEY.match(line):
            lines.setdefault((*table, *_names(key[1])), number)
            rest = key[2]
        closing = _open_string(rest)
    return lines


def _names(dotted: str) -> tuple[str, ...]:
    return tuple(name.strip().strip("\"'") for name in dotted.split("."))


def _open_string(rest: str) -> str:
    """The quotes that end the text of several lines that *rest* begins; empty where it begins none."""
    at = 0
    while opening := OPENING.search(rest, at):
        at = opening.end()
        quotes = opening[0]
        if quotes in ('"""', "'''"):
            end = rest.find(quotes, at)
            if end < 0:
                return quotes
            at = end + len(quotes)
    return ""
