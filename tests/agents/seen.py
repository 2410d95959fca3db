"""
Say what became of an agent's run: what it noticed, and what was lost on the way.

`Run.faults` is empty where neither is the case.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from tests.agents.agents import DONE, TASK, Agent
from tests.support.prompts import STRICT, Rule, refusal, text_of
from tests.support.recorded import Recorded
from tests.support.scripted import ScriptedUpstream

# What a fault of the model server looks like in the output of one agent or another.
_ALARMS = ("error", "exceed", "retry", "too long", "overflow", "traceback", "compact")


@dataclass(slots=True, kw_only=True)
class Run:
    """
    What became of one run.

    Attributes:
        agent: Whose.
        exit_code: The agent's own; None where it had to be stopped.
        output: What it printed, standard error included.
        upstream: Everything that reached the model.
        marks: Of the files that it was asked to read.
        compacted: Compactions, as the proxy counts them.
        trimmed: Trims.
        outside: Where it tried to reach besides the proxy, as host:port.
    """

    agent: Agent
    exit_code: int | None
    output: str
    upstream: ScriptedUpstream
    marks: list[str]
    compacted: int
    trimmed: int
    outside: list[str]

    @property
    def work(self) -> list[Recorded]:
        """The requests of its loop; it may send others without tools, for a title say."""
        return [turn for turn in self.upstream.turns if is_work(self.agent, turn)]

    @property
    def rewrites(self) -> int:
        """How often a request did not go on where the one before it ended."""
        views = [[(m.get("role"), text_of(m)) for m in turn.chat["messages"]] for turn in self.work]
        unstable = 1 if self.agent.changes_last else 0
        sizes = [len(view) - unstable for view in views]
        return sum(b[:size] != a[:size] for (a, b), size in zip(pairwise(views), sizes, strict=False))

    @property
    def own_breaches(self) -> frozenset[Rule]:
        """Rules of strict templates that the agent breaks by itself, before any compaction."""
        first = self.work[0].chat["messages"] if self.work else []
        return frozenset(rule for rule in STRICT if refusal(first, frozenset({rule})))

    @property
    def faults(self) -> list[str]:
        """What went other than it should, in words."""
        return [*self._of_agent(), *self._of_requests(), *self._of_compactions()]

    def _of_agent(self) -> Iterator[str]:
        """What the agent showed."""
        if self.exit_code != 0:
            yield f"it ended with {self.exit_code}"
        if DONE not in " ".join(self.output.split()):
            yield "its last text is not in its output"
        hosts = [host.partition(":")[0] for host in self.agent.reaches]
        lines = [line for line in self.output.lower().splitlines() if not any(host in line for host in hosts)]
        yield from (f"its output says {word!r}" for word in _ALARMS if any(word in line for line in lines))
        if elsewhere := set(self.outside) - self.agent.reaches:
            yield f"it tried to reach {sorted(elsewhere)}"

    def _of_requests(self) -> Iterator[str]:
        """Whether its loop went as it would have gone without the proxy."""
        said = {text_of(message) for turn in self.work for message in turn.chat["messages"]}
        if not any(TASK in text for text in said):
            yield "its task did not reach the model"
        everything = "\n".join(said)
        seen = [m for m in self.marks if f"# {m}" in everything and f"# end of {m}" in everything]
        if len(seen) < len(self.marks):
            yield f"of {len(self.marks)} files {len(seen)} reached the model whole"
        if self.agent.look and not any("part0.txt" in text and "part1.txt" in text for text in said):
            yield "no list of the files reached the model"
        if len(self.work) > len(self.marks) + 1:
            yield f"it asked {len(self.work)} times where {len(self.marks) + 1} do"
        if statuses := {request.status for request in self.upstream.chats} - {200}:
            yield f"the upstream answered {sorted(statuses)}"

    def _of_compactions(self) -> Iterator[str]:
        """What the proxy made of its requests."""
        upstream, kept = self.upstream, STRICT - self.own_breaches
        refusals = [refusal(r.chat["messages"], kept) for r in [*self.work, *upstream.notes]]
        for rule in sorted({found[0] for found in refusals if found}):
            yield f"a request broke a rule that its own keep: {rule}"
        size = max((upstream.count(request.chat) for request in upstream.chats), default=0)
        if size > upstream.window:
            yield f"a request of {size} went to a window of {upstream.window}"
        if self.compacted < 2:
            yield f"it was compacted {self.compacted} times"
        if self.rewrites > self.compacted + self.trimmed:
            yield f"its prefix was rewritten {self.rewrites} times"


def is_work(agent: Agent, request: Recorded) -> bool:
    """Whether *request* belongs to the agent's loop: it has tools, if its model calls any."""
    return bool(request.chat.get("tools")) or agent.read is None


def show(name: str, run: Run) -> str:
    """A line for a person."""
    fixed = run.upstream.count(run.work[0].chat) if run.work else 0
    return (
        f"{name} {run.agent.package.version}: window {run.agent.window}, {fixed} before any work, "
        f"{len(run.work)} turns, {len(run.upstream.turns) - len(run.work)} other requests, "
        f"{run.compacted} compactions, {run.trimmed} trims, {run.rewrites} rewrites; "
        f"breaks by itself: {', '.join(sorted(run.own_breaches)) or 'nothing'}"
    )


def explain(run: Run) -> str:
    """The faults of a run, and the end of what the agent printed."""
    return "\n".join([*(f"- {fault}" for fault in run.faults), run.output[-3000:], ""])
