"""
Does the upstream say that a prompt is longer than its window, and how long that is?

Servers say it in two dozen ways, under any HTTP status. Told apart from it are rate
limits, which sound alike ("too many tokens"), and llama.cpp's pool that parallel
requests filled together. What to do about it is decided by `compactor`.

Every quantity is in tokens.
"""

import re
from dataclasses import dataclass

from proxy.core.error_bodies import Complaint, find_complaints

# Below this no agent works; a report of less is a fault of the server (vLLM once said 3).
LEAST_WINDOW = 1024
# The largest windows on offer hold ten million.
MOST_WINDOW = 100_000_000
# 529 is Anthropic's "overloaded".
_THROTTLED = frozenset({429, 503, 529})


def _any(*parts: str) -> re.Pattern[str]:
    return re.compile("|".join(parts), re.IGNORECASE | re.MULTILINE)


# Every quantifier below is bounded or followed by what it cannot match, so that a
# search takes time in proportion to the text.
_NUMBER = r"(\d[\d,_]{0,14})(?!\.\d)"

_THROTTLING = _any(
    r"rate.?limit",
    r"throttl",
    r"too many requests",
    r"please (?:wait|slow down)",
    r"try again (?:later|in \d)",
    r"tokens? per (?:second|min|hour|day)",
    r"\b[TI]P[MD]\b",
    r"\bquota\b",
    r"overloaded",
)

# llama.cpp while generating, and its older form at admission.
_POOL = _any(r"^context size has been exceeded", r"too big compared to kv size")

_OVERFLOW = _any(
    # Codes and types.
    r"exceed_context_size|context_length_exceeded|context_window_exceeded|max_prompt_tokens_exceeded",
    r"ContextWindowExceeded",
    # llama.cpp.
    r"exceeds? the available context",
    # OpenAI, vLLM, OpenRouter, xAI, and many that follow them.
    r"maximum (?:context|prompt|model|sequence|input) length (?:is|of)\b",
    r"reduce the length of the (?:input|message|prompt)",
    r"(?:exceed|exceeds|exceeded) (?:the |this |its )?(?:model'?s? |max(?:imum)? |input )*"
    r"(?:context|allowed|token) (?:length|window|size|limit)",
    r"context (?:window|length|size) exceeds",
    # vLLM: older forms, and the one in disguise. -1 is a client's own "no limit".
    r"longer than the (?:maximum )?(?:model'?s? )?(?:model|context) (?:length|window)",
    r"too long to fit into the model",
    r"max(?:_completion|_new)?_tokens must be (?:at least|greater than|positive)[ \w]{0,8}, (?:but )?got "
    r"-(?!1\b)\d",
    # LM Studio.
    r"tokens to keep from the initial prompt is greater than the context",
    r"when (?:the )?context (?:the )?overflows",
    r"reached context length of",
    # TGI.
    r"`inputs` (?:tokens \+ `max_new_tokens` )?must (?:be <=|have less than)",
    # Anthropic, Bedrock, Ollama's cloud.
    r"(?:prompt|input) (?:is )?too long",
    r"exceeded max context length",
    # Mistral, Gemini, Copilot.
    r"too large for model with \d",
    r"token count[^.\n]{0,40}exceeds the (?:maximum number of tokens|limit)",
)

_WINDOW = tuple(
    _any(pattern)
    for pattern in (
        rf"available context size \({_NUMBER}",
        # In LM Studio's message n_keep is the prompt, n_ctx the window.
        rf"\bn_ctx\W{{1,4}}{_NUMBER}",
        rf"(?:context|prompt|model|sequence|input) length (?:is|of)(?: only)? {_NUMBER}",
        rf"context length {_NUMBER}",
        rf"(?:context length|allowed length|context window|context size|context limit) \({_NUMBER}",
        rf"model with {_NUMBER} maximum context",
        rf"must be <= {_NUMBER}",
        rf"must have less than {_NUMBER}",
        rf"tokens allowed \({_NUMBER}",
        rf"exceeds the limit of {_NUMBER}",
        rf"token limit: {_NUMBER}",
        rf"\d (?:tokens )?> {_NUMBER}",
    )
)

_PROMPT = tuple(
    _any(pattern)
    for pattern in (
        rf"request \({_NUMBER} tokens",
        rf"\bn_keep\W{{1,4}}{_NUMBER}",
        # The part of the prompt comes before the sum with the output, where both stand.
        rf"{_NUMBER} (?:in the messages|in your prompt|of text input)",
        rf"{_NUMBER} tokens from the input",
        rf"(?:has|passed|contains)(?: at least)? {_NUMBER} (?:input )?tokens",
        rf"messages resulted in {_NUMBER}",
        rf"requested {_NUMBER} tokens in the messages",
        rf"(?:input|prompt|length|token count) \((?:total |prompt )?(?:length )?{_NUMBER}",
        rf"given: {_NUMBER}",
        rf"too long: {_NUMBER}",
        rf"prompt (?:contains|token count of) {_NUMBER}",
        rf"context limit: {_NUMBER}",
        rf"keep the first {_NUMBER}",
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Overflow:
    """
    A prompt did not fit.

    Attributes:
        window: As the message has it, unchecked; None where it does not say.
        prompt: Tokens of the refused prompt as the message has it, or None.
        pool_full: Requests that run side by side filled the server's memory together:
            nothing is learned from that, and the request may fit when asked alone.
    """

    window: int | None = None
    prompt: int | None = None
    pool_full: bool = False


def read_overflow(status: int, body: bytes) -> Overflow | None:
    """
    What an answer says of an overflow; None where it says nothing of the kind.

    Args:
        status: Of the answer; a 200 is looked through for error objects and events.
        body: As far as it was read, decompressed; the first 64 KiB are looked at.
    """
    if status in _THROTTLED:
        return None
    for complaint in find_complaints(status, body):
        overflow = _judge(complaint)
        if overflow is not None:
            return overflow
    return None


def sane_window(
    overflow: Overflow, output_limit: int | None = None, largest_prompt_that_worked: int = 0
) -> int | None:
    """
    The window that an overflow teaches; None where it teaches none.

    A window is believed from 1024 to 100 million, and only if every prompt that worked
    would have fitted. A report below that may be vLLM's, which leaves the request's
    *output_limit* out of the window: then their sum is judged. Where the server
    publishes its window, that is the better source.
    """
    if overflow.window is None or overflow.pool_full:
        return None
    candidates = [overflow.window]
    if output_limit is not None and output_limit > 0:
        candidates.append(overflow.window + output_limit)
    least = max(LEAST_WINDOW, largest_prompt_that_worked)
    return next((window for window in candidates if least <= window <= MOST_WINDOW), None)


def _judge(complaint: Complaint) -> Overflow | None:
    # A number in the code says 429 even where the status said 200.
    if complaint.codes & _THROTTLED or _THROTTLING.search(complaint.text):
        return None
    if _POOL.search(complaint.text):
        return Overflow(pool_full=True)
    if not _OVERFLOW.search(complaint.text):
        return None
    return Overflow(
        window=complaint.window or _first(_WINDOW, complaint.text),
        prompt=complaint.prompt or _first(_PROMPT, complaint.text),
    )


def _first(patterns: tuple[re.Pattern[str], ...], text: str) -> int | None:
    for pattern in patterns:
        found = pattern.search(text)
        if found:
            number = int(found.group(1).replace(",", "").replace("_", ""))
            if number > 0:
                return number
    return None
