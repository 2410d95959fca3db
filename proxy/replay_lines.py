"""
Write what a replay found: as lines for a terminal, or as JSON for a program.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import orjson

from proxy.board_rows import Change, What
from proxy.config import Config
from proxy.replay import Replayed, Turn, replay
from proxy.replay_files import read_recording
from proxy.terminal import BOLD, CYAN, DIM, RED, YELLOW, Screen, grouped

_BAR = 24
_MARKS = {
    What.COMPACTED: ("▼", "v", CYAN),
    What.MASKED: ("▽", "v", CYAN),
    What.TRIMMED: ("◆", "*", YELLOW),
    What.FAILED: ("✕", "!", RED),
}


def run(
    path: Path,
    config: Config,
    *,
    output_limit: int | None = None,
    notes_tokens: int | None = None,
    as_json: bool = False,
    out: TextIO | None = None,
) -> int:
    """
    Replay the recording in *path*; returns the exit status.

    Raises:
        ProxyError: If it is no recording.
    """
    out = sys.stdout if out is None else out
    replayed = replay(config, read_recording(path, output_limit), notes_tokens=notes_tokens)
    if as_json:
        out.write(to_json(replayed).decode() + "\n")
    else:
        for line in lines(replayed, Screen.of(out)):
            print(line, file=out)
    return 0


def to_json(replayed: Replayed) -> bytes:
    """The same as an object; what is assumed or estimated stands under `assumed`."""
    assumed = {
        "notes_tokens": replayed.notes_tokens if replayed.notes_tokens is not None else "as long as allowed",
        "token_counts": "estimates",
        "cache": "one slot, which keeps the longest common beginning",
    }
    told = {
        "window": replayed.window,
        "compact_at": replayed.compact_at,
        "compact_to": replayed.compact_to,
        "assumed": assumed,
        "turns": replayed.turns,
        "totals": replayed.totals,
    }
    return orjson.dumps(told)


def lines(replayed: Replayed, screen: Screen) -> Iterator[str]:
    """One line a request, one for each change, then the totals."""
    at = f"compact_at {replayed.compact_at:g}" if replayed.compact_at else "compaction switched off"
    yield screen.paint(f"window {grouped(replayed.window)}, {at}, compact_to {replayed.compact_to:g}", BOLD)
    notes = (
        "as long as they may be"
        if replayed.notes_tokens is None
        else f"{grouped(replayed.notes_tokens)} tokens"
    )
    yield screen.paint(
        f"Token counts are estimates; notes are assumed: {notes}, written without a model.", DIM
    )
    share = f"{'of the budget':<{_BAR + 6}}"
    yield screen.paint(
        f"{'request':>7} {'turns':>5} {'history':>9} {'sent':>8}  {share} {'processed':>9}", DIM
    )
    for turn in replayed.turns:
        for change in turn.changes:
            yield _change(change, screen)
        yield _turn(turn, replayed, screen)
    yield ""
    yield from _totals(replayed, screen)


def _turn(turn: Turn, replayed: Replayed, screen: Screen) -> str:
    share = turn.sent / turn.budget if turn.budget else 0.0
    bar = screen.bar(share, _BAR, compact_at=replayed.compact_at, compact_to=replayed.compact_to)
    numbers = f"{turn.number:>7} {turn.turns:>5} {grouped(turn.whole):>9} {grouped(turn.sent):>8}"
    remarks = []
    if not turn.budget:
        remarks.append("its own limit fills the window: forwarded untouched")
    elif turn.sent > turn.budget:
        remarks.append("over the budget, and nothing may be cut")
    if turn.is_rewritten and not turn.changes:
        remarks.append("prefix rewritten by the client")
    told = f"  {'; '.join(remarks)}" if remarks else ""
    return f"{numbers}  {bar} {share:>5.0%} {grouped(turn.processed):>9}{screen.paint(told, YELLOW)}"


def _change(change: Change, screen: Screen) -> str:
    mark, plain, colour = _MARKS[change.what]
    sizes = f"{grouped(change.before)} {screen.arrow} {grouped(change.after)}"
    match change.what:
        case What.COMPACTED:
            text = f"compacted: {sizes}, the first {change.turns} turns became notes"
        case What.MASKED:
            text = f"masked: {sizes}, old results became a line each"
        case What.TRIMMED:
            text = f"trimmed: {sizes} ({change.why.replace('_', ' ')})"
        case What.FAILED:
            text = f"no notes: {change.why.replace('_', ' ')}"
    return screen.paint(f"{'':>7} {mark if screen.unicode else plain} {text}", colour)


def _totals(replayed: Replayed, screen: Screen) -> Iterator[str]:
    totals = replayed.totals
    share = totals.rewritten / totals.requests
    window = grouped(replayed.window)
    rows = [
        ("requests", grouped(totals.requests)),
        ("compactions", grouped(totals.compactions)),
        *([("masks", grouped(totals.masks))] if totals.masks else []),
        ("trims", grouped(totals.trims)),
        (
            "rewritten",
            f"{totals.rewritten} of {totals.requests} prompts had a rewritten prefix ({share:.1%})",
        ),
        (
            "processed",
            f"about {grouped(totals.processed)} tokens, {grouped(totals.notes_processed)} of them for notes",
        ),
    ]
    if totals.refused_alone is None:
        rows.append(
            ("without it", f"it fits {window}; about {grouped(totals.processed_alone)} tokens processed")
        )
    else:
        size = grouped(replayed.turns[totals.refused_alone - 1].whole)
        rows.append(
            (
                "without it",
                f"refused at request {totals.refused_alone}: {size} tokens for a window of {window}, after "
                f"about {grouped(totals.processed_alone)} processed",
            )
        )
    if totals.refused:
        rows.append(
            ("still refused", f"{totals.refused} requests, whatever is cut; a larger window is needed")
        )
    for name, text in rows:
        yield f"{screen.paint(f'{name:<14}', BOLD)}{text}"
