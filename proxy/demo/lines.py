"""
Write what the demo saw as lines of a given width. No I/O, and no colour unless asked for.
"""

from dataclasses import dataclass

from proxy.demo.seen import Event, Outcome, TurnSeen

# Where a compaction is due, as a share of the budget: the default of `context.compact_at`.
COMPACT_AT = 0.6
_BAR_MOST = 44


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """
    What the terminal can show.

    Attributes:
        width: Columns; no line is longer.
        colour: Whether to use ANSI colours.
        unicode: Whether blocks and arrows can be written.
    """

    width: int = 80
    colour: bool = False
    unicode: bool = True

    def paint(self, text: str, code: str) -> str:
        """*text* in an ANSI colour, or as it is."""
        return f"\x1b[{code}m{text}\x1b[0m" if self.colour else text

    def fit(self, text: str) -> str:
        """*text* cut to the width."""
        return (
            text
            if len(text) <= self.width
            else text[: max(0, self.width - 1)] + ("…" if self.unicode else "~")
        )


GREEN, YELLOW, RED, CYAN, DIM, BOLD = "32", "33", "31", "36", "2", "1"


def number(value: int) -> str:
    """With thin groups: 12345 is "12 345"."""
    return f"{value:,}".replace(",", " ")


def head_line(look: Look) -> str:
    """The heading of the turns' columns."""
    bar = " " * _bar_width(look)
    return look.paint(look.fit(f"turn  {bar}  {_columns('prompt', 'budget', 'new', 'cached')}"), DIM)


def turn_line(seen: TurnSeen, look: Look) -> str:
    """One turn: a bar of the prompt against the budget, the tokens processed and the tokens cached."""
    if seen.error:
        return look.paint(look.fit(f"{seen.number:4}  failed: {seen.error}"), RED)
    columns = _columns(*(number(n) for n in (seen.prompt, seen.budget, seen.processed, seen.cached)))
    bar = _bar(seen.prompt / max(1, seen.budget), _bar_width(look), look)
    return f"{seen.number:4}  {bar}  {columns}".rstrip()


def event_lines(event: Event, look: Look) -> list[str]:
    """What the proxy did to the conversation, indented under its turn."""
    fields = event.fields
    arrow, mark = ("→", "▼") if look.unicode else ("->", "v")
    before, after = fields.get("tokens_before") or 0, fields.get("tokens_after") or 0
    sizes = f"{number(before)} {arrow} {number(after)} tokens"
    match event.name:
        case "context.compacted":
            replaced = f"{fields.get('turns', 0)} turns and {fields.get('calls', 0)} calls"
            notes = f"{number(fields.get('notes_tokens') or 0)} tokens of notes"
            cached = f"{number(fields.get('notes_cached_tokens') or 0)} cached"
            took = f"{fields.get('seconds') or 0:.1f} s"
            lines = [
                f"      {mark} compacted: {sizes}",
                f"        {replaced} became {notes} ({cached}, {took})",
            ]
            return [look.paint(look.fit(line), CYAN) for line in lines]
        case "context.trimmed":
            line = f"      {mark} trimmed: {sizes}, {fields.get('messages', 0)} messages shortened"
            return [look.paint(look.fit(line), YELLOW)]
        case "context.compaction_failed":
            again = fields.get("retry_after_turns", 0)
            line = f"      ! no usable notes ({fields.get('reason', '')}); not again for {again} turns"
            return [look.paint(look.fit(line), YELLOW)]
    return []


def summary_lines(outcome: Outcome, look: Look) -> list[str]:
    """The end: turns, errors, compactions, tokens processed, and what would have been without the proxy."""
    last = outcome.turns[-1]
    compacted = [e for e in outcome.events if e.name == "context.compacted"]
    trimmed = [e for e in outcome.events if e.name == "context.trimmed"]
    rejected = [e for e in outcome.events if e.name == "context.compaction_failed"]
    notes = sum(turn.processed_for_notes for turn in outcome.turns)
    processed = sum(turn.processed for turn in outcome.turns) + notes
    windows = last.whole / outcome.window
    also = f", {len(trimmed)} trims" if trimmed else ""
    also += f", {len(rejected)} without usable notes" if rejected else ""
    errors = look.paint(f"{outcome.errors} errors", RED if outcome.errors else GREEN)
    rows = [
        ("turns", f"{len(outcome.turns)}, {errors}"),
        ("session", f"{number(last.whole)} tokens, {windows:.1f} windows of {number(outcome.window)}"),
        (
            "compactions",
            f"{len(compacted)} ({sum(bool(e.fields.get('folded')) for e in compacted)} folding){also}",
        ),
        ("processed", f"{number(processed)} tokens in all, {number(notes)} of them for notes"),
        ("", f"{number(outcome.sliding_cut)} if old turns were cut on each call instead"),
    ]
    if outcome.died_at is None:
        rows.append(("without it", "the session would have fitted"))
    else:
        size = number(next(t.whole for t in outcome.turns if t.number == outcome.died_at))
        died = f"dead at turn {outcome.died_at}: {size} tokens for a window of {number(outcome.window)}"
        rows.append(("without it", look.paint(died, YELLOW)))
    return [f"{look.paint(f'{name:<12}', BOLD)}{text}" for name, text in rows]


def _columns(prompt: str, budget: str, new: str, cached: str) -> str:
    return f"{prompt:>6} / {budget:<6}  {new:>6}  {cached:>6}"


def _bar_width(look: Look) -> int:
    used = len("turn    ") + len(_columns("", "", "", ""))
    return max(6, min(_BAR_MOST, look.width - used))


def _bar(share: float, width: int, look: Look) -> str:
    """*share* of *width*, with a mark where a compaction is due."""
    full, empty, due = ("█", "·", "┊") if look.unicode else ("#", ".", "|")
    filled = round(min(1.0, max(0.0, share)) * width)
    at = min(width - 1, round(COMPACT_AT * width))
    rest = "".join(due if i == at else empty for i in range(filled, width))
    colour = GREEN if share <= COMPACT_AT else YELLOW if share <= 0.9 else RED
    return look.paint(full * filled, colour) + look.paint(rest, DIM)
