"""
Say how a call ended, from the text of its result.

Results come in many shapes and few say plainly whether they failed. A status is read
only from where agents put it (the first and the last lines, or a JSON field), because the
middle is the output of somebody's program. What says nothing is `ENDED`, not a success.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from proxy.core.tools import Act


class Status(StrEnum):
    """How a call ended. `ENDED` came back without saying; `MISSING` has no result in the range."""

    OK = "ok"
    FAILED = "failed"
    ENDED = "ended"
    MISSING = "missing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """
    How a call ended.

    Attributes:
        status: See `Status`.
        exit_code: What the command's process returned, or None where it is not said.
        error: The line that tells the failure best; empty unless `FAILED`.
        size: Size of the result for a reader, as "84 lines".
        next_line: First line that a truncated read did not show; 0 if it says none.
    """

    status: Status
    exit_code: int | None = None
    error: str = ""
    size: str = ""
    next_line: int = 0

    @property
    def is_good(self) -> bool:
        """Whether nothing says that it failed."""
        return self.status in (Status.OK, Status.ENDED)


_EDGE_LINES = 6
_EDGE_CHARS = 2000
_JSON_CHARS = 1_000_000
_ERROR_CHARS = 160
# pi and Claude Code say so where a command printed nothing.
_NOTHING = frozenset({"no output", "no content", "empty", "tool ran without output or errors"})
# A file that is read may begin with "error"; a refusal to read it is short.
_REFUSAL_CHARS = 600

# Claude Code "Exit code 1"; Codex "Exit code: 1" and "Process exited with code 1"; pi "Command exited
# with code 1"; Qwen Code, Gemini CLI "Exit Code: 1"; mini-swe-agent <returncode>1</returncode>; Claude
# Code's shells <exit_code>1</exit_code>; OpenHands "[The command completed with exit code 1.]".
_EXIT = re.compile(
    r"^.{0,60}?(?:\bexit(?:ed)?(?: with)?(?: (?:status|code)| ?[_-]?code)|\breturn[ _]?code)"
    r"(?: of)?[\"']?>?[ \t]{0,3}[:=]?[ \t]{0,3}(?P<code>-?\d{1,10}|\(none\))(?!\d)",
    re.IGNORECASE,
)
# pi "Command aborted"; opencode and others on time limits; a signal instead of an exit code.
_STOPPED = re.compile(
    r"^\W{0,3}(?:\w{1,20} )?(?:command|process|tool|execution|operation|it)?\s?(?:was )?"
    r"(?:aborted|timed out\b|cancell?ed|terminated by signal|killed)",
    re.IGNORECASE,
)
_REFUSED = re.compile(
    r"\s{0,9}[^\w{\"]{0,3}(?:<?tool_use_error>|<?error>|is_?error\b[^\w]{1,4}true"
    r"|(?:tool |command |execution |internal |unexpected )?(?:error|failed|failure|exception)\b(?! ?s\b)"
    r"|fatal:|traceback|could not|couldn't|cannot|can't|unable to|unknown tool"
    r"|invalid (?:arg|input|tool|param|path)"
    r"|no such file|(?:file|path|directory) (?:not found|does not exist)|permission denied|access denied"
    r"|(?:enoent|eacces|eisdir|eperm|enotdir|eexist)\b"
    r"|no changes made|no (?:exact )?match|old_?(?:string|text) (?:not found|was not)"
    r"|the user (?:doesn't|does not|didn't|denied|rejected|declined)"
    r"|user (?:denied|rejected|declined|refused))",
    re.IGNORECASE,
)
# Best first: a raised exception, then a compiler's or tool's own error line, then a word of failure.
_TELLING = (
    re.compile(r"^(?:E\s{1,9})?[\w.]{0,80}(?:Error|Exception|Exit|Interrupt|Warning)(?::|\b\(|$)"),
    re.compile(
        r"\berror\b(?!s? ?(?:0\b|handling|message))[^\n]{0,40}:|^(?:error|fatal|FAILED|FAIL)\b|\berror TS\d",
        re.I,
    ),
    re.compile(
        r"\b(?:errors?|failed|failures?|fatal|exception|panic|cannot|can't|could not|denied|refused|not found"
        r"|no such|undefined|unexpected|invalid|missing|mismatch|conflict|aborted|timed out|unable)\b",
        re.IGNORECASE,
    ),
)
# Frames, headers and what runners add: true, and never what went wrong.
_FRAME_LINE = re.compile(
    r"^\s*(?:</?[\w-]{1,30}>\s*)*$"
    r"|^\s*(?:File \"|at \S+ \(|Traceback \(most recent|Chunk ID:|Wall time:|Original token"
    r"|Output:?\s*$|Command:|Directory:|Error: \(none\)|Signal:|Background PIDs|Process Group"
    r"|npm (?:error|ERR!) (?:Lifecycle|command|code|path|workspace|location|A complete))",
    re.IGNORECASE,
)
# pi, Claude Code, opencode, Gemini CLI: where a truncated read goes on.
_GOES_ON = re.compile(r"\boffset[=:' ]{1,3}(\d{1,9})|\bstart_?line[=:' ]{1,3}(\d{1,9})", re.IGNORECASE)


def read_outcome(act: Act, result: str | None) -> Outcome:
    """How a call of kind *act* ended whose result is *result* (None: there is none)."""
    if result is None:
        return Outcome(status=Status.MISSING)
    code, failed, told, body = _fields(result)
    edges = body[:_EDGE_CHARS], body[-_EDGE_CHARS:]
    if act in (Act.COMMAND, Act.JOB) and code is None:
        code = _exit_code(edges)
    refused = bool(_REFUSED.match(body)) and (act is Act.COMMAND or len(body) <= _REFUSAL_CHARS)
    stopped = act is Act.COMMAND and any(_STOPPED.match(line) for line in _edge_lines(edges))
    if code is not None:
        status = Status.FAILED if code else Status.OK
    elif failed or refused or stopped:
        status = Status.FAILED
    else:
        status = Status.ENDED
    return Outcome(
        status=status,
        exit_code=code,
        error=(_error_line(told) or _error_line(body)) if status is Status.FAILED else "",
        size=_size(body),
        next_line=_next_line(edges[1]) if act is Act.READ else 0,
    )


def _fields(result: str) -> tuple[int | None, bool, str, str]:
    """Exit code, whether a field says failure, its error and all its text, of a result that may be JSON."""
    if not result.lstrip().startswith("{") or len(result) > _JSON_CHARS:
        return None, False, "", result
    try:
        parsed = json.loads(result)
    except (ValueError, RecursionError):
        return None, False, "", result
    inner = parsed.get("metadata")
    both = {**(inner if isinstance(inner, dict) else {}), **parsed}
    code = next(
        (c for k in ("exit_code", "exitCode", "returncode", "exit") if _is_code(c := both.get(k))), None
    )
    error = both.get("error")
    failed = bool(error) or both.get("success") is False or both.get("is_error") is True
    told = error if isinstance(error, str) else ""
    texts = [told, *(both.get(k) for k in ("output", "stdout", "content", "result", "stderr"))]
    said = [t for t in texts if isinstance(t, str) and t]
    return code, failed, told, "\n".join(said) if said else result


def _is_code(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**10


def _edge_lines(edges: tuple[str, str]) -> Iterator[str]:
    yield from edges[0].splitlines()[:_EDGE_LINES]
    yield from reversed(edges[1].splitlines()[-_EDGE_LINES:])


def _exit_code(edges: tuple[str, str]) -> int | None:
    for line in _edge_lines(edges):
        match = _EXIT.match(line)
        if match:
            return 0 if match["code"] == "(none)" else int(match["code"])
    return None


def _error_line(body: str) -> str:
    lines = [line.strip() for line in body.splitlines() if line.strip() and not _FRAME_LINE.match(line)]
    lines = [line for line in lines if not _EXIT.match(line)]
    if body.lstrip().startswith("Traceback") or "\nTraceback (most recent call last)" in body:
        lines.reverse()  # Python tells the error last
    for pattern in _TELLING:
        for line in lines:
            if pattern.search(line[:400]):
                return _short(line)
    return _short(lines[-1]) if lines else ""


def _short(line: str) -> str:
    line = re.sub(r"</?(?:tool_use_error|error|output|stderr)>", "", line).strip()
    return line if len(line) <= _ERROR_CHARS else line[: _ERROR_CHARS - 2] + " …"


def _size(body: str) -> str:
    text = body.strip()
    if not text or text.strip("().<>/").lower() in _NOTHING:
        return "no output"
    lines = text.count("\n") + 1
    if lines > 1:
        return f"{lines} lines"
    return f"{len(text)} chars"


def _next_line(tail: str) -> int:
    # A hint is the agent's own words at the very end, not a line of the file.
    last = "\n".join(tail.splitlines()[-3:])
    if "more" not in last and "continue" not in last and "truncated" not in last:
        return 0
    match = _GOES_ON.search(last)
    return int(match[1] or match[2]) if match else 0
