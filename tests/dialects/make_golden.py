"""
Write the golden pairs: one request in each format, and everything that is made of it.

They are looked at by a person when they change. Run `python -m tests.dialects.make_golden` to
write them anew after a change that is meant.
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from proxy.core.messages import Cut, Kind
from proxy.core.rewrite import Rewrite
from proxy.core.splice import splice
from proxy.dialects.base import NotesFormat
from proxy.dialects.sse import Events
from tests.dialects.conversations import IMAGE, SYSTEM, TOOLS, calls, result, says, user
from tests.support import answers, answers_messages, answers_responses
from tests.support.answers import Answer, Numbers
from tests.support.formats import FORMATS, Format

GOLDEN = Path(__file__).parent / "golden"

_ASKED = {
    "messages": [
        SYSTEM,
        {"role": "user", "content": [{"type": "text", "text": "Make the page look like this."}, IMAGE]},
        calls("a", "b", said="I read both.", reasoning_content="Two files.", signed="c2lnbmVk"),
        result("a", "<html>" + "a" * 40),
        result("b", "body { color: red }"),
        user("Keep the colours."),
        says("The page is done."),
        user("Now the form."),
        calls("c", reasoning_content="The form is in c.", signed="c2lnbmVk"),
        result("c", "<form>" + "c" * 40),
    ],
    "model": "m",
    "tools": TOOLS,
    "max_tokens": 700,
    "temperature": 0.2,
    "stream": True,
}
_NOTES = NotesFormat(instruction="[From the harness] Write the record.", limit=300, forbid_tools=True)
_ANSWER = Answer(text="The form is read.", reasoning="One more file.", calls=(("read", {"path": "d.py"}),))
_NUMBERS = Numbers(prompt=900, cached=800, completion=40, has_timings=False)


def made(format_: Format) -> dict[str, bytes]:
    """File names and contents of one format."""
    raw = format_.wire(_ASKED)
    parsed = format_.dialect.parse(raw)
    conversation = parsed.conversation
    replaced = conversation.turns[-1].start - conversation.brief_end
    seen = len(conversation.messages) - conversation.brief_end
    block = "<record-0>\nThe page is done; the user said: Keep the colours.\n</record-0>"
    view = splice(conversation, Rewrite(seen=seen, replaced=replaced, block=block, notes="n"))
    cuts = tuple(
        Cut(at=at, text=i, put="[cut]")
        for at, message in enumerate(conversation.messages[conversation.brief_end :])
        for i, text in enumerate(message.texts)
        if text.kind is Kind.RESULT
    )
    trimmed = splice(conversation, Rewrite(seen=seen, cuts=cuts, is_trim=True))
    stream = b"".join(_events(format_))
    return {
        "request.json": raw,
        "compacted.json": format_.dialect.render(parsed, view),
        "notes.json": format_.dialect.render_notes(parsed, view, _NOTES),
        "trimmed.json": format_.dialect.render(parsed, trimmed),
        "stream.sse": stream,
        "read.json": json.dumps(_read(format_, stream), indent=1).encode() + b"\n",
        "waited.sse": _waited(format_, stream),
        "error.json": format_.dialect.error(502, "upstream_unreachable", "there is no connection"),
        "error.sse": format_.dialect.error_event(504, "upstream_stalled", "silent for 600 s"),
    }


def _events(format_: Format) -> Any:
    if format_.name == "responses":
        return answers_responses.events(_ANSWER, _NUMBERS, model="m", number=1, body={"instructions": "i"})
    if format_.name == "messages":
        return answers_messages.events(_ANSWER, _NUMBERS, model="m", number=1)
    return answers.events(_ANSWER, _NUMBERS, model="m", number=1, include_usage=True)


def _read(format_: Format, stream: bytes) -> dict[str, Any]:
    usage = format_.dialect.read_usage(stream[:4096], stream[-4096:], is_stream=True)
    pieces = [format_.dialect.read_event(event.data) for event in Events().feed(stream)]
    return {"usage": asdict(usage) if usage else None, "pieces": [asdict(piece) for piece in pieces]}


def _waited(format_: Format, stream: bytes) -> bytes:
    """What a client gets that was told twice that we live."""
    waiting = format_.dialect.waiting("0" * 32)
    return waiting.beat() + waiting.beat() + waiting.relay(stream) + waiting.end()


if __name__ == "__main__":
    for each in FORMATS:
        (GOLDEN / each.name).mkdir(parents=True, exist_ok=True)
        for name, content in made(each).items():
            (GOLDEN / each.name / name).write_bytes(content)
