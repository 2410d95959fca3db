"""How large the window is taken to be, and how much of it a prompt may fill."""

import json
from typing import Any

import pytest

from tests.cases.table import case
from tests.support import wire_bytes as wire
from tests.support.agent_sessions import AgentSession, remembering_upstream
from tests.support.discovery import Server
from tests.support.formats import FORMATS, Format
from tests.support.proxied import proxied
from tests.support.raw_upstream import RawUpstream, Send, Step
from tests.support.recorded import Recorded
from tests.support.watched import Watched, watched

EACH_FORMAT = pytest.mark.parametrize("wire_format", FORMATS, ids=lambda f: f.name)
GO: dict[str, Any] = {"messages": [{"role": "user", "content": "go"}], "model": "m"}


def answers(pages: dict[str, Any], *, refusal: Any = None) -> RawUpstream:
    """A server with these pages; a chat is answered, the first one refused where *refusal* is given."""
    refused: list[Recorded] = []

    def script(request: Recorded) -> list[Step]:
        path = request.path.partition("?")[0]
        if path in pages:
            return [Send(wire.response(json.dumps(pages[path]).encode()))]
        if not request.is_chat:
            return [Send(wire.status(404))]
        if refusal is not None and not refused:
            refused.append(request)
            return [Send(wire.response(json.dumps(refusal).encode(), status="400 No"))]
        return [Send(wire.response(wire.completion("ok")))]

    return RawUpstream(script=script)


def window_of(proxy: Watched) -> float:
    return proxy.counted("upstream_window_tokens", model="m")


def props(n_ctx: int, slots: int) -> dict[str, Any]:
    return {"default_generation_settings": {"n_ctx": n_ctx}, "total_slots": slots}


TRAINED = {"data": [{"id": "m", "owned_by": "llamacpp", "meta": {"n_ctx_train": 262144}}]}


@pytest.mark.parametrize(
    ("pages", "window"),
    [
        case("X10", "what one slot holds is not divided", {"/props": props(65536, 2)}, 65536),
        case("X11", "nor multiplied by the slots", {"/props": props(65536, 2), "/v1/models": TRAINED}, 65536),
        case("X11", "what a model was trained for is no window", {"/v1/models": TRAINED}, 0),
        case("X13", "two slots that share what was typed hold half each", {"/props": props(4096, 2)}, 4096),
        case(
            "X15",
            "what Ollama has loaded",
            {"/api/ps": {"models": [{"name": "m", "model": "m", "context_length": 4096}]}, "/api/tags": {}},
            4096,
        ),
    ],
)
async def test_the_window_is_what_the_server_says_of_one_request(pages: dict[str, Any], window: int) -> None:
    async with answers(pages).running() as upstream, watched(upstream.url) as proxy:
        got = await proxy.send(GO)
        assert (got.status, window_of(proxy)) == (200, window)


async def test_x11_a_window_that_was_set_wins_until_the_server_refuses() -> None:
    message = "request (20000 tokens) exceeds the available context size (16384 tokens), try increasing it"
    error = {"code": 400, "message": message, "type": "exceed_context_size_error", "n_ctx": 16384}
    server = answers({"/props": props(65536, 2)}, refusal={"error": error})
    async with server.running() as upstream, watched(upstream.url, window=32768) as proxy:
        got = [await proxy.send(GO) for _ in range(2)]
    # Less than the window by what is kept for the answer.
    budgets = [one.headers["x-context-tokens"].partition("/")[2] for one in got]
    assert budgets == [str(32768 - 4096), str(16384 - 2048)]
    assert [one.status for one in got] == [400, 200]


async def test_x13_a_server_started_again_with_less_is_asked_again() -> None:
    upstream = remembering_upstream(window=8192)
    session = AgentSession(name="alice").step(20)
    async with upstream.running(), watched(upstream.url) as proxy:
        before = await proxy.send(session.body())
        while upstream.count(session.body()) < 4096:
            session.step()
        assert proxy.counted("upstream_window_tokens") == 8192
        upstream.window = 4096
        after = await proxy.send(session.body())
        assert proxy.counted("upstream_window_tokens") == 4096
        later = await proxy.send(session.step(8).body())
    assert {one.status for one in (before, after, later)} == {200}
    assert later.headers["x-context-tokens"].endswith("/3072")


async def test_x13_another_model_behind_the_same_address_has_a_window_of_its_own() -> None:
    windows = {"small": 4096, "large": 32768}

    def script(request: Recorded) -> list[Step]:
        if request.path.startswith("/props"):
            model = request.path.partition("model=")[2]
            return [Send(wire.response(json.dumps(props(windows.get(model, 0), 1)).encode()))]
        return [Send(wire.response(wire.completion("ok")) if request.is_chat else wire.status(404))]

    async with RawUpstream(script=script).running() as upstream, watched(upstream.url) as proxy:
        for model in ("small", "large"):
            await proxy.send(GO | {"model": model})
        assert {m: proxy.counted("upstream_window_tokens", model=m) for m in windows} == windows


@EACH_FORMAT
async def test_x15_a_server_that_cuts_without_a_word_never_gets_too_much(wire_format: Format) -> None:
    """It would cut the system prompt first; what reaches it is below what it has loaded."""
    good = remembering_upstream(window=100_000, server=Server.BARE)
    loaded = {"models": [{"name": "scripted", "model": "scripted", "context_length": 4096}]}

    def script(request: Recorded) -> list[Step] | None:
        if request.path == "/api/ps":
            return [Send(wire.response(json.dumps(loaded).encode()))]
        return None

    session = AgentSession(name="alice").step(66)
    assert good.count(session.body()) > 9000
    async with good.running():
        raw = RawUpstream(script=script, behind=good.url)
        async with raw.running(), proxied_by(raw.url, good) as proxy:
            walk = await proxy.send(wire_format.wire(session.body()), path=wire_format.path)
            later = await proxy.send(wire_format.wire(session.step(20).body()), path=wire_format.path)
    assert (walk.outcome, later.status) == ("compacted", 200)
    assert all(good.count(turn.chat) < 4096 for turn in good.turns)
    # Once it has counted a prompt, neither do requests for notes.
    assert later.notes and all(good.count(notes.chat) < 4096 for notes in later.notes)


def proxied_by(url: str, good: Any) -> Any:
    good.url = url
    return proxied(good)


# What is kept for the answer


FIELDS = [
    (FORMATS[0], "max_tokens"),
    (FORMATS[0], "max_completion_tokens"),
    (FORMATS[1], "max_output_tokens"),
    (FORMATS[2], "max_tokens"),
]


@pytest.mark.parametrize(("wire_format", "field"), FIELDS, ids=lambda v: v if isinstance(v, str) else v.name)
async def test_x42_the_limit_of_the_answer_is_kept_free_and_stays_as_it_is(
    wire_format: Format, field: str
) -> None:
    """Servers like vLLM refuse a prompt that fits by itself and not with its limit."""
    window, limit = 8192, 3000
    upstream = remembering_upstream(window=window, server=Server.VLLM)
    session = AgentSession(name="alice")
    async with upstream.running(), proxied(upstream) as proxy:
        walks = []
        for _ in range(14):
            value = wire_format.write(session.step(4).body()) | {field: limit}
            walks.append(await proxy.send(value, path=wire_format.path))
    assert {walk.status for walk in walks} == {200}
    assert {walk.budget for walk in walks} == {window - limit}
    assert "compacted" in {walk.outcome for walk in walks}
    assert all(turn.json[field] == limit for turn in upstream.turns)
    assert all(upstream.count(turn.chat) + limit <= window for turn in upstream.turns)


async def test_x42_the_sum_that_a_refusal_names_teaches_the_window() -> None:
    message = "input length and `max_tokens` exceed context limit: 181000 + 24000 > 200000, decrease one"
    refusal = {"type": "error", "error": {"type": "invalid_request_error", "message": message}}
    async with answers({}, refusal=refusal).running() as upstream, watched(upstream.url) as proxy:
        await proxy.send(GO | {"max_tokens": 24000})
        told = [event["window"] for event in proxy.events("context.window_learned")]
    assert told == [200000]
    assert all(r.json["max_tokens"] == 24000 for r in upstream.requests if r.is_chat)
