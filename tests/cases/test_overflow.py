"""Answers that say "too long": found in any form, believed only if sane, and told from rate limits."""

import asyncio
import json
from typing import Any

import pytest

from tests.cases.table import case
from tests.support import wire_bytes as wire
from tests.support.agent_sessions import AgentSession, remembering_upstream
from tests.support.discovery import Server
from tests.support.formats import FORMATS, Format
from tests.support.raw_client import RawRequest
from tests.support.raw_upstream import RawUpstream, Send, Step
from tests.support.recorded import Recorded
from tests.support.scripted import ScriptedUpstream
from tests.support.watched import Watched, read, watched

EACH_FORMAT = pytest.mark.parametrize("wire_format", FORMATS, ids=lambda f: f.name)
WINDOW = 4096
POOL = {"error": {"code": 500, "message": "Context size has been exceeded.", "type": "server_error"}}


def llama(message: str, **members: Any) -> dict[str, Any]:
    return {"error": {"code": 400, "message": message, "type": "exceed_context_size_error"} | members}


SIZES = {"n_prompt_tokens": 5100, "n_ctx": WINDOW}
NEW = "request (5100 tokens) exceeds the available context size (4096 tokens), try increasing it"
OLD = (
    "the request exceeds the available context size. try increasing the context size or enable context shift"
)
DISGUISED = {
    "object": "error",
    "message": "max_tokens must be at least 1, got -214.",
    "type": "BadRequestError",
    "param": None,
    "code": 400,
}
LM_STUDIO = (
    "The number of tokens to keep from the initial prompt is greater than the context length (n_keep: 5100>= "
    "n_ctx: 4096). Try to load the model with a larger context length, or provide a shorter input."
)


class Refusing:
    """Refuses the agent's own requests as often as it is told; the rest is answered as usual."""

    def __init__(self, good: ScriptedUpstream, status: int, body: Any, *, times: int = 1) -> None:
        self._good, self._times = good, times
        self._steps: list[Step] = [Send(wire.response(json.dumps(body).encode(), status=f"{status} No"))]
        self.turns: list[Recorded] = []
        self.upstream = RawUpstream(script=self._script, behind=good.url)

    def _script(self, request: Recorded) -> list[Step] | None:
        if not request.is_chat or self._good.is_notes(request):
            return None
        self.turns.append(request)
        return self._steps if len(self.turns) <= self._times else None


async def after(
    wire_format: Format, status: int, body: Any, *, times: int = 1, **members: Any
) -> tuple[Any, Watched, Refusing]:
    """What became of a request for 5100 tokens whose first answer is *body*, before a server of 4096."""
    good = remembering_upstream(window=WINDOW, server=Server.BARE)
    session = AgentSession(name="alice").step(34)
    async with good.running():
        play = Refusing(good, status, body, times=times)
        async with play.upstream.running() as upstream, watched(upstream.url) as proxy:
            raw = wire_format.wire(session.body(**members))
            async with RawRequest(proxy.url, wire_format.path, body=raw) as request:
                got = await read(await request.answer())
    return got, proxy, play


def learned(proxy: Watched) -> float:
    return proxy.counted("upstream_window_tokens", model="scripted")


@pytest.mark.parametrize(
    ("status", "body", "window"),
    [
        case("X01", "llama.cpp with its numbers", 400, llama(NEW, **SIZES), WINDOW),
        case("X02", "the older words under a 500", 500, llama(OLD, **SIZES), WINDOW),
        case("X02", "the older words under a 413", 413, llama(OLD, **SIZES), WINDOW),
        case("X03", "the second number in the words is the window", 400, {"error": {"message": NEW}}, WINDOW),
        case("X06", "a limit that would be below one", 400, DISGUISED, None),
        case("X07", "an error that is a string", 400, {"error": LM_STUDIO}, WINDOW),
    ],
)
@EACH_FORMAT
async def test_an_overflow_is_put_right(
    wire_format: Format, status: int, body: Any, window: int | None
) -> None:
    got, proxy, play = await after(wire_format, status, body)
    assert got.status == 200
    assert len(play.turns) == 2
    assert len(play.turns[1].body) < len(play.turns[0].body)
    assert proxy.counted("context_overflow_answers_total", outcome="recovered") == 1
    if window is not None:
        assert learned(proxy) == window


@pytest.mark.parametrize(
    ("limit", "window"),
    [case("X05", "with the limit that was left out", 4091, 4096), case("X05", "or not at all", 100, None)],
)
async def test_a_window_of_a_few_tokens_is_not_believed(limit: int, window: int | None) -> None:
    error = {
        "message": "This model's maximum context length is 5 tokens. However, your request has 11 input "
        "tokens. Please reduce the length of the input messages. (parameter=input_tokens, value=11)",
        "type": "BadRequestError",
        "param": "input_tokens",
        "code": 400,
    }
    got, proxy, _ = await after(FORMATS[0], 400, {"error": error}, max_tokens=limit)
    assert got.status == 200
    told = [event["window"] for event in proxy.events("context.window_learned")]
    assert all(one >= 1024 for one in told)
    assert (told[:1] == [window]) or window is None


async def test_x05_a_window_below_what_has_worked_is_not_believed() -> None:
    good = remembering_upstream(window=8192, server=Server.BARE)
    session = AgentSession(name="alice").step(20)
    async with good.running():
        play = Refusing(good, 400, {"error": {"message": NEW.replace("4096", "1100")}}, times=0)
        async with play.upstream.running() as upstream, watched(upstream.url) as proxy:
            first = await proxy.send(session.body())
            play._times = len(play.turns) + 1
            second = await proxy.send(session.step(2).body())
    assert (first.status, second.status) == (200, 200)
    assert all(event["window"] > 2000 for event in proxy.events("context.window_learned"))


# What only sounds like it


@pytest.mark.parametrize(
    ("status", "body"),
    [
        case("X09", "a 429", 429, {"message": "Too many tokens, please wait before trying again."}),
        case("X09", "a 503 in the same words", 503, llama(NEW, **SIZES)),
        case(
            "X09",
            "throttling under a 400",
            400,
            {"error": {"message": "ThrottlingException: Too many tokens, please wait before trying again."}},
        ),
    ],
)
@EACH_FORMAT
async def test_a_rate_limit_is_passed_on_and_nothing_is_compacted(
    wire_format: Format, status: int, body: Any
) -> None:
    got, proxy, play = await after(wire_format, status, body)
    assert (got.status, json.loads(got.body)) == (status, body)
    assert len(play.turns) == 1
    assert proxy.names() == []


@pytest.mark.parametrize("times", [1, 2], ids=["passes", "stays"])
async def test_x12_a_pool_that_others_filled_is_asked_once_more_with_the_same_bytes(times: int) -> None:
    """Nothing is wrong with this request: compacting it below what it needs would not help."""
    got, proxy, play = await after(FORMATS[0], 500, POOL, times=times)
    assert len(play.turns) == 2
    assert play.turns[0].body == play.turns[1].body
    assert proxy.names() == []
    if times == 1:
        # It was alone then, and too long indeed.
        assert got.status in (200, 400)
    else:
        assert (got.status, json.loads(got.body)) == (500, POOL)


async def test_x01_a_pool_that_overflows_in_mid_stream_is_passed_on() -> None:
    pieces = [*wire.sse("hello")[:2], b"data: " + json.dumps(POOL).encode() + b"\n\n"]
    good = remembering_upstream(window=8192)
    async with good.running():
        raw = RawUpstream(script=lambda r: wire.stream(pieces) if r.is_chat else None, behind=good.url)
        async with raw.running(), watched(raw.url) as proxy:
            got = await proxy.send(AgentSession(name="alice").step(2).body(stream=True))
    assert (got.status, got.body) == (200, b"".join(pieces))
    assert proxy.events("context.window_learned") == []


async def test_x12_four_that_fill_a_pool_together_are_answered_one_after_the_other() -> None:
    good = remembering_upstream(window=1024 + 512, slots=4)
    bodies = [AgentSession(name=name).step(3).body() for name in ("alice", "bob", "carol", "dave")]
    seen: dict[bytes, int] = {}
    alone: list[int] = []

    def script(request: Recorded) -> list[Step] | None:
        if not request.is_chat:
            return None
        seen[request.body] = seen.get(request.body, 0) + 1
        under_way = sum(r.is_chat and not r.is_done for r in raw.requests)
        if seen[request.body] == 1:
            return [Send(wire.response(json.dumps(POOL).encode(), status="500 No"))]
        alone.append(under_way)
        return None

    async with good.running():
        raw = RawUpstream(script=script, behind=good.url)
        async with raw.running(), watched(raw.url) as proxy:
            got = await asyncio.gather(*(proxy.send(body) for body in bodies))
    assert {one.status for one in got} == {200}
    assert alone == [1, 1, 1, 1]
    assert sorted(seen.values()) == [2, 2, 2, 2]
    assert proxy.names() == []
