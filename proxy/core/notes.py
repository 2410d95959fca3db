"""
Ask for notes, and judge what came back.

The instruction is one text; where it stands is the dialect's affair. The gate takes an
answer apart from its reasoning and says whether it may stand for the replaced turns.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

# Words that a token makes in the languages of most users, rounded down: the model is
# asked for less than it may write, so that it ends by itself.
_WORDS_PER_TOKEN = 0.6
# Reasoning may take at most this part of the window: in a small one notes would not fit.
_REASONING_DIVISOR = 8
# A count that is this much below an estimate is of something else.
_LEAST_WRITTEN = 0.5
# What is left of a cut answer must be this share of its room to be of use; a single
# endless line leaves nothing.
_LEAST_SHARE_OF_ROOM = 0.1
# Models count words badly: notes that are a little over their room may fit it when they are written
# again, but what is far over it was never going to.
_FAR_OVER = 1.5
# A copy repeats nearly all of its long lines; good notes quote a few.
_COPY_SHARE = 0.8
_COPY_LINE_CHARS = 40
_COPY_LEAST_LINES = 4
_SENTENCE_END = re.compile(r"[.!?;] |\u3002")
# Headings that the instruction names are shorter, and belong into the notes.
_INSTRUCTION_CHARS = 30


class Reason(StrEnum):
    """Why there are no notes; label values of the failure counter."""

    HTTP_ERROR = "http_error"
    OVERFLOW = "overflow"
    TIMEOUT = "timeout"
    UNREACHABLE = "unreachable"
    EMPTY = "empty"
    ONLY_REASONING = "only_reasoning"
    TOOL_CALL = "tool_call"
    TOOL_MARKUP = "tool_markup"
    TOO_LARGE = "too_large"
    NO_GAIN = "no_gain"
    STILL_OVER = "still_over"
    ABANDONED = "abandoned"
    FAULT = "fault"
    NOT_RENDERED = "not_rendered"


class Flag(StrEnum):
    """What is not as it should be with notes that are used all the same."""

    CUT = "cut"
    COPIED = "copied"
    UNVERIFIED = "unverified"
    NO_REFERENCES = "no_references"


@dataclass(frozen=True, slots=True)
class Accepted:
    """Notes that may be used."""

    notes: str
    flags: tuple[Flag, ...] = ()


@dataclass(frozen=True, slots=True)
class Rejected:
    """An answer that is no notes; `retry` is what may be said to the model once, or empty."""

    reason: Reason
    retry: str = ""


RETRY_TOOL = (
    "The last attempt called a tool. No tool can be called now: write the record as plain text, in prose and "
    "lists."
)
RETRY_COPY = (
    "The last attempt copied the conversation. Do not repeat it: write a record of it in your own words, "
    "much shorter than the conversation."
)
RETRY_LARGE = (
    "The last attempt was longer than there is room for. Write the record again in half as many words: leave "
    "out what matters least."
)
RETRY_INSTRUCTION = "The last attempt repeated what it was asked. Do not repeat it: write the record itself."

_THINKING = re.compile(r"<(think|thinking|reasoning)>.*?(?:</\1>|\Z)", re.DOTALL)
# Templates that open the reasoning themselves leave only its end in the answer.
_THINKING_END = re.compile(r"\A.*</(?:think|thinking|reasoning)>", re.DOTALL)
# How the models that llama.cpp, vLLM and SGLang know write a call when it is not parsed.
_MARKUP = re.compile(
    # Not \s: on a run of empty lines each would look through all that follow.
    r"^[^\S\n]*(?:<tool_call>|<\|?tool_calls?(?:_begin)?\|?>|<function[=_ ]|<function_calls>|\[TOOL_CALLS\]|"
    r"<invoke |<\uff5ctool|<\|python_tag\|>|<\|tool_call|functions\.\w+:\d+|```tool_code)",
    re.MULTILINE,
)
_JSON_CALL = re.compile(
    r'\A(?:```(?:json)?\s*)?\[?\{\s*"(?:name|function|tool)"\s*:\s*"[^"]{1,200}"\s*,\s*"(?:arg|param)'
)


def instruct(template: str, *, language: str, notes_max: int, correction: str = "") -> str:
    """
    The instruction, with its placeholders `{language}` and `{words}` filled.

    Other braces stay as they are, since a person may have written the template.
    """
    words = max(50, int(notes_max * _WORDS_PER_TOKEN) // 10 * 10)
    text = template.strip().replace("{language}", language).replace("{words}", str(words))
    return f"{text}\n\n{correction}" if correction else text


def reasoning_allowance(configured: int, window: int) -> int:
    """Tokens that the notes request leaves for reasoning."""
    return min(configured, window // _REASONING_DIVISOR)


def without_reasoning(text: str) -> str:
    """The answer without `<think>` spans, closed, unclosed or opened by the template."""
    left = _THINKING.sub("", text)
    return _THINKING_END.sub("", left).strip()


def judge(
    text: str,
    *,
    reasoned: bool,
    called: bool,
    cut: bool,
    room: int,
    count: Callable[[str], int],
    sources: Sequence[str],
    written: int,
    earlier: str = "",
    instruction: str = "",
) -> Accepted | Rejected:
    """
    Whether an answer may stand for the replaced turns.

    Args:
        text: The visible text of the answer.
        reasoned: Whether there was reasoning beside it.
        called: Whether it called a tool.
        cut: Whether it was cut at its limit.
        room: Most tokens of the notes.
        count: Tokens of a text.
        sources: Long texts of the input that it may have copied.
        written: Tokens of the answer as the upstream counted them; 0 where it did not say. Its count
            is exact where ours is not.
        earlier: Notes that it was to carry over what still holds of; it is a copy of them only
            where it adds nothing.
        instruction: What the model was asked: what repeats it is left out, so that nobody obeys it later.
    """
    if called:
        return Rejected(Reason.TOOL_CALL, RETRY_TOOL)
    notes = without_reasoning(text)
    if not notes:
        return Rejected(Reason.ONLY_REASONING if reasoned or text.strip() else Reason.EMPTY)
    notes = _without_instruction(notes, instruction)
    if not notes:
        return Rejected(Reason.EMPTY, RETRY_INSTRUCTION)
    if _MARKUP.search(notes) or _JSON_CALL.match(notes):
        return Rejected(Reason.TOOL_MARKUP, RETRY_TOOL)
    flags: list[Flag] = []
    size = count(notes)
    if written >= size * _LEAST_WRITTEN:
        size = min(size, written)
    if size > room and not cut:
        return Rejected(Reason.TOO_LARGE, RETRY_LARGE if size <= _FAR_OVER * room else "")
    if cut:
        notes = _full_lines(notes, room, count)
        if count(notes) < _LEAST_SHARE_OF_ROOM * room:
            return Rejected(Reason.TOO_LARGE if notes else Reason.EMPTY)
        flags.append(Flag.CUT)
    if _is_copy(notes, sources) or _adds_nothing(notes, earlier):
        flags.append(Flag.COPIED)
    return Accepted(notes, tuple(flags))


def _without_instruction(notes: str, instruction: str) -> str:
    """The lines that are not of the instruction, however those were broken."""
    asked = " ".join(instruction.split())
    if not asked:
        return notes
    lines = notes.split("\n")
    kept = [line for line in lines if len(line) < _INSTRUCTION_CHARS or " ".join(line.split()) not in asked]
    return notes if len(kept) == len(lines) else "\n".join(kept).strip()


def _full_lines(notes: str, room: int, count: Callable[[str], int]) -> str:
    """The lines that are whole and within *room*; of the one after them its whole sentences."""
    lines = notes.split("\n")
    kept: list[str] = []
    used = 0
    for i, line in enumerate(lines):
        size = count(line) + 1
        is_last = i == len(lines) - 1
        if used + size > room or is_last:
            if sentences := _full_sentences(line, room - used, count):
                kept.append(sentences)
            break
        kept.append(line)
        used += size
    return "\n".join(kept).rstrip()


def _full_sentences(line: str, room: int, count: Callable[[str], int]) -> str:
    """The most of a line that ends with a sentence and takes at most *room*."""
    ends = [end.start() + 1 for end in _SENTENCE_END.finditer(line) if end.start()]
    # A model may write one line of thousands, and counting each would take long.
    fitting = bisect_right(ends, room, key=lambda end: count(line[:end]))
    return line[: ends[fitting - 1]] if fitting else ""


def _adds_nothing(notes: str, earlier: str) -> bool:
    before = {" ".join(line.split()) for line in earlier.split("\n")} | {""}
    return bool(earlier) and all(" ".join(line.split()) in before for line in notes.split("\n"))


def _is_copy(notes: str, sources: Sequence[str]) -> bool:
    folded = " ".join(notes.split())
    if any(folded == " ".join(source.split()) for source in sources):
        return True
    lines = [line.strip() for line in notes.split("\n") if len(line.strip()) >= _COPY_LINE_CHARS]
    if len(lines) < _COPY_LEAST_LINES:
        return False
    everything = "\n".join(sources)
    return sum(line in everything for line in lines) >= _COPY_SHARE * len(lines)
