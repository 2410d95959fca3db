"""
What cannot be understood goes through untouched, and the upstream judges it.

Never a fault of the proxy, whatever a client or an upstream says. `context_faults_total` counts
faults that were caught before they reached a client, so it has to stay at 0 as well.
"""

import asyncio
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support import wire_bytes
from tests.support.fronted import CHAT, fronted, sample
from tests.support.raw_client import ask
from tests.support.raw_upstream import RawUpstream, Send
from tests.support.recorded import Recorded
from tests.support.scripted import ScriptedUpstream

PROMPT = '{"role":"user","content":"hello"}'


def chat(*messages: str, more: str = "") -> bytes:
    """A body of these raw messages."""
    return f'{{"messages":[{",".join(messages)}]{more}}}'.encode()


def nested(depth: int, inner: str = "") -> str:
    return "[" * depth + inner + "]" * depth


def user(content: str) -> str:
    """A user message with raw JSON for its content."""
    return f'{{"role":"user","content":{content}}}'


NOT_UNDERSTOOD = {
    "empty": b"",
    "only spaces": b" \n ",
    "not JSON": b"hello",
    "half of an object": b'{"messages":[{"role":"us',
    "an array": b"[1]",
    "a string": b'"messages"',
    "null": b"null",
    "nothing after the object but nonsense": chat(PROMPT) + b"}",
    "no messages": b'{"model":"x"}',
    "messages is null": b'{"messages":null}',
    "messages is a string": b'{"messages":"hello"}',
    "messages is an object": b'{"messages":{"role":"user"}}',
    "messages is empty": b'{"messages":[]}',
    "a message is a string": chat('"hello"'),
    "a message is null": chat("null"),
    "a message has no role": chat('{"content":"hello"}'),
    "a role that nobody knows": chat('{"role":"oracle","content":"hello"}'),
    "a role that is a number": chat('{"role":1,"content":"hello"}'),
    "a role that is a list": chat('{"role":["user"],"content":"hello"}'),
    "brackets 100,000 deep": b"[" * 100_000,
    "a message 100,000 deep": chat(user(nested(100_000))),
    "a field 100,000 deep": chat(PROMPT, more=f',"x":{nested(100_000)}'),
    "invalid UTF-8": b'{"messages":[{"role":"user","content":"\xff\xfe"}]}',
    "a lone surrogate as bytes": b'{"messages":[{"role":"user","content":"\xed\xa0\xbd"}]}',
    "a BOM": b"\xef\xbb\xbf" + chat(PROMPT),
    "UTF-16": chat(PROMPT).decode().encode("utf-16"),
    "null bytes around it": b"\0" + chat(PROMPT) + b"\0",
    "a null byte inside a string": b'{"messages":[{"role":"user","content":"a\0b"}]}',
    "messages stand twice": b'{"messages":[' + PROMPT.encode() + b'],"messages":[]}',
    "an integer of 5000 digits": chat(PROMPT, more=f',"seed":{"9" * 5000}'),
    "a float that is too large": chat(PROMPT, more=',"temperature":1e400'),
    "NaN and Infinity": chat(PROMPT, more=',"temperature":NaN,"top_p":-Infinity'),
    "a comma too many": b'{"messages":[' + PROMPT.encode() + b",]}",
    "NUL only": b"\0" * 100,
}

UNDERSTOOD = {
    "an integer of 400 digits": chat(PROMPT, more=f',"seed":{10**400}'),
    "a key of a message twice": chat('{"role":"user","content":"a","content":"b"}'),
    "half a surrogate pair": chat(user(r'"x \ud83d y"')),
    "half a surrogate pair as a key": chat(PROMPT, more=r',"\udc00":1'),
    "half a surrogate pair as the model": chat(PROMPT, more=r',"model":"\ud800"'),
    "an escaped null": chat(user(r'"a\u0000b"')),
    "content is a number": chat(user("12")),
    "content is an object": chat(user('{"a":1}')),
    "content is a list of lists": chat(user('[[],[1],null,"x"]')),
    "parts without a type": chat(user('[{},{"text":1},{"type":5,"text":null}]')),
    "content 300 deep": chat(user(nested(300))),
    "content 900 deep": chat(user(nested(900))),
    "a part 900 deep": chat(user(f'[{{"type":"x","x":{nested(900)}}}]')),
    "calls that are no list": chat(PROMPT, '{"role":"assistant","tool_calls":7}'),
    "calls that are no objects": chat(PROMPT, '{"role":"assistant","tool_calls":[1,null,"x",[]]}'),
    "a call without a function": chat(
        PROMPT, '{"role":"assistant","tool_calls":[{"id":"","type":"function"}]}'
    ),
    "a call whose function is a list": chat(PROMPT, '{"role":"assistant","tool_calls":[{"function":[]}]}'),
    "a call whose id is an object": chat(
        PROMPT, '{"role":"assistant","tool_calls":[{"id":{},"function":{"name":7,"arguments":{}}}]}'
    ),
    "a result without an id": chat(PROMPT, '{"role":"tool","content":"x"}'),
    "a result whose id is a list": chat(PROMPT, '{"role":"tool","tool_call_id":[1],"content":"x"}'),
    "arguments that are half JSON": chat(
        PROMPT, '{"role":"assistant","tool_calls":[{"id":"1","function":{"name":"a","arguments":"{"}}]}'
    ),
    "arguments 2000 deep": chat(
        PROMPT,
        f'{{"role":"assistant","tool_calls":[{{"id":"1","function":{{"name":"a","arguments":"{nested(2000)}"}}}}]}}',
    ),
    "only a system message": chat('{"role":"system","content":"rules"}'),
    "only an assistant message": chat('{"role":"assistant","content":"x"}'),
    "empty contents": chat('{"role":"user"}', '{"role":"assistant","content":""}', user("null")),
    "tools that are no list": chat(PROMPT, more=',"tools":{"a":1}'),
    "tools that are no objects": chat(
        PROMPT, more=',"tools":[1,null,{"function":3},{"function":{"name":[]}}]'
    ),
    "a model that is no string": chat(PROMPT, more=',"model":["x"]'),
    "stream is a string": chat(PROMPT, more=',"stream":"true"'),
    "a limit of 400 digits": chat(PROMPT, more=f',"max_tokens":{10**400}'),
    "a limit below zero": chat(PROMPT, more=',"max_tokens":-5'),
    "a limit of zero": chat(PROMPT, more=',"max_tokens":0'),
    "a limit that is a string": chat(PROMPT, more=',"max_tokens":"many"'),
    "a limit that is true": chat(PROMPT, more=',"max_tokens":true'),
    "unknown fields": chat(PROMPT, more=',"top_k":20,"chat_template_kwargs":{"a":[]},"response_format":9'),
}


def cases(table: dict[str, bytes]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("raw", [pytest.param(raw, id=name) for name, raw in table.items()])


def echoing() -> RawUpstream:
    """A llama.cpp of 4096 tokens that gives every chat its own bytes back."""
    props = json.dumps({"default_generation_settings": {"n_ctx": 4096}, "total_slots": 1}).encode()

    def script(request: Recorded) -> list[Send]:
        if request.path.startswith("/props"):
            return [Send(wire_bytes.response(props))]
        if request.path != CHAT:
            return [Send(wire_bytes.status(404))]
        return [Send(wire_bytes.response(request.body, content_type="x/echo"))]

    return RawUpstream(script=script)


@cases(NOT_UNDERSTOOD | UNDERSTOOD)
async def test_a_body_goes_through_byte_for_byte(raw: bytes) -> None:
    async with echoing().running() as upstream, fronted(upstream.url) as url:
        answer, echo = await ask(url, CHAT, body=raw, headers=[("Content-Type", "application/json")])
        assert (answer.status, echo, answer.header("content-type")) == (200, raw, "x/echo")
        assert answer.header("x-compaction") == "none"
        assert await sample(url, "context_faults_total") == 0


async def test_fifty_thousand_messages_go_through() -> None:
    messages = [PROMPT, *('{"role":"assistant","content":"a"}', '{"role":"user","content":"b"}') * 25_000]
    raw = chat(*messages)
    async with (
        echoing().running() as upstream,
        fronted(upstream.url, context={"compact_at": 0, "window": 10_000_000}) as url,
    ):
        answer, echo = await ask(url, CHAT, body=raw)
        assert (answer.status, echo == raw) == (200, True)
        assert await sample(url, "context_faults_total") == 0


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
MESSAGE = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "user", "assistant", "tool", "function", "developer"]) | JSON},
    optional={
        "content": JSON,
        "tool_calls": st.lists(
            JSON
            | st.fixed_dictionaries(
                {},
                optional={
                    "id": JSON,
                    "function": JSON | st.fixed_dictionaries({"name": JSON, "arguments": JSON}),
                },
            ),
            max_size=3,
        )
        | JSON,
        "tool_call_id": JSON,
        "function_call": JSON,
        "name": JSON,
        "refusal": JSON,
        "reasoning_content": JSON,
    },
)
BODY = st.fixed_dictionaries(
    {"messages": st.lists(MESSAGE, max_size=6) | JSON},
    optional={name: JSON for name in ("tools", "model", "stream", "max_tokens", "tool_choice", "functions")},
)


def test_whatever_is_said_is_forwarded_untouched_and_is_no_fault() -> None:
    async def play(bodies: list[Any]) -> None:
        async with echoing().running() as upstream, fronted(upstream.url) as url:
            for body in bodies:
                raw = json.dumps(body).encode()
                answer, echo = await ask(url, CHAT, body=raw)
                assert (answer.status, echo) == (200, raw)
                assert await sample(url, "context_faults_total") == 0, raw

    @settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(BODY, min_size=20, max_size=40))
    def run(bodies: list[Any]) -> None:
        asyncio.run(play(bodies))

    run()


# What an upstream may say


@pytest.mark.parametrize(
    "n_ctx",
    ["0", "-1", '"4096"', "1e400", str(10**400), "NaN", "null", "true", "[4096]", "4096.5", nested(5000)],
)
async def test_a_window_that_is_nonsense_is_not_believed(n_ctx: str) -> None:
    props = f'{{"default_generation_settings":{{"n_ctx":{n_ctx}}},"total_slots":{n_ctx}}}'.encode()
    models = f'{{"data":[{{"id":"x","meta":{{"n_ctx":{n_ctx}}},"max_model_len":{n_ctx}}}]}}'.encode()

    def script(request: Recorded) -> list[Send]:
        if request.path.startswith("/props"):
            return [Send(wire_bytes.response(props))]
        if request.path.startswith("/v1/models"):
            return [Send(wire_bytes.response(models))]
        if request.path != CHAT:
            return [Send(wire_bytes.status(404))]
        return [Send(wire_bytes.response(wire_bytes.completion("hello")))]

    raw = chat(PROMPT)
    async with RawUpstream(script=script).running() as upstream, fronted(upstream.url) as url:
        answer, _ = await ask(url, CHAT, body=raw)
        assert (answer.status, answer.header("x-compaction")) == (200, "none")
        assert upstream.requests[-1].body == raw
        assert await sample(url, "context_faults_total") == 0


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b'{"usage":{"prompt_tokens":-5,"completion_tokens":1e400}}', id="negative and infinite"),
        pytest.param(b'{"usage":{"prompt_tokens":"many"}}', id="words"),
        pytest.param(b'{"usage":[],"timings":{"prompt_n":%d}}' % 10**400, id="400 digits"),
        pytest.param(b'{"usage":{"prompt_tokens":10,"prompt_tokens_details":[1]}}', id="details as a list"),
        pytest.param(b'{"choices":[{"message":"x"}],"usage":null}', id="a message as a string"),
        pytest.param(b'{"error":' + b"[" * 100_000, id="an error without end"),
        pytest.param(b'{"error":{"message":7,"code":[],"type":{}}}', id="an error of numbers"),
        pytest.param(b"[]", id="a list"),
        pytest.param(b"\xff\xfe", id="no text"),
        pytest.param(b"", id="nothing"),
    ],
)
@pytest.mark.parametrize("status", ["200 OK", "400 Bad Request", "500 Oops"])
async def test_an_answer_that_is_nonsense_is_relayed(answer: bytes, status: str) -> None:
    def script(request: Recorded) -> list[Send]:
        if request.path.startswith("/props"):
            return [Send(wire_bytes.response(b'{"default_generation_settings":{"n_ctx":4096}}'))]
        return [Send(wire_bytes.response(answer, status=status))]

    async with RawUpstream(script=script).running() as upstream, fronted(upstream.url) as url:
        got, body = await ask(url, CHAT, body=chat(PROMPT))
        assert (got.status, body) == (int(status[:3]), answer)
        assert await sample(url, "context_faults_total") == 0


# Within a conversation that is compacted

ODD = {
    "an integer of 400 digits": f'"x":{10**400}',
    "a key twice": '"x":1, "x":2',
    "half a surrogate pair": r'"x":"\ud83d \udc00"',
    "an escaped null": r'"x":"\u0000"',
    "600 deep": f'"x":{nested(600)}',
    "floats as written": '"x":[0.10,1E5,-0.0,1e-400]',
    "spaces and escapes": r'"x" : "\u00e9\/é"  ',
}


def turn(i: int, odd: str) -> list[str]:
    """A call and its result, a hundred tokens or so, with *odd* members in every object."""
    arguments = json.dumps(json.dumps({"path": f"file_{i}.py"}))
    call = f'{{"id":"c{i}","type":"function",{odd},"function":{{"name":"read","arguments":{arguments}}}}}'
    return [
        f'{{"role":"assistant", "content":null,{odd},"tool_calls":[{call}]}}',
        f'{{"role":"tool","tool_call_id":"c{i}",{odd},"content":"{i} {"and so it goes on " * 25}"}}',
    ]


@pytest.mark.parametrize("odd", [pytest.param(odd, id=name) for name, odd in ODD.items()])
async def test_untouched_messages_keep_their_bytes_in_a_compacted_view(odd: str) -> None:
    brief = [f'{{"role":"system","content":"Be brief.", {odd}}}', user('"Read all files."')]
    history = [raw for i in range(40) for raw in turn(i, odd)]
    # A field of the body that stands twice is not understood.
    more = "" if odd.count('"x"') > 1 else f",{odd}"
    raw = chat(*brief, *history, more=more)
    async with ScriptedUpstream(window=4096).running() as upstream, fronted(upstream.url) as url:
        answer, _ = await ask(url, CHAT, body=raw)
        assert (answer.status, answer.header("x-compaction")) == (200, "compacted")
        assert await sample(url, "context_faults_total") == 0
    for body in (request.body for request in upstream.chats):
        assert body.startswith(b'{"messages":[' + brief[0].encode() + b',{"role":"user"')
    view = upstream.turns[-1].body
    assert len(view) < len(raw) / 2
    assert ",".join(history[-2:]).encode() in view
    if more:
        value = odd.partition(":")[2].strip()
        assert view.endswith(f',"x":{value}}}'.encode())
    assert history[0].encode() not in view


@pytest.mark.parametrize(
    "odd",
    [
        pytest.param(f'"x":{nested(600)}', id="600 deep"),
        pytest.param(f'"x":{nested(150)}', id="150 deep"),
        pytest.param(r'"x":"\ud83d"', id="half a surrogate pair"),
        pytest.param(f'"x":{10**400}', id="an integer of 400 digits"),
    ],
)
async def test_a_brief_that_cannot_be_written_again_fails_no_request(odd: str) -> None:
    brief = [f'{{"role":"user","content":"Read all files.",{odd}}}']
    raw = chat(*brief, *(raw for i in range(40) for raw in turn(i, '"y":1')))
    async with ScriptedUpstream(window=8192).running() as upstream, fronted(upstream.url) as url:
        answer, _ = await ask(url, CHAT, body=raw)
        assert answer.status == 200
        assert await sample(url, "context_faults_total") == 0
