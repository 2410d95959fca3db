"""
Streams of server-sent events: good ones in all three formats, and what else an upstream may send as one.
"""

import json
from itertools import pairwise

from tests.fuzz.values import LONG, NOT_JSON, ODD, Dice, words

_ENDS = (b"\n", b"\n", b"\n", b"\r\n", b"\r")
NOTES = "\n".join(f"- Fact {i}: the agent read file_{i}.py and kept its public names." for i in range(5))


def _chat(text: str, finish: str) -> list[str]:
    said = [{"choices": [{"index": 0, "delta": {"content": piece}}]} for piece in (text[:40], text[40:])]
    last = {"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}
    usage = {"choices": [], "usage": {"prompt_tokens": 90, "completion_tokens": 9}}
    return [*(f"data: {json.dumps(event)}" for event in (*said, last, usage)), "data: [DONE]"]


def _responses(text: str, status: str) -> list[str]:
    answer = {
        "id": "resp_1",
        "status": status,
        "output": [],
        "usage": {"input_tokens": 90, "output_tokens": 9},
    }
    events = [
        {"type": "response.created", "response": {"id": "resp_1"}},
        {"type": "response.output_text.delta", "delta": text},
        {"type": f"response.{status}", "response": answer},
    ]
    return [f"event: {event['type']}\ndata: {json.dumps(event)}" for event in events]


def _messages(text: str, reason: str) -> list[str]:
    events = [
        {
            "type": "message_start",
            "message": {"id": "msg_1", "usage": {"input_tokens": 90, "output_tokens": 1}},
        },
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}},
        {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 9}},
        {"type": "message_stop"},
    ]
    return [f"event: {event['type']}\ndata: {json.dumps(event)}" for event in events]


_OVERFLOW = (
    '{"error":{"code":400,"message":"request (9999 tokens) exceeds the available context size (1024 tokens), '
    'try increasing it","type":"exceed_context_size_error","n_prompt_tokens":9999,"n_ctx":1024}}'
)
_MADE = {
    "/v1/chat/completions": lambda text: _chat(text, "stop"),
    "/v1/responses": lambda text: _responses(text, "completed"),
    "/v1/messages": lambda text: _messages(text, "end_turn"),
}


def notes_stream(dice: Dice, path: str) -> bytes:
    """Mostly good notes; where the dice strike anything else."""
    if dice.strikes(4):
        return bare_stream(dice)
    text = json.loads(words(dice)) if dice.strikes(4) else NOTES + f"\n- Case {dice.randrange(10**6)}."
    return _joined(dice, _MADE[path](text))


def bare_stream(dice: Dice) -> bytes:
    """Any stream, odd ones among them."""
    events = _MADE[dice.choice(tuple(_MADE))](json.loads(words(dice)))
    if dice.random() < 0.1:
        events.insert(0, f"data: {_OVERFLOW}" if dice.random() < 0.5 else f"event: error\ndata: {_OVERFLOW}")
    while dice.random() < 0.6:
        events.insert(dice.randint(0, len(events)), _odd_event(dice))
    if dice.random() < 0.1:
        dice.shuffle(events)
    return _joined(dice, events)


def _odd_event(dice: Dice) -> str:
    a, b = dice.choice(ODD), dice.choice(ODD)
    return dice.choice(
        (
            ": ping",
            ":",
            "",
            "data",
            "data:",
            "event: error",
            "retry: 10",
            "id: 7\u0000",
            f"data:{dice.choice(ODD)}",
            f"data: {dice.choice(NOT_JSON)}",
            f"error: {dice.choice(ODD)}",
            f"data: {dice.choice(ODD)}\ndata: {dice.choice(LONG)}",
            f'data: {{"usage":{{"prompt_tokens":{a},"completion_tokens":{b}}}}}',
            f'data: {{"usage":{{"input_tokens":{a}}},"type":{b}}}',
            f'data: {{"choices":{a},"delta":{b},"error":{a}}}',
            f'data: {{"type":{a},"response":{b},"item":{b}}}',
            "data: " + "x" * dice.choice((70_000, 1_200_000)),
            "x" * 5000,
            "\ufeffdata: 1",
            "data: \ud800\udfff",
        )
    )


def _joined(dice: Dice, events: list[str]) -> bytes:
    end = dice.choice(_ENDS)
    raw = b"".join(event.encode("utf-8", "surrogatepass").replace(b"\n", end) + end + end for event in events)
    if dice.random() < 0.1:
        raw = raw.rstrip(b"\r\n")
    if dice.random() < 0.05:
        at = dice.randint(0, len(raw))
        raw = raw[:at] + b"\xff\xfe\x00" + raw[at:]
    return raw


def cut(dice: Dice, raw: bytes) -> tuple[bytes, ...]:
    """*raw* in pieces: as a whole, byte by byte, in many small ones, or anywhere."""
    if dice.random() < 0.03:
        return tuple(raw[at : at + 512] for at in range(0, len(raw), 512))
    kind = dice.randrange(4)
    if kind == 0 or not raw:
        return (raw,) if raw else ()
    if kind == 1 and len(raw) < 1500:
        return tuple(raw[at : at + 1] for at in range(len(raw)))
    places = sorted({0, len(raw), *(dice.randint(0, len(raw)) for _ in range(dice.choice((1, 3, 20))))})
    return tuple(raw[a:b] for a, b in pairwise(places))
