"""
Leave out of a text what clients re-render from turn to turn without meaning it.

One table for spans and one for lines; each row names the client that does it. The search
is linear: an opening that is never closed is looked for once, not from every opening.
"""

import re

# Claude Code, Qwen Code: reminders that come and go on earlier messages.
_OPENING, _CLOSING = "<system-reminder>", "</system-reminder>"
_LINES = re.compile(
    "|".join(
        (
            # Claude Code: a billing header that changes with each request.
            r"^x-anthropic-billing-header:[^\n]*$",
            # Qwen Code, Gemini CLI: the date, put into the user's message and taken out later.
            r"^[ \t]*(?:Today's date is|The current date is|Current date:)[^\n]*$",
        )
    ),
    re.MULTILINE,
)
# A cheap look before the search: most texts hold none of it.
_HINTS = ("x-anthropic-billing-header:", "date")


def without_volatile(text: str) -> str:
    """*text* without volatile spans, and without blank space around what is left of it."""
    left = _without_reminders(text)
    if any(hint in left for hint in _HINTS):
        left = _LINES.sub("", left)
    return left if left == text else left.strip()


def _without_reminders(text: str) -> str:
    kept = []
    start = 0
    while (opening := text.find(_OPENING, start)) >= 0:
        closing = text.find(_CLOSING, opening)
        if closing == -1:
            break
        kept.append(text[start:opening])
        start = closing + len(_CLOSING)
    return "".join([*kept, text[start:]])
