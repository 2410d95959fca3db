"""
List what was done in the replaced turns, from the calls themselves.

The ledger is made again from the original messages at every fold, so it never wears
down. What has no room is merged into counts, the oldest of each section first; writes
give way last, because a model that does not know what it changed changes it again.

Room is in tokens of the `count` that is passed in.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence

from proxy.core.entries import Entry, clean, gather, program_of
from proxy.core.entry_lines import (
    TITLES,
    Style,
    common_home,
    common_root,
    counted,
    entry_line,
    entry_text,
    merged_line,
    outcome_text,
    shorten,
)
from proxy.core.jobs import Job, find_open
from proxy.core.messages import Message
from proxy.core.outcomes import Status
from proxy.core.steps import Step, read_steps
from proxy.core.tools import Act

Count = Callable[[str], int]

_WIDE = Style(label_chars=240, error_chars=160)
_TINY = Style(label_chars=0, error_chars=0, groups=2, group_chars=24)
_NARROW_LABEL = 110
_NARROW_ERROR = 80
# Right below its call a line need not say everything that the call says.
_ALONE = Style(label_chars=_NARROW_LABEL, error_chars=_WIDE.error_chars)
_TITLE_JOBS = "Ids still open, or resumable"
_TITLE_ERROR = "Newest failure that no later success answered"
_JOBS = 20
# Paths and commands have three to five. A list far longer than its room need not be counted: that
# of a session of thousands of calls would be, many times over.
_MOST_CHARS_PER_TOKEN = 16
# How much longer than its rank a section's entries are held: what was changed outlives what was run,
# which outlives what was only looked at.
_HOLD = {Act.WRITE: 3.0, Act.COMMAND: 1.5, Act.JOB: 1.5, Act.READ: 1.5}
# Commands that only look give way first: they can be run again.
_HOLD_LOOKS = 0.5
_LOOKS = frozenset(
    {"grep", "rg", "ls", "cat", "head", "tail", "find", "wc", "pwd", "which", "tree", "stat", "file"}
)
# POSIX: for these, status 1 is an answer ("no match", "differs"), not a failure.
_ANSWERS_BY_STATUS = frozenset(
    {"grep", "rg", "egrep", "ggrep", "diff", "cmp", "test", "[", "pgrep", "which", "command"}
)


def render_ledger(messages: Sequence[Message], room: int, count: Count) -> str:
    """
    The ledger of all calls in *messages*, in at most *room* tokens.

    Empty where there are no calls, or where not even their number has room.
    """
    steps = read_steps(messages)
    if not steps:
        return ""
    entries = gather(steps)
    closing = _closing(find_open(steps, messages), entries)

    def fits(text: str) -> bool:
        return len(text) <= _MOST_CHARS_PER_TOKEN * room and count(text) <= room

    for style in _styles(entries):
        text = _render(steps, entries, 0, style, closing)
        if fits(text):
            return text
    order = _merge_order(entries)

    def merged(number: int) -> str:
        return _render(steps, order, number, style, closing)

    # All of them, where no smaller number does: that may still be too much.
    fewest = 1 + bisect_left(range(1, len(order)), True, key=lambda number: fits(merged(number)))
    for text in (merged(fewest), _render(steps, order, len(order), _TINY, []), _totals(steps)):
        if fits(text):
            return text
    return ""


def result_lines(messages: Sequence[Message]) -> dict[tuple[int, int], str]:
    """
    What the ledger would say of each result by itself, by its message and its index there.

    Without the results of to-do calls: the list may stand nowhere else.
    """
    steps = read_steps(messages)
    jobs: dict[int, list[str]] = {}
    for job in find_open(steps, messages):
        jobs.setdefault(job.by, []).append(f"- {job.kind} {clean(job.id)}")
    lines = {}
    for step in steps:
        if step.answer is not None and step.deed.act is not Act.TODO:
            said = [f"- {entry_text(entry, _ALONE)}" for entry in gather([step])]
            lines[step.answer] = "\n".join([*said, *jobs.get(step.number, [])])
    return lines


def _styles(entries: Sequence[Entry]) -> tuple[Style, ...]:
    """From roomy to narrow: shortening loses less than merging does."""
    root, home = common_root(entries), common_home(entries)
    narrow = Style(label_chars=_NARROW_LABEL, error_chars=_NARROW_ERROR, root=root, home=home)
    if not root and not home:
        return _WIDE, narrow
    return (
        _WIDE,
        Style(label_chars=_WIDE.label_chars, error_chars=_WIDE.error_chars, root=root, home=home),
        narrow,
    )


def _merge_order(entries: Sequence[Entry]) -> tuple[Entry, ...]:
    """*entries* in the order in which they are merged: by age within their section."""
    ranks: Counter[Act] = Counter()
    aged = []
    for entry in reversed(entries):
        ranks[entry.act] += 1
        hold = _HOLD_LOOKS if entry.group in _LOOKS else _HOLD.get(entry.act, 1.0)
        aged.append((ranks[entry.act] / hold, -entry.newest, entry))
    return tuple(entry for _, _, entry in sorted(aged, key=lambda item: (-item[0], -item[1])))


def _render(
    steps: Sequence[Step], order: Sequence[Entry], merged: int, style: Style, closing: Sequence[str]
) -> str:
    lines = [f"{_totals(steps)} [n]: number of the newest such call; x3: three times."]
    if style.root:
        lines.append(f"Paths of files are below {style.root}")
    if style.home:
        lines.append(f"@ in commands: cd {style.home} &&")
    for act, title in TITLES.items():
        old = [entry for entry in order[:merged] if entry.act is act]
        kept = sorted((e for e in order[merged:] if e.act is act), key=lambda entry: entry.newest)
        if not old and not kept:
            continue
        lines.append(f"{title}:")
        if old:
            lines.append(merged_line(old, style))
        lines.extend(entry_line(entry, style) for entry in kept)
    return "\n".join([*lines, *closing])


def _totals(steps: Sequence[Step]) -> str:
    acts = Counter(step.deed.act for step in steps)
    said = ", ".join(counted(act, times) for act, times in acts.most_common())
    return f"{len(steps)} calls: {said}." if len(steps) > 1 else f"1 call: {said}."


def _closing(jobs: Sequence[Job], entries: Sequence[Entry]) -> list[str]:
    """What a reader needs first, and so stands last."""
    lines = []
    if jobs:
        lines.append(f"{_TITLE_JOBS}:")
        if len(jobs) > _JOBS:
            lines.append(f"- {len(jobs) - _JOBS} older ones")
        lines.extend(f"- {job.kind} {clean(job.id)} [{job.by}]" for job in jobs[-_JOBS:])
    failure = next((entry for entry in reversed(entries) if _is_unanswered(entry)), None)
    if failure:
        said = outcome_text(failure.outcome, _WIDE.error_chars)
        lines.append(f"{_TITLE_ERROR}:")
        lines.append(f"- {shorten(failure.label, _NARROW_LABEL)} → {said} [{failure.newest}]")
    return lines


def _is_unanswered(entry: Entry) -> bool:
    if entry.outcome.status is not Status.FAILED:
        return False
    # A pipe's status is that of its last program.
    last = program_of(entry.label.rpartition("|")[2])
    return not (entry.outcome.exit_code == 1 and last in _ANSWERS_BY_STATUS)
