"""
Write an entry of the ledger as one line, and many entries as one count.

A model and a person read the lines: what, how it ended, how often, and the number of
the newest call, by which the order of things across sections can be seen.
"""

import posixpath
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from proxy.core.entries import Entry, Span, clean
from proxy.core.outcomes import Outcome, Status
from proxy.core.tools import Act


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """
    How much a line says.

    Attributes:
        label_chars: A longer label is cut in its middle.
        error_chars: A longer line of failure is cut at its end.
        root: Left out at the start of paths; empty for whole paths.
        home: The folder whose `cd` is written `@` at the start of commands; empty for none.
        groups: How many groups a merged line names.
        group_chars: A longer name of a group is cut in its middle.
    """

    label_chars: int
    error_chars: int
    root: str = ""
    home: str = ""
    groups: int = 8
    group_chars: int = 60


TITLES = {
    Act.READ: "Files read",
    Act.SEARCH: "Searches and listings",
    Act.FETCH: "Pages fetched",
    Act.OTHER: "Other calls",
    Act.TODO: "To-do list calls",
    Act.JOB: "Sub-agents and jobs",
    Act.COMMAND: "Commands",
    Act.WRITE: "Files written or edited",
}
_NOUNS = {
    Act.READ: ("read", "reads"),
    Act.SEARCH: ("search", "searches"),
    Act.FETCH: ("fetch", "fetches"),
    Act.OTHER: ("other call", "other calls"),
    Act.TODO: ("to-do call", "to-do calls"),
    Act.JOB: ("sub-agent or job call", "sub-agent and job calls"),
    Act.COMMAND: ("command", "commands"),
    Act.WRITE: ("write or edit", "writes and edits"),
}
_SPANS = 8


def counted(act: Act, times: int) -> str:
    """How many calls of a kind: "1 read", "3 commands"."""
    one, many = _NOUNS[act]
    return f"{times} {one if times == 1 else many}"


def entry_line(entry: Entry, style: Style) -> str:
    """The line of *entry*, without its end."""
    return f"- {entry_text(entry, style)} [{entry.newest}]"


def entry_text(entry: Entry, style: Style) -> str:
    """What the line of *entry* says, without the number of its newest call."""
    label = entry.label
    if style.home and entry.folder == style.home:
        label = "@ " + label.partition(style.home)[2].lstrip(" &;")
    label = shorten(_relative(label, style.root), style.label_chars)
    match entry.act:
        case Act.READ:
            said = f"{label}{_spans_text(entry.spans)}{_times(entry)}"
        case Act.WRITE:
            said = f"{label}: {_verbs_text(entry)}" if entry.verbs else f"{label}{_times(entry)}"
        case _:
            said = f"{label}{_times(entry)}"
    return f"{said}{_ending(entry, style)}"


def merged_line(entries: Sequence[Entry], style: Style) -> str:
    """One line for many *entries* of one section: their calls, by folder, program or tool."""
    calls = sum(entry.calls for entry in entries)
    groups: Counter[str] = Counter()
    for entry in entries:
        groups[shorten(_relative(entry.group, style.root), style.group_chars)] += entry.calls
    ranked = groups.most_common()
    named = [f"{group} x{times}" for group, times in ranked[: style.groups]]
    rest = sum(times for _, times in ranked[style.groups :])
    if rest:
        named.append(f"elsewhere x{rest}")
    failed = sum(entry.failed for entry in entries)
    tail = f"; {failed} failed" if failed else ""
    return f"- earlier, merged: {counted(entries[0].act, calls)} ({', '.join(named)}{tail})"


def outcome_text(outcome: Outcome, error_chars: int) -> str:
    """How a call ended, in a few words."""
    match outcome.status:
        case Status.MISSING:
            return "no result"
        case Status.FAILED:
            said = f"exit {outcome.exit_code}" if outcome.exit_code else "failed"
            error = clean(outcome.error)
            if len(error) > error_chars:
                error = error[:error_chars].rstrip() + " …"
            return f"{said}: {error}" if error else said
        case Status.OK if outcome.exit_code == 0:
            return f"exit 0, {outcome.size}"
        case _:
            return outcome.size


def shorten(text: str, chars: int) -> str:
    """*text* with its middle left out where it is longer than *chars*."""
    if len(text) <= chars:
        return text
    tail = chars // 3
    return f"{text[: chars - tail].rstrip()} … {text[len(text) - tail :].lstrip()}"


def common_root(entries: Sequence[Entry]) -> str:
    """The folder that most files of *entries* are below, with its slash; empty where none is worth it."""
    folders = [
        posixpath.dirname(entry.label)
        for entry in entries
        if entry.act in (Act.READ, Act.WRITE) and entry.label.startswith("/")
    ]
    if len(folders) < 3:
        return ""
    counts: Counter[str] = Counter()
    for folder in folders:
        above = folder
        while above.count("/") > 1:
            counts[above] += 1
            above = posixpath.dirname(above)
    if not counts:
        return ""
    saving = {folder: (len(folder) + 1) * times for folder, times in counts.items()}
    return max(saving, key=lambda folder: (saving[folder], len(folder))) + "/"


def common_home(entries: Sequence[Entry]) -> str:
    """The folder that most commands of *entries* change to; empty where fewer than three do."""
    counts = Counter(entry.folder for entry in entries if entry.folder)
    return next((folder for folder, times in counts.most_common() if times > 2), "")


def _relative(label: str, root: str) -> str:
    if root and label == root[:-1]:
        return "."
    return label[len(root) :] if root and label.startswith(root) else label


def _times(entry: Entry) -> str:
    return f" x{entry.calls}" if entry.calls > 1 else ""


def _verbs_text(entry: Entry) -> str:
    return ", ".join(f"{verb} x{times}" if times > 1 else verb for verb, times in entry.verbs)


def _spans_text(spans: tuple[Span, ...]) -> str:
    if not spans or spans == ((1, 0),):
        return ""
    shown = [f"{first}-{last}" if last else f"{first}-end" for first, last in spans[:_SPANS]]
    more = ", …" if len(spans) > _SPANS else ""
    return f" lines {', '.join(shown)}{more}"


def _ending(entry: Entry, style: Style) -> str:
    said = outcome_text(entry.outcome, style.error_chars)
    failed = entry.failed
    if entry.act in (Act.READ, Act.WRITE, Act.TODO) and entry.outcome.status is not Status.FAILED:
        missing = " (newest: no result)" if entry.outcome.status is Status.MISSING else ""
        return f" ({failed} failed){missing}" if failed else missing
    if entry.outcome.status is Status.FAILED:
        failed -= 1
        earlier = f" ({failed} failed before)" if failed else ""
        newest = "newest " if entry.calls > failed + 1 and entry.act in (Act.READ, Act.WRITE) else ""
        return f" → {newest}{said}{earlier}"
    return f" → {said}" + (f" ({failed} failed before)" if failed else "")
