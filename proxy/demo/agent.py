"""
Replay the recorded session as its agent would have sent it, with the `openai` client.

The model's own answers are too poor to go on with: each is read to its end, measured and
dropped, and the next request continues the recording.
"""

import time
from collections.abc import AsyncIterator
from typing import Any

import openai

from proxy.demo.seen import EventLog, TurnSeen
from proxy.demo.session import Session, is_enough

# Enough to be a real answer, short enough not to be waited for.
ANSWER_TOKENS = 12
# The notes request inherits it. A base model copies its prompt without a penalty, and
# with a temperature it soon repeats one sign without end.
SAMPLING: dict[str, Any] = {"repeat_penalty": 1.15, "repeat_last_n": 256}


async def count_prompts(
    client: openai.AsyncOpenAI, session: Session, window: int, asked: int | None
) -> list[int]:
    """
    Tokens of the unshortened prompt at each turn that is to be replayed, as the server counts them.

    *client* points at the server itself, not at the proxy: this asks what would be
    without it.
    """
    counted: list[int] = []
    for turn in range(1, len(session.turns) + 1):
        if is_enough(counted, window, asked):
            break
        body = {"messages": session.before(turn), "tools": list(session.tools)}
        answer: dict[str, Any] = await client.post(
            "/chat/completions/input_tokens", body=body, cast_to=dict[str, Any]
        )
        counted.append(int(answer["input_tokens"]))
    return counted


async def replay(
    client: openai.AsyncOpenAI, session: Session, whole: list[int], log: EventLog
) -> AsyncIterator[TurnSeen]:
    """The turns, one by one as they are answered; *whole* as from `count_prompts`."""
    budget = 0
    for number, tokens in enumerate(whole, start=1):
        began = time.monotonic()
        try:
            told, usage = await _ask(client, session, number)
            error = ""
        except openai.APIError as failure:
            told, usage, error = {}, {}, str(failure)
        prompt, _, limit = told.get("x-context-tokens", "").partition("/")
        budget = int(limit or budget)
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
        used = usage.get("prompt_tokens") or 0
        yield TurnSeen(
            number=number,
            whole=tokens,
            prompt=used or int(prompt or 0),
            budget=budget,
            processed=used - cached,
            cached=cached,
            seconds=time.monotonic() - began,
            events=log.take(),
            error=error,
        )


async def _ask(
    client: openai.AsyncOpenAI, session: Session, number: int
) -> tuple[dict[str, str], dict[str, Any]]:
    """One request, as a stream; the answer's headers, and the usage that ends it."""
    messages: Any = session.before(number)
    tools: Any = list(session.tools)
    raw = await client.chat.completions.with_raw_response.create(
        model="gemma-3-270m",
        messages=messages,
        tools=tools,
        temperature=0,
        max_tokens=ANSWER_TOKENS,
        stream=True,
        stream_options={"include_usage": True},
        extra_body=SAMPLING,
    )
    usage: dict[str, Any] = {}
    async for chunk in raw.parse():
        if chunk.usage is not None:
            usage = chunk.usage.model_dump()
    return {name.lower(): value for name, value in raw.headers.items()}, usage
