"""
Read what a call's arguments tell: places in files, a command, a query, an address.

Agents name the same thing differently; the tables below are the whole knowledge of that.
Which of it matters for a call is for `tools` to say. Hostile arguments give less, never
an exception.
"""

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

Arguments = Mapping[str, object]


def _names(words: str) -> tuple[str, ...]:
    return tuple(words.split())


# All names are compared without case, "_" and "-"; the first that holds something counts.
PATHS = _names(
    "path filepath absolutepath targetfile filename file targetpath notebookpath imagepath relativepath"
    " relativeworkspacepath files paths filepaths absolutefilepath oldpath src source uri dirpath directory"
    " directorypath targetdirectory dir folder cwd workdir"
)
FOLDERS = _names("cwd workdir workingdirectory directory dirpath dir")
COMMANDS = _names("command cmd commandline commands shellcommand bashcommand script code shell")
QUERIES = _names(
    "pattern query queries regex regexp search searchterm searchquery searchtext q globpattern glob"
    " filepattern filenamepattern namepattern include keyword keywords term input"
)
ADDRESSES = _names("url urls address href link uri requests")
PATCHES = _names("patch patchtext input diff patchcontent command cmd")
FIRST_LINES = _names("offset startline linestart start startlineonebased firstline from line")
LAST_LINES = _names("endline lineend end endlineonebased lastline to")
LINE_COUNTS = _names("limit linecount numlines maxlines nlines")
LINE_PAIRS = _names("viewrange linerange lines range")

# Deeper than this no real call hides a path, and hostile ones only cost time.
_DEPTH = 3
# The raw text of arguments that are no JSON object.
RAW = ""

_PATCH_FILE = re.compile(
    r"^\*\*\* (?P<verb>Add|Update|Delete) File: (?P<path>.{1,500}?)[ \t]*$"
    r"|^\*\*\* Move to: (?P<moved>.{1,500}?)[ \t]*$|^\+\+\+ (?:b/)?(?P<diff>[^\s].{0,500}?)[ \t]*$",
    re.MULTILINE,
)
_PATCH_VERBS = {"Add": "written", "Update": "edited", "Delete": "deleted"}
_LINE_SPAN = re.compile(r"\s*(\d{1,9})\s*(?:-|:|,|\.\.)\s*(\d{1,9})?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """
    A file or folder, or some lines of it.

    Attributes:
        path: As the call has it.
        first: First line, from 1; 0 where the call names none.
        last: Last line; 0 for the end of the file.
        verb: What a patch does to it; empty elsewhere.
    """

    path: str
    first: int = 0
    last: int = 0
    verb: str = ""


def parse_arguments(raw: str) -> Arguments:
    """*raw* as an object with its own names; what is no JSON object is under `RAW`."""
    parsed: object = raw
    for _ in range(2):  # some clients encode twice
        if not isinstance(parsed, str):
            break
        try:
            parsed = json.loads(parsed)
        except (ValueError, RecursionError):
            break
    if isinstance(parsed, dict):
        return parsed
    return {RAW: raw}


def plain_names(given: Arguments) -> Arguments:
    """*given* under plain names, as everything here looks them up; the first of two alike counts."""
    return {plain(name): value for name, value in reversed(list(given.items()))}


def plain(name: str) -> str:
    """*name* without case, "_", "-" and spaces."""
    return name.translate(_DROP).lower()


_DROP = str.maketrans("", "", "_- ")


def find_places(arguments: Arguments) -> tuple[Place, ...]:
    """The files that *arguments* name, by a patch or by path, each once and in order."""
    return find_patched(arguments) or _named_places(arguments)


def find_patched(arguments: Arguments) -> tuple[Place, ...]:
    """The files of a patch in *arguments* (Codex' form or a unified diff); empty without one."""
    for name in (RAW, *PATCHES):
        text = "\n".join(_strings(arguments.get(name)))
        if "*** " in text or "+++ " in text:
            found = tuple(dict.fromkeys(_patched(text)))
            if found:
                return found
    return ()


def find_folder(arguments: Arguments) -> str:
    """The working folder of a command; empty where none is named."""
    return next((t for name in FOLDERS for t in _strings(arguments.get(name)) if t), "")


def find_command(arguments: Arguments) -> str:
    """The command as one text; a list is an argv, a shell's `-lc` is taken off."""
    for name in (*COMMANDS, RAW):
        value = arguments.get(name)
        words = [w for w in _strings(value) if w.strip()]
        if not words:
            continue
        if isinstance(value, str):
            return value.strip()
        if name == "commands" or isinstance(value, dict):
            return "; ".join(words)
        if len(words) > 2 and words[1].startswith("-") and words[1].endswith("c"):
            return words[2].strip()
        return words[0].strip() if len(words) == 1 else shlex.join(words)
    return ""


def find_query(arguments: Arguments) -> str:
    """What is searched for; several queries are joined."""
    return next((", ".join(found) for name in QUERIES if (found := _filled(arguments.get(name)))), "")


def find_addresses(arguments: Arguments) -> tuple[str, ...]:
    """The URLs in order, each once."""
    for name in ADDRESSES:
        value = arguments.get(name)
        found = [t.strip() for t in _strings(value, ("url", "uri", "href")) if t.strip()]
        if found:
            return tuple(dict.fromkeys(found))
    return ()


def find_first(arguments: Arguments, names: tuple[str, ...]) -> str:
    """The first text or number among *names*, as text; empty where there is none."""
    for name in names:
        value = arguments.get(name)
        if isinstance(value, str) and value:
            return value
        if isinstance(value, int) and not isinstance(value, bool):
            return _number_text(value)
    return ""


def _named_places(arguments: Arguments) -> tuple[Place, ...]:
    for name in PATHS:
        found = tuple(dict.fromkeys(_places(arguments.get(name), arguments, _DEPTH)))
        if found:
            return found
    return ()


def _places(value: object, around: Arguments, depth: int) -> Iterator[Place]:
    if isinstance(value, str):
        yield from _place(value, around)
    elif depth and isinstance(value, list):
        for item in value:
            yield from _places(item, around, depth - 1)
    elif depth and isinstance(value, dict):
        inner = {plain(str(name)): item for name, item in value.items()}
        for name in PATHS:
            if isinstance(path := inner.get(name), str):
                yield from _place(path, inner)
                return


def _place(path: str, around: Arguments) -> Iterator[Place]:
    if path.strip():
        first, last = _lines(around)
        yield Place(path=path.strip(), first=first, last=last)


def _lines(arguments: Arguments) -> tuple[int, int]:
    for name in LINE_PAIRS:
        value = arguments.get(name)
        if isinstance(value, list) and value and all(_whole(v) is not None for v in value[:2]):
            last = _whole(value[1]) if len(value) > 1 else None
            return max(_whole(value[0]) or 1, 1), max(last or 0, 0)
        if isinstance(value, str) and (span := _LINE_SPAN.match(value)):
            return max(int(span[1]), 1), int(span[2] or 0)
    first = next((n for name in FIRST_LINES if (n := _whole(arguments.get(name))) is not None), None)
    last = next((n for name in LAST_LINES if (n := _whole(arguments.get(name))) is not None), None)
    count = next((n for name in LINE_COUNTS if (n := _whole(arguments.get(name))) is not None), None)
    if first is None and last is None and count is None:
        return 0, 0
    start = max(first or 1, 1)
    if last is None and count is not None and count > 0:
        last = start + count - 1
    return start, max(last or 0, 0)


def _whole(value: object) -> int | None:
    """A whole number below a thousand million, also as digits in a string."""
    if isinstance(value, str) and re.fullmatch(r"-?\d{1,9}", value):
        return int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**9:
        return value
    return None


def _number_text(value: int) -> str:
    # str() refuses integers of more than 4300 digits.
    return str(value) if abs(value) < 10**30 else ""


def _patched(text: str) -> Iterator[Place]:
    for match in _PATCH_FILE.finditer(text):
        if match["moved"]:
            yield Place(path=match["moved"], verb="moved here")
        elif match["diff"]:
            if match["diff"] != "/dev/null":
                yield Place(path=match["diff"].split("\t")[0], verb="edited")
        else:
            yield Place(path=match["path"], verb=_PATCH_VERBS[match["verb"]])


def _filled(value: object) -> list[str]:
    return [t for t in _strings(value, QUERIES) if t.strip()]


def _strings(value: object, keys: tuple[str, ...] = ("command", "cmd"), depth: int = _DEPTH) -> Iterator[str]:
    """The strings of a value: itself, those of a list, and of an object what is under *keys*."""
    if isinstance(value, str):
        yield value
    elif depth and isinstance(value, list):
        for item in value:
            yield from _strings(item, keys, depth - 1)
    elif depth and isinstance(value, dict):
        for name, item in value.items():
            if plain(str(name)) in keys:
                yield from _strings(item, keys, depth - 1)
