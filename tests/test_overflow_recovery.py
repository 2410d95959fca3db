"""
An overflow answer teaches, and the client sees only the good answer that follows.

Played against servers that say of their window nothing at all, or less than the truth.
"""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from proxy.core.overflow import Overflow
from tests.support import wire_bytes as wire
from tests.support.agent_sessions import AgentSession, remembering_upstream
from tests.support.discovery import Server
from tests.support.gate import Gate
from tests.support.raw_upstream import RawUpstream, Send, Stall, Step, Wait
from tests.support.recorded import Recorded
from tests.support.scripted import ScriptedUpstream
from tests.support.watched import Watched, watched

# What the session below takes is more than this, and less than twice of it.
WINDOW = 2048
LLAMA = {
    "code": 400,
    "message": f"request (2600 tokens) exceeds the available context size ({WINDOW} tokens), try "
    "increasing it",
    "type": "exceed_context_size_error",
    "n_prompt_tokens": 2600,
    "n_ctx": WINDOW,
}
VLLM = (
    f"This model's maximum context length is {WINDOW} tokens. However, you requested 2700 tokens (2600 in "
    "the messages, 100 in the completion). Please reduce the length of the messages or completion."
)
SGLANG = f"The input (2600 tokens) is longer than the model's context length ({WINDOW} tokens)."
OPENROUTER = (
    f"This endpoint's maximum context length is {WINDOW} tokens. However, you requested about 2600 tokens "
    "(2500 of text input, 100 in the output). Please reduce the length of either one."
)
LM_STUDIO = (
    "Trying to keep the first 2600 tokens when context the overflows. However, the model is loaded with "
    f"context length of only {WINDOW} tokens, which is not enough. Try to load the model with a larger one"
)
OPENAI = {
    "message": f"This model's maximum context length is {WINDOW} tokens. However, your messages resulted "
    "in 2600 tokens.",
    "type": "invalid_request_error",
    "param": "messages",
    "code": "context_length_exceeded",
}
NO_NUMBERS = {
    "message": "Your input exceeds the context window of this model. Please adjust your input and try again.",
    "type": "invalid_request_error",
    "param": "input",
    "code": "context_length_exceeded",
}
THROTTLED = {"message": "Too many tokens, please wait before trying again.", "type": "throttling_error"}
WORDS_OF_BOTH = {
    "message": "ThrottlingException: prompt too long for the tokens per minute left, please wait"
}
POOL = {"code": 500, "message": "Context size has been exceeded.", "type": "server_error"}


def refused(status: int, body: Any) -> list[Step]:
    return [Send(wire.response(json.dumps(body).encode(), status=f"{status} No"))]


def in_stream(error: Any, *before: bytes) -> list[Step]:
    return wire.stream([*before, b"data: " + json.dumps({"error": error}).encode() + b"\n\n"])


FORMS = {
    "llama.cpp": lambda: refused(400, {"error": LLAMA}),
    "llama.cpp with 500": lambda: refused(500, {"error": LLAMA | {"code": 500}}),
    "vLLM": lambda: refused(400, {"error": {"message": VLLM, "type": "BadRequestError", "code": 400}}),
    "vLLM, older": lambda: refused(400, {"object": "error", "message": VLLM, "code": 400}),
    "SGLang": lambda: refused(400, {"object": "error", "message": SGLANG, "code": 400}),
    "SGLang in a stream": lambda: in_stream({"message": SGLANG, "type": "BadRequestError", "code": 400}),
    "in a stream after comments": lambda: in_stream(LLAMA, b": ping\n\n", b":\n\n"),
    "in a stream that stays open": lambda: [*in_stream(LLAMA)[:-1], Stall()],
    "an error event": lambda: wire.stream([b"event: error\ndata: " + json.dumps(LLAMA).encode() + b"\n\n"]),
    "old llama.cpp's error field": lambda: wire.stream([b"error: " + json.dumps(LLAMA).encode() + b"\n\n"]),
    "LM Studio, a string": lambda: refused(400, {"error": LM_STUDIO}),
    "a 200 with an error": lambda: refused(200, {"error": LLAMA}),
    "OpenAI": lambda: refused(400, {"error": OPENAI}),
    "OpenRouter": lambda: refused(400, {"error": {"message": OPENROUTER, "code": 400}}),
    "TGI": lambda: refused(
        422,
        {
            "error": f"Input validation error: `inputs` tokens + `max_new_tokens` must be <= {WINDOW}. "
            "Given: 2600"
        },
    ),
    "Anthropic's words": lambda: refused(
        400, {"error": {"message": f"prompt is too long: 2600 tokens > {WINDOW} maximum"}}
    ),
    "without numbers": lambda: refused(400, {"error": NO_NUMBERS}),
}


class Refusing:
    """Refuses the agent's own requests while *holds*; the rest is answered as usual."""

    def __init__(
        self,
        good: ScriptedUpstream,
        steps: Callable[[], list[Step]],
        *,
        holds: Callable[[Recorded, int], bool] = lambda _, number: number == 1,
    ) -> None:
        self._good, self._steps, self._holds = good, steps, holds
        self.turns: list[Recorded] = []
        self.upstream = RawUpstream(script=self._script, behind=good.url)

    def _script(self, request: Recorded) -> list[Step] | None:
        if not request.is_chat or self._good.is_notes(request):
            return None
        self.turns.append(request)
        return self._steps() if self._holds(request, len(self.turns)) else None


def session() -> AgentSession:
    return AgentSession(name="alice").step(24)


def window_of(proxy: Watched) -> float:
    return proxy.counted("upstream_window_tokens", model="scripted")


@pytest.mark.parametrize("form", [pytest.param(steps, id=name) for name, steps in FORMS.items()])
@pytest.mark.parametrize("stream", [True, False], ids=["streaming", "not streaming"])
async def test_the_request_comes_back_once_and_fits(form: Callable[[], list[Step]], stream: bool) -> None:
    good = remembering_upstream(window=WINDOW, server=Server.BARE)
    alice = session()
    body = alice.body(stream=stream)
    assert WINDOW < good.count(body) < 2 * WINDOW
    async with good.running():
        play = Refusing(good, form)
        async with play.upstream.running() as upstream, watched(upstream.url) as proxy:
            got = await proxy.send(body)
            first, second = play.turns
            assert got.outcome in ("none", "compacted", "trimmed"), "none where a comment went out before"
            later = await proxy.send(alice.step().body(stream=stream))
            assert len(play.turns) == 3, "what was learned holds for the next request"
    assert (got.status, later.status) == (200, 200)
    assert got.is_whole
    assert b"error" not in got.body
    assert first.json == body
    assert good.count(second.json) < WINDOW
    assert WINDOW <= window_of(proxy) < 2 * WINDOW
    learned = [event["window"] for event in proxy.events("context.window_learned")]
    # What the notes request teaches corrects a guess.
    assert learned and learned == sorted(set(learned), reverse=True)
    assert len(learned) == 1 or form is FORMS["without numbers"]
    assert proxy.counted("context_overflow_answers_total", outcome="recovered") == 1
    assert proxy.counted("context_overflow_answers_total") == 1
    assert {"context.compacted", "context.trimmed"} & set(proxy.names())


async def test_the_second_overflow_is_relayed() -> None:
    good = remembering_upstream(window=WINDOW, server=Server.BARE)
    error = json.dumps({"error": LLAMA}).encode()
    async with good.running():
        play = Refusing(good, FORMS["llama.cpp"], holds=lambda *_: True)
        async with play.upstream.running() as upstream, watched(upstream.url) as proxy:
            got = await proxy.send(session().body())
    assert (got.status, got.body, got.is_whole) == (400, error, True)
    assert len(play.turns) == 2
    assert proxy.counted("context_overflow_answers_total", outcome="relayed") == 1
    assert proxy.counted("context_overflow_answers_total", outcome="recovered") == 0


async def test_what_cannot_be_made_shorter_is_not_sent_again() -> None:
    good = remembering_upstream(window=WINDOW, server=Server.BARE)
    body = {"model": "scripted", "messages": [{"role": "user", "content": "tax rate table " * 900}]}
    async with good.running():
        play = Refusing(good, FORMS["llama.cpp"], holds=lambda *_: True)
        async with play.upstream.running() as upstream, watched(upstream.url) as proxy:
            got = await proxy.send(body)
    assert (got.status, got.body) == (400, json.dumps({"error": LLAMA}).encode())
    assert len(play.turns) == 1
    assert proxy.counted("context_overflow_answers_total", outcome="relayed") == 1
    assert [event["why"].split(",")[0] for event in proxy.events("context.over_budget")]


@pytest.mark.parametrize(
    ("status", "error"),
    [
        pytest.param(429, THROTTLED, id="429"),
        pytest.param(400, THROTTLED, id="in the form of a 400"),
        pytest.param(503, LLAMA, id="an overloaded server that uses the words"),
        pytest.param(400, {"message": "Rate limit reached: 30000 tokens per min"}, id="tokens per minute"),
        pytest.param(400, WORDS_OF_BOTH, id="the words of both"),
        pytest.param(400, OPENAI | {"code": 429}, id="the words of an overflow under the code 429"),
    ],
)
async def test_a_rate_limit_is_no_overflow(status: int, error: dict[str, Any]) -> None:
    good = remembering_upstream(window=WINDOW, server=Server.BARE)
    async with good.running():
        play = Refusing(good, lambda: refused(status, {"error": error}))
        async with play.upstream.running() as upstream, watched(upstream.url) as proxy:
            got = await proxy.send(session().body())
    assert (got.status, got.body) == (status, json.dumps({"error": error}).encode())
    assert len(play.turns) == 1
    assert proxy.names() == []
    assert window_of(proxy) == 0
    assert proxy.counted("context_overflow_answers_total") == 0


async def test_a_full_pool_is_asked_again_as_it_was_and_teaches_nothing() -> None:
    good = remembering_upstream(window=8192)
    body = session().body()
    async with good.running():
        play = Refusing(good, lambda: refused(500, {"error": POOL}))
        async with play.upstream.running() as upstream, watched(upstream.url) as proxy:
            got = await proxy.send(body)
    assert got.status == 200
    first, second = play.turns
    assert first.body == second.body
    assert window_of(proxy) == 8192
    assert proxy.names() == []
    assert proxy.counted("context_overflow_answers_total", outcome="recovered") == 1


async def test_a_pool_that_stays_full_is_told() -> None:
    good = remembering_upstream(window=8192)
    async with good.running():
        play = Refusing(good, lambda: refused(500, {"error": POOL}), holds=lambda *_: True)
        async with play.upstream.running() as upstream, watched(upstream.url) as proxy:
            got = await proxy.send(session().body())
    assert (got.status, got.body) == (500, json.dumps({"error": POOL}).encode())
    assert len(play.turns) == 2
    assert proxy.counted("context_overflow_answers_total", outcome="relayed") == 1


async def test_after_a_full_pool_the_request_is_asked_alone() -> None:
    """It waits for the others, whose prompts filled the pool together with it."""
    good = remembering_upstream(window=8192, slots=2)
    held = Gate()
    other = AgentSession(name="bob").step(2).body()
    async with good.running():

        def steps(request: Recorded) -> list[Step] | None:
            if not request.is_chat:
                return None
            if b"mark-bob" in request.body:
                return [Wait(held), Send(wire.response(wire.completion("Done.")))]
            asked.append(request)
            return refused(500, {"error": POOL}) if len(asked) == 1 else None

        asked: list[Recorded] = []
        raw = RawUpstream(script=steps, behind=good.url)
        async with raw.running(), watched(raw.url) as proxy:
            bob = asyncio.create_task(proxy.send(other))
            await raw.until(lambda u: any(b"mark-bob" in r.body for r in u.requests if r.is_chat))
            alice = asyncio.create_task(proxy.send(session().body()))
            await raw.until(lambda _: bool(asked) and asked[0].is_done)
            # Nothing to wait for says that it does not ask; so the next of bob's is let through first.
            turnstile = proxy.proxy.turnstile
            while not turnstile._waiting_alone:
                await asyncio.sleep(0)
            assert len(asked) == 1
            held.open()
            got = [await bob, await alice]
    assert [g.status for g in got] == [200, 200]
    assert len(asked) == 2


async def test_a_window_made_smaller_in_mid_session_is_noticed() -> None:
    good = remembering_upstream(window=8192)
    alice = session()
    async with good.running(), watched(good.url) as proxy:
        before = await proxy.send(alice.body())
        good.window = WINDOW
        after = [(await proxy.send(alice.step().body())).status for _ in range(4)]
    assert before.outcome == "none"
    assert after == [200] * 4
    assert window_of(proxy) == WINDOW
    assert proxy.counted("context_overflow_answers_total", outcome="recovered") == 1
    assert proxy.counted("context_overflow_answers_total") == 1


@pytest.mark.parametrize("said", [3, 1023, 10**9], ids=["vLLM's 3", "below what is sane", "a billion"])
async def test_a_window_that_is_not_sane_is_not_learned(said: int) -> None:
    good = remembering_upstream(window=8192, server=Server.VLLM)
    message = f"This model's maximum context length is {said} tokens. However, you requested 2700 tokens."
    async with good.running():
        play = Refusing(good, lambda: refused(400, {"error": {"message": message}}))
        async with play.upstream.running() as upstream, watched(upstream.url) as proxy:
            got = await proxy.send(session().body())
    assert got.status == 200
    assert window_of(proxy) == 8192
    assert proxy.events("context.window_learned") == []


async def test_a_window_that_contradicts_what_worked_is_not_learned() -> None:
    good = remembering_upstream(window=8192, server=Server.BARE)
    long = session()
    async with good.running(), watched(good.url) as proxy:
        windows = proxy.proxy.windows
        await proxy.send(long.body())
        windows.worked("scripted", 3000)
        await windows.learn("scripted", Overflow(window=2048), (), None)
    assert proxy.events("context.window_learned") == []
