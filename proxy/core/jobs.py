"""
Say which sub-agents, jobs, sessions and processes are still open.

An id is opened by the result that names it and closed by a call that ends it, or by a
later result that says it is over. What code cannot see (a `pkill` by name, a process that
died by itself) stays listed: an id too many costs a look, an id too few is lost work.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from proxy.core.arguments import plain
from proxy.core.messages import Kind, Message, Role
from proxy.core.steps import Step
from proxy.core.tools import Act, Deed


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """
    Something that a call started and that nothing ended.

    Attributes:
        kind: As its agent calls it: session, shell, process, task, agent …
        id: Its id, as the result has it.
        by: Number of the call that started it.
    """

    kind: str
    id: str
    by: int


_EDGE_CHARS = 1500
_ID = r"[\"'`]?(?P<id>[A-Za-z0-9][\w.:-]{0,79})"
# What an agent says of its own background work, also in the result of a plain command: Codex
# "Process running with session ID 42"; Claude Code "running in background with ID: b1", "moved to the
# background with ID: b1"; Qwen Code and Gemini CLI "Background PIDs: 12, 13".
# Each with a word of it, which is looked for first: that takes a hundredth of the time.
_TOLD = (
    (
        "running with ",
        re.compile(
            r"\brunning with (?P<kind>session|process|shell|terminal) ID\s?:?\s?" + _ID, re.IGNORECASE
        ),
    ),
    (
        "background",
        re.compile(r"\b(?P<kind>background)\w{0,2}(?: by user)? with ID\s?:?\s?" + _ID, re.IGNORECASE),
    ),
    (
        "background",
        re.compile(r"^Background (?P<kind>PID)s?: ?(?P<id>\d{1,9}(?:, ?\d{1,9}){0,20})", re.MULTILINE),
    ),
)
# The result of a tool for jobs, or of a command that was sent to the background: Claude Code "agentId: a1",
# opencode "task_id: ses_1", Codex {"agent_id": …}, and {"job_id": …}, "pid: 12" of others.
_NAMED = (
    re.compile(
        r"\b(?P<kind>session|process|shell|terminal|job|task|agent|bash)[ _-]?id[\"'`]?\s?[:=]?\s?" + _ID,
        re.IGNORECASE,
    ),
    re.compile(r"\b(?P<kind>pid)[\"']?\s?[:=]\s?(?P<id>\d{2,9})\b", re.IGNORECASE),
)
_BACKGROUND = ("runinbackground", "background", "isbackground", "detach", "detached")
_ENDERS = re.compile(r"^(?:kill|stop|close|cancel|terminate|end)|(?:kill|stop|cancel)$")
_OVER = re.compile(
    r"\bexited with code\b|\bexit(?:ed)?[ _]code\b|<status>(?:completed|failed|killed|stopped|done)</status>"
    r"|\"(?:status|state)\":\s?\"(?:completed|exited|finished|failed|killed|stopped|closed|done)"
    r"|^status: ?(?:completed|failed|killed|exited)"
    r"|\b(?:has|was|been) (?:terminated|killed|stopped|completed)\b",
    re.IGNORECASE | re.MULTILINE,
)
_NOTICE = re.compile(
    r"<task-id>(?P<id>[^<\s]{1,80})</task-id>.{0,2000}?<status>(?:completed|failed|killed|stopped)</status>",
    re.DOTALL,
)
_KILL = re.compile(r"\bkill\b(?P<ids>(?:\s+-\w{1,9}|\s+-?\d{1,9}){1,20})")


def find_open(steps: Sequence[Step], messages: Sequence[Message]) -> tuple[Job, ...]:
    """The jobs that *steps* opened and nothing in *messages* ended, oldest first."""
    open_jobs: dict[str, Job] = {}
    ended_by = dict(_notices(messages))
    for step in steps:
        told = step.result[:_EDGE_CHARS] + "\n" + step.result[-_EDGE_CHARS:]
        named = _named(step.deed) & open_jobs.keys() if open_jobs else set()
        if named and step.outcome.is_good and _ENDERS.search(plain(step.deed.name)):
            for job_id in named:
                del open_jobs[job_id]
            continue
        opened = tuple(_opened(told, step.deed))
        # Most results neither open nor end anything; to search them all took most of a ledger's time.
        over = bool(named or opened) and bool(_OVER.search(told))
        for job_id in named if over else ():
            del open_jobs[job_id]
        if step.deed.act is Act.COMMAND:
            for job_id in _killed(step.deed.command) & open_jobs.keys():
                del open_jobs[job_id]
        if not over:
            for kind, job_id in opened:
                open_jobs.setdefault(job_id, Job(kind=kind, id=job_id, by=step.number))
    starts = {step.number: step.message_index for step in steps}
    return tuple(j for j in open_jobs.values() if ended_by.get(j.id, -1) <= starts[j.by])


def _named(deed: Deed) -> set[str]:
    """Every short text and number in the arguments: one of them may be an id."""
    found: set[str] = set()
    for value in deed.arguments.values():
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, str) and len(item) <= 80:
                found.add(item)
            elif isinstance(item, int) and abs(item) < 10**12:
                found.add(str(item))
    return found


def _opened(told: str, deed: Deed) -> Iterator[tuple[str, str]]:
    if deed.act not in (Act.COMMAND, Act.JOB, Act.OTHER):
        return  # a read or a search only shows text that has such words in it
    sent_away = deed.act is Act.COMMAND and any(deed.arguments.get(name) is True for name in _BACKGROUND)
    named = _NAMED if deed.act is not Act.COMMAND or sent_away else ()
    lower = told.lower()
    for pattern in (*(pattern for word, pattern in _TOLD if word in lower), *named):
        for match in pattern.finditer(told):
            kind = match["kind"].lower()
            # The task and session ids of a tool of unknown kind are data more often than work.
            if deed.act is Act.OTHER and kind in ("task", "session", "agent", "shell", "bash", "terminal"):
                continue
            for job_id in match["id"].split(","):
                # An id holds a digit; "session id of the caller" is prose.
                if any(c.isdigit() for c in job_id):
                    yield kind, job_id.strip().rstrip(".:-")


def _killed(command: str) -> set[str]:
    killed: set[str] = set()
    for match in _KILL.finditer(command[:20_000]):
        words = match["ids"].split()
        # First comes the signal, if there is one; later a minus names a group of processes.
        killed |= {word.lstrip("-") for word in words[words[0].startswith("-") :]}
    return killed


def _notices(messages: Sequence[Message]) -> Iterator[tuple[str, int]]:
    """Claude Code tells of the end of a background task in a user message."""
    for index, message in enumerate(messages):
        if message.role is Role.ASSISTANT:
            continue
        for text in message.texts:
            if text.kind is not Kind.REASONING and "<task-id>" in text.text:
                for match in _NOTICE.finditer(text.text):
                    yield match["id"], index
