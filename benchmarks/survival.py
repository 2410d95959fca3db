"""
What is left of a long session after 1, 2, 5 and 10 folds, where the model's notes drop everything?

    python -m benchmarks.survival            print the page
    python -m benchmarks.survival --write    write it to docs/survival.md

The session goes through the whole proxy, over real sockets, against a scripted model. What
is looked at is the block alone, so that nothing counts because it is still in the tail.
"""

import asyncio
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.work_session import Canary, WorkSession
from tests.support.answers import Answer
from tests.support.prompts import text_of
from tests.support.proxied import Proxied, proxied
from tests.support.recorded import Recorded
from tests.support.scripted import ScriptedUpstream

PAGE = Path(__file__).parent.parent / "docs" / "survival.md"
FOLDS = (1, 2, 5, 10)
# Lines of a file that is read between folds, so that a fold takes about as many turns in each window.
PAGE_LINES = {32768: 110, 8192: 26}
# A session that brings no fold in so many steps never will.
_MOST_STEPS = 60
_INSTRUCTION = "[From the harness, not from the user."

Survival = Mapping[str, Mapping[int, float]]
"""By kind of canary, and by number of folds: the share that is left, from 0 to 1."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured in one window: what survived, and the largest block, as a share of the budget."""

    survival: Survival
    block_share: float


def forgetful(request: Recorded) -> str:
    """Notes that say nothing of what happened."""
    return f"The work went on, and nothing of note came up so far; stage {len(request.messages)} was reached."


def faithful(request: Recorded) -> str:
    """Notes that say what was decided, and nothing else: what code cannot know."""
    said = "\n".join(text_of(message) for message in request.messages)
    decided = sorted(set(re.findall(r"keep table (t_\d+) as a view", said)))
    kept = "; ".join(f"it was decided to keep table {name} as a view" for name in decided)
    return f"Stage {len(request.messages)} was reached, and of the tables: {kept}."


async def measure(window: int, notes: Callable[[Recorded], str], folds: Sequence[int] = FOLDS) -> Measured:
    """Play a session through *folds* folds in a *window* where the model writes *notes*."""
    upstream = ScriptedUpstream(
        window=window, script=lambda request: _answer(upstream, request, notes), notes_marker=_INSTRUCTION
    )
    session = WorkSession(page_lines=PAGE_LINES[window])
    found: dict[str, dict[int, float]] = {}
    largest = 0.0
    async with upstream.running(), proxied(upstream, window=window) as proxy:
        session.begin()
        session.step()
        session.plant()
        for fold in range(1, max(folds) + 1):
            newest = session.go_on(fold)
            block, share = await _next_fold(proxy, session)
            largest = max(largest, share)
            if fold in folds:
                for kind, survived in _survived([*session.canaries, newest], block).items():
                    found.setdefault(kind, {})[fold] = survived
    return Measured(found, largest)


def _answer(upstream: ScriptedUpstream, request: Recorded, notes: Callable[[Recorded], str]) -> Answer | None:
    return Answer(text=notes(request)) if upstream.is_notes(request) else None


async def _next_fold(proxy: Proxied, session: WorkSession) -> tuple[str, float]:
    """Go on until the next compaction; the brief with the block as the model sees it then, and its size."""
    for _ in range(_MOST_STEPS):
        session.step()
        walk = await proxy.send(session.body())
        if walk.outcome == "compacted":
            first = next(i for i, m in enumerate(walk.messages) if m["role"] == "assistant")
            brief = "\n".join(text_of(message) for message in walk.messages[:first])
            block = brief[brief.index("<record-") :]
            return brief, proxy.upstream.count(
                {"messages": [{"role": "user", "content": block}]}
            ) / walk.budget
    raise RuntimeError(f"no compaction in {_MOST_STEPS} steps")


def _survived(canaries: Sequence[Canary], text: str) -> dict[str, float]:
    kinds: dict[str, list[bool]] = {}
    for canary in canaries:
        kinds.setdefault(canary.kind, []).append(canary.is_in(text))
    return {kind: sum(found) / len(found) for kind, found in kinds.items()}


def table(measured: Measured) -> str:
    """One window's table, in Markdown."""
    folds = sorted(next(iter(measured.survival.values())))
    lines = [
        "| planted | " + " | ".join(f"{fold} fold{'s' if fold > 1 else ''}" for fold in folds) + " |",
        "|---" * (len(folds) + 1) + "|",
    ]
    for kind, shares in measured.survival.items():
        lines.append(f"| {kind} | " + " | ".join(f"{shares[fold]:.0%}" for fold in folds) + " |")
    return "\n".join(lines)


_TEXT = """\
# What survives a compaction
Made by `python -m benchmarks.survival --write`; a test holds this page against what the command prints.

One session of a coding agent goes through the whole proxy and is folded up to ten times. Canaries of
every kind stand in it before the first fold; the newest user message is another one for each fold. Between
the folds the agent reads a new file on every turn. A canary counts as kept only if all of it stands in the
block: the path with the lines that were read, the command with its error, the to-do item with its state.

## The model's notes drop everything, window of 32768
What code can keep, code keeps: nothing here comes from notes. A decision that the assistant only spoke of
is for the notes to keep, and these say nothing.

{roomy}

## The same model, but its notes say what was decided

{noted}

## The model's notes drop everything, window of 8192
The same session with shorter files. The list of calls has a twentieth of the budget, about 360 tokens here,
so its oldest lines become counts, what was only looked at before what was changed. Rules and to-dos have
rooms of their own.

{tight}

The largest block took {roomy_share:.0%} of the budget in the large window and {tight_share:.0%} in the small
one.

## Sessions of somebody else
`python -m benchmarks.conformance` puts the sessions of compaction-conformance-kit through the proxy in the
same way, for five rounds. A test holds that each of its types (safety rules, hard constraints, facts, goal
state, user preferences) stays at 100%: all of them are said by the user.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """
    What the page tells.

    Attributes:
        roomy: Where everything that code keeps has room.
        noted: There, with notes that say what was decided.
        tight: Where the list of calls has not.
    """

    roomy: Measured
    noted: Measured
    tight: Measured

    def text(self) -> str:
        """The page in Markdown."""
        kind = "decision only spoken"
        decided = Measured({kind: self.noted.survival[kind]}, self.noted.block_share)
        return _TEXT.format(
            roomy=table(self.roomy),
            noted=table(decided),
            tight=table(self.tight),
            roomy_share=self.roomy.block_share,
            tight_share=self.tight.block_share,
        )


async def measure_all() -> Page:
    """Everything that the page tells."""
    return Page(
        roomy=await measure(32768, forgetful),
        noted=await measure(32768, faithful),
        tight=await measure(8192, forgetful),
    )


def main(arguments: Sequence[str]) -> int:
    """Print the page, or write it where *arguments* say so."""
    made = asyncio.run(measure_all()).text()
    if arguments == ["--write"]:
        PAGE.parent.mkdir(exist_ok=True)
        PAGE.write_text(made, encoding="utf-8")
    else:
        print(made, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
