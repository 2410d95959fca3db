"""
Gather the calls of a range into the entries of the ledger.

An entry is one line: a file that was read, a command however often it ran. Entries know
what they are and how it went, not how they look (`entry_lines`) nor which of them
have room (`ledger`). A call that touches several files counts in the entry of each.
"""

import json
import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from proxy.core.arguments import Arguments, Place
from proxy.core.neutral import neutralise
from proxy.core.outcomes import Outcome, Status
from proxy.core.secrets import mask_secrets
from proxy.core.steps import Step
from proxy.core.tools import Act

Span = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """
    One line of the ledger.

    Attributes:
        act: The section it stands in; a call of no known kind is `OTHER`.
        label: The path, the command, or the call, masked and without control tokens.
        group: What it is counted under once it is merged: folder, program or tool.
        folder: For a command, where it starts with `cd` to; empty elsewhere.
        calls: How many calls it stands for.
        failed: How many of them failed.
        newest: Number of the newest of them, from 1 for the first call of the range.
        outcome: How the newest ended.
        spans: Lines read, merged; (1, 0) is all of it.
        verbs: What was done to a file, with how often.
    """

    act: Act
    label: str
    group: str
    folder: str = ""
    calls: int
    failed: int
    newest: int
    outcome: Outcome
    spans: tuple[Span, ...] = ()
    verbs: tuple[tuple[str, int], ...] = ()


# More of a label than any line shows, so that masking sees whole secrets but not whole files.
_HEAD_CHARS = 1200
_TAIL_CHARS = 400
_VALUE_CHARS = 60
_CUT = " …"
_VALUES = 12
_CD = re.compile(r"^\s*cd\s+(?P<folder>[^\s;&|]{1,300})\s*(?:&&|;)\s*")
_WITH_SUBCOMMANDS = frozenset(
    {"git", "npm", "npx", "pnpm", "yarn", "bun", "cargo", "go", "docker", "pip", "uv", "gh", "make"}
)
_ASSIGNMENT = re.compile(r"^\w+=\S*$")


@dataclass(frozen=True, slots=True)
class _Seen:
    """One call's part in one entry."""

    step: Step
    label: str
    group: str
    place: Place | None = None


def gather(steps: Sequence[Step]) -> tuple[Entry, ...]:
    """The entries of *steps*, by the number of their newest call; every step is in at least one."""
    seen: dict[tuple[Act, str, str], list[_Seen]] = {}
    for step in steps:
        for part in _parts(step):
            # What differs only where a label is cut is not the same call.
            whole = step.raw if _CUT in part.label and part.place is None else ""
            seen.setdefault((step.deed.act, part.label, whole), []).append(part)
    entries = (_entry(act, parts) for (act, _, _), parts in seen.items())
    return tuple(sorted(entries, key=lambda entry: entry.newest))


def _entry(act: Act, parts: list[_Seen]) -> Entry:
    last = parts[-1]
    verbs: dict[str, int] = {}
    for part in parts:
        if part.place and part.place.verb and part.step.outcome.status is not Status.FAILED:
            verbs[part.place.verb] = verbs.get(part.place.verb, 0) + 1
    return Entry(
        act=act,
        label=last.label,
        group=last.group,
        folder=_folder(last.step.deed.command),
        calls=len(parts),
        failed=sum(part.step.outcome.status is Status.FAILED for part in parts),
        newest=last.step.number,
        outcome=last.step.outcome,
        spans=_merged(
            [
                _span(part.place, part.step.outcome.next_line)
                for part in parts
                if part.place and part.step.outcome.is_good
            ]
        )
        if act is Act.READ
        else (),
        verbs=tuple(verbs.items()),
    )


def _parts(step: Step) -> Iterator[_Seen]:
    deed = step.deed
    match deed.act:
        case Act.READ | Act.WRITE:
            for place in deed.places:
                path = clean(place.path)
                yield _Seen(step, path, posixpath.dirname(path.rstrip("/")) or ".", place)
        case Act.COMMAND:
            command = clean(deed.command)
            folder = f" (in {clean(deed.folder)})" if deed.folder else ""
            yield _Seen(step, command + folder, program_of(deed.command))
        case Act.SEARCH:
            parts = [clean(deed.name)]
            if deed.query:
                parts.append(f'"{clean(deed.query)}"')
            if deed.places:
                parts.append("in " + ", ".join(clean(place.path) for place in deed.places[:3]))
            include = deed.arguments.get("include") or deed.arguments.get("glob")
            if isinstance(include, str) and include != deed.query:
                parts.append(clean(include))
            yield _Seen(step, " ".join(parts), clean(deed.name))
        case Act.FETCH:
            yield _Seen(step, " ".join(clean(url) for url in deed.addresses[:5]), clean(deed.name))
        case Act.TODO:
            yield _Seen(step, clean(deed.name), clean(deed.name))
        case Act.JOB | Act.OTHER:
            yield _Seen(step, f"{clean(deed.name)}({_telling(deed.given)})", clean(deed.name))


def clean(text: str) -> str:
    """*text* on one line, cut to what a label needs, without secrets and control tokens."""
    if len(text) > _HEAD_CHARS + _TAIL_CHARS:
        text = text[:_HEAD_CHARS] + _CUT + " " + text[-_TAIL_CHARS:]
    lines = mask_secrets(text).splitlines()
    return neutralise(" \\n ".join(line.strip() for line in lines if line.strip()))


def program_of(command: str) -> str:
    """The program that a command runs, after `cd` and assignments, with its subcommand; for counts only."""
    rest = command[:2000]
    while match := _CD.match(rest):
        rest = rest[match.end() :]
    words = rest.split()
    words = [word for word in words if not _ASSIGNMENT.match(word)] or words
    if not words:
        return "?"
    program = posixpath.basename(words[0].strip("\"'(")) or words[0]
    if program in _WITH_SUBCOMMANDS and len(words) > 1 and words[1].isalpha():
        program = f"{program} {words[1]}"
    return clean(program)[:30]


def _folder(command: str) -> str:
    match = _CD.match(command[:2000])
    return clean(match["folder"]) if match else ""


def _telling(arguments: Arguments) -> str:
    """The arguments that are short, as name=value; what is long, by its beginning."""
    said = []
    for name, value in list(arguments.items())[:_VALUES]:
        text = clean(_compact(value))
        if len(text) > _VALUE_CHARS:
            text = text[: _VALUE_CHARS - 2] + _CUT
        said.append(f"{clean(name)[:30]}={text}" if name else text)
    return ", ".join(said)


def _compact(value: object, depth: int = 2) -> str:
    if isinstance(value, dict):
        inner = (
            [f"{name}: {_compact(item, depth - 1)}" for name, item in list(value.items())[:6]]
            if depth
            else ["…"]
        )
        return "{" + ", ".join(inner) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_compact(item, depth - 1) for item in value[:6]) + "]" if depth else "[…]"
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return str(value)


def _span(place: Place, next_line: int) -> Span:
    """The lines that a read of *place* showed whose result goes on at *next_line*, or 0."""
    first, last = max(place.first, 1), place.last
    if next_line > first and (not last or next_line <= last):
        last = next_line - 1
    return first, last


def _merged(spans: list[Span]) -> tuple[Span, ...]:
    """*spans* in order and without overlaps; an end of 0 is the end of the file."""
    merged: list[Span] = []
    for first, last in sorted(spans):
        if merged and (merged[-1][1] == 0 or first <= merged[-1][1] + 1):
            start, end = merged[-1]
            merged[-1] = (start, 0 if 0 in (end, last) else max(end, last))
        else:
            merged.append((first, last))
    return tuple(merged)
