"""What a prompt is taken to hold: calls, pictures, other scripts, huge lines; and counting harms nobody."""

import asyncio
import base64
import json
import random
import threading
from typing import Any

import pytest

from tests.cases.table import case
from tests.support.agent_sessions import AgentSession, remembering_upstream
from tests.support.discovery import Server
from tests.support.formats import FORMATS, Format
from tests.support.proxied import proxied
from tests.support.scripted import ScriptedUpstream
from tests.support.talks import Messages, call
from tests.support.watched import watched

EACH_FORMAT = pytest.mark.parametrize("wire_format", FORMATS, ids=lambda f: f.name)
RANDOM = random.Random(7)
HUGE = 10_000_000


def base64_of(chars: int) -> str:
    return base64.b64encode(RANDOM.randbytes(chars * 3 // 4)).decode()


def image(chars: int) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{base64_of(chars)}"}}


def task(content: Any) -> Messages:
    return [{"role": "user", "content": content}]


def turn(name: str, arguments: dict[str, Any], result: str) -> Messages:
    messages = task("Look.")
    call(messages, name, arguments, result)
    return messages


async def tokens_of(messages: Messages, wire_format: Format = FORMATS[0]) -> int:
    """The size of a first prompt as the proxy measures it, before a server that does not count."""
    upstream = ScriptedUpstream(server=Server.BARE, window=HUGE)
    async with upstream.running(), proxied(upstream, window=HUGE) as proxy:
        raw = wire_format.wire({"messages": messages, "model": "m"})
        walk = await proxy.send(raw, path=wire_format.path)
    assert (walk.status, walk.view) == (200, raw)
    return walk.tokens


LETTERS = turn("read", {"path": "x"}, "a" * 100_000)
PICTURE = task([{"type": "text", "text": "What is it?"}, image(4_200_000)])
INLINE = turn("read", {"path": "x"}, f"data:image/png;base64,{base64_of(1_046_118)}")
WRITTEN = turn("write_file", {"path": "a", "content": "for row in table: total += row.rate\n" * 1_100}, "ok")
CHINESE = task("请把商店移植到新的税务规则上，每一步都要小心。" * 1_300)


@pytest.mark.parametrize(
    ("messages", "least", "most"),
    [
        case("X17", "one letter a hundred thousand times", LETTERS, 10_000, 60_000),
        case("X21", "a picture costs a flat sum", PICTURE, 300, 2_500),
        case("X23", "base64 inside a text", INLINE, 580_000, 900_000),
        case("X26", "the arguments of a call", WRITTEN, 8_000, 20_000),
        case("X29", "Chinese", CHINESE, 15_000, 40_000),
    ],
)
@EACH_FORMAT
async def test_a_prompt_is_measured_as_what_it_is(
    wire_format: Format, messages: Messages, least: int, most: int
) -> None:
    assert least <= await tokens_of(messages, wire_format) <= most


async def test_x26_long_arguments_are_shortened_and_stay_json() -> None:
    upstream, messages = remembering_upstream(window=8192), task("Write the files.")
    async with upstream.running(), proxied(upstream, compact_at=0) as proxy:
        for number in range(8):
            content = f"ROW_{number} = 'a value that stands in this row'\n" * 150
            call(messages, "write_file", {"path": f"{number}.py", "content": content}, "ok")
            walk = await proxy.send({"messages": messages, "model": "m"})
    written = [
        json.loads(c["function"]["arguments"]) for m in walk.messages for c in m.get("tool_calls") or ()
    ]
    assert any("were cut here" in arguments["content"] for arguments in written)
    assert written[-1]["content"] == content


async def test_x21_the_newest_picture_is_never_taken_away() -> None:
    upstream = remembering_upstream(window=8192)
    session = AgentSession(name="alice").step(30)
    asking = {"role": "user", "content": [{"type": "text", "text": "What is it?"}, image(4_000)]}
    session.messages += [{"role": "assistant", "content": "Done."}, asking]
    async with upstream.running(), proxied(upstream, window=8192, kind="openai") as proxy:
        walk = await proxy.send(session.body())
    assert walk.outcome == "compacted"
    assert walk.messages[-1] == asking


# Usage that is there, or not


async def test_s20_a_stream_that_never_reports_usage_is_compacted_in_time() -> None:
    upstream = remembering_upstream(window=4096, server=Server.BARE)
    session, outcomes = AgentSession(name="alice"), []
    async with upstream.running(), watched(upstream.url, window=4096) as proxy:
        for _ in range(40):
            got = await proxy.send(session.step().body(stream=True))
            assert b'"usage"' not in got.body
            outcomes.append((got.status, got.outcome))
    assert {status for status, _ in outcomes} == {200}
    assert {"compacted", "reused"} <= {outcome for _, outcome in outcomes}


@pytest.mark.parametrize("stream", [True, False], ids=["streaming", "not streaming"])
async def test_x28_what_came_since_the_last_answer_counts_on_top_of_its_usage(stream: bool) -> None:
    """The server counts twice what one would think; a large result comes after it has said so."""
    window = 8192
    upstream = remembering_upstream(window=window, server=Server.BARE, chars_per_token=2)
    messages = turn("read", {"path": "a"}, "the rate of this line is looked up\n" * 230)
    body = {"model": "m", "stream": stream, "stream_options": {"include_usage": True}}
    async with upstream.running(), proxied(upstream, window=window, compact_at=0) as proxy:
        first = await proxy.send(body | {"messages": messages})
        said = upstream.turns[-1].numbers
        call(messages, "read", {"path": "b"}, "the rate of this line is looked up\n" * 230)
        second = await proxy.send(body | {"messages": messages})
        third = await proxy.send(body | {"messages": messages})
    assert said is not None and first.tokens < 0.7 * said.prompt
    assert (second.status, second.outcome, third.outcome) == (200, "trimmed", "reused")
    assert upstream.count(second.turns[-1].json) < window


async def test_x24_what_a_picture_costs_here_is_learned_from_usage() -> None:
    """Some servers bill the text of its base64."""
    window = 60_000
    upstream = remembering_upstream(window=window, server=Server.BARE)
    messages: Messages = task("Look at the pictures.")
    tokens = []
    async with upstream.running(), proxied(upstream, window=window, compact_at=0) as proxy:
        for number in range(5):
            messages += [
                {"role": "assistant", "content": f"Show me number {number}."},
                {"role": "user", "content": [{"type": "text", "text": "Here it is."}, image(40_000)]},
            ]
            walk = await proxy.send({"messages": messages, "model": "m"})
            tokens.append((walk.tokens, upstream.count(walk.turns[-1].json)))
            assert walk.status == 200
    # The first is a guess; what comes after it is not far off.
    assert tokens[0][0] < 2500 and tokens[0][1] > 9000
    assert all(abs(guessed - billed) < 0.25 * billed for guessed, billed in tokens[1:])


# Counting never harms


async def test_x18_others_are_answered_while_ten_megabytes_are_counted() -> None:
    upstream = ScriptedUpstream(server=Server.BARE, window=100_000_000, slots=2)
    counting, go_on = threading.Event(), threading.Event()

    class Slow:
        def encode_ordinary(self, text: str) -> list[int]:
            if "minified" in text:
                counting.set()
                assert go_on.wait(30)
            return [0] * (len(text) // 4)

    def slow(proxy: Any) -> None:
        proxy.tokenizer._encoding, proxy.tokenizer._loaded = Slow(), True

    big = {"model": "m", "messages": turn("read", {"path": "x"}, "minified;" + "x=1;" * 2_500_000)}
    async with upstream.running(), watched(upstream.url, change=slow, window=100_000_000) as proxy:
        asking = asyncio.create_task(proxy.send(big))
        await asyncio.to_thread(counting.wait, 30)
        small = await proxy.send({"model": "m", "messages": task("hello"), "stream": True})
        assert (small.status, asking.done()) == (200, False)
        go_on.set()
        assert (await asking).status == 200


def broken(proxy: Any) -> None:
    class Panics:
        def encode_ordinary(self, text: str) -> list[int]:
            raise BaseException("a panic of other code")

    proxy.tokenizer._encoding, proxy.tokenizer._loaded = Panics(), True


def failing(proxy: Any) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise ValueError("disallowed special token")

    proxy.tokenizer.messages = proxy.tokenizer.count = fail


@pytest.mark.parametrize(
    "change",
    [
        case("X20", "words that are special to a tokenizer", lambda _: None),
        case("X20", "a tokenizer that panics", broken),
        case("X20", "counting that fails", failing),
    ],
)
async def test_a_request_goes_on_whatever_becomes_of_counting(change: Any) -> None:
    upstream = remembering_upstream(window=4096)
    session = AgentSession(name="alice", task="Port <|endoftext|> and <|im_start|>.").step(14)
    session.messages[-1]["content"] += "<|endoftext|>" * 40
    got: list[Any] = []
    async with upstream.running(), watched(upstream.url, change=change) as proxy:
        for _ in range(3):
            got.append(await proxy.send(session.step().body()))
    assert {one.status for one in got} == {200}
    assert upstream.turns[0].messages[1]["content"].startswith("Port <|endoftext|>")
    if change is failing:
        assert proxy.counted("context_faults_total") >= 1


async def test_x20_a_body_of_half_a_megabyte_full_of_them_goes_through() -> None:
    raw = json.dumps({"messages": task("<|endoftext|>" * 45_000), "model": "m"}).encode()
    upstream = ScriptedUpstream(server=Server.BARE, window=10_000_000)
    async with upstream.running(), watched(upstream.url, window=10_000_000) as proxy:
        got = await proxy.send(raw)
        assert (got.status, proxy.counted("context_faults_total")) == (200, 0)
    assert (upstream.turns[0].body, len(raw) > 580_000) == (raw, True)
