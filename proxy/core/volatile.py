"""
Leave out of a text what clients re-render from turn to turn without meaning it.

One table; each row names the client that does it. The patterns are linear: a span is
found by its own closing mark or ends with its line.
"""

import re

_SPANS = re.compile(
    "|".join(
        (
            # Claude Code, Qwen Code: reminders that come and go on earlier messages.
            r"<system-reminder>.*?</system-reminder>",
            # Claude Code: a billing header that changes with each request.
            r"^x-anthropic-billing-header:[^\n]*$",
            # Qwen Code, Gemini CLI: the date, put into the user's message and taken out later.
            r"^[ \t]*(?:Today's date is|The current date is|Current date:)[^\n]*$",
        )
    ),
    re.DOTALL | re.MULTILINE,
)
# A cheap look before the search: most texts hold none of it.
_HINTS = ("<system-reminder>", "x-anthropic-billing-header:", "date")


def without_volatile(text: str) -> str:
    """*text* without volatile spans, and without blank space around what is left of it."""
    if not any(hint in text for hint in _HINTS):
        return text
    left, count = _SPANS.subn("", text)
    return left.strip() if count else text
