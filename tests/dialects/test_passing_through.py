"""What is no whole history passes untouched, and is counted where a person should see it."""

import json

import pytest

from proxy.dialects.anthropic_messages import ANTHROPIC_MESSAGES
from tests.support.answers import Answer
from tests.support.discovery import Server
from tests.support.formats import FORMATS, Format
from tests.support.fronted import fronted, sample
from tests.support.raw_client import ask
from tests.support.scripted import ScriptedUpstream

# Spaces and a number that no parser would write again.
ODD = b'{ "model" : "m", "prompt":"x", "input" : ["a"], "t":1.0 }'
JSON = [("Content-Type", "application/json"), ("anthropic-beta", "a"), ("OpenAI-Beta", "b")]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/responses/compact"),
        ("POST", "/v1/responses/input_tokens"),
        ("GET", "/v1/responses/resp_1?include=x"),
        ("GET", "/v1/responses/resp_1/input_items"),
        ("POST", "/v1/responses/resp_1/cancel"),
        ("DELETE", "/v1/responses/resp_1"),
        ("POST", "/v1/messages/batches"),
        ("GET", "/v1/messages/batches/x"),
        ("POST", "/v1/completions"),
        ("POST", "/v1/embeddings"),
        ("POST", "/v1/audio/transcriptions"),
        ("GET", "/v1/models/m"),
        ("POST", "/something/else"),
    ],
)
async def test_other_endpoints(method: str, path: str) -> None:
    said = b'{ "from" : "upstream" }'
    answered = Answer(status=201, body=said, headers=(("x-own", "y"),))
    upstream = ScriptedUpstream(server=Server.BARE, others=lambda _: answered)
    body = ODD if method == "POST" else b""
    async with upstream.running(), fronted(upstream.url) as url:
        answer, got = await ask(url, path, method=method, body=body, headers=JSON)
    (request,) = [r for r in upstream.requests if r.header("openai-beta")]
    assert (request.method, request.path, request.body) == (method, path, body)
    assert request.header("anthropic-beta") == "a"
    assert (answer.status, answer.header("x-own"), got) == (201, "y", said)
    assert answer.header("x-compaction") is None


@pytest.mark.parametrize("member", ["previous_response_id", "conversation"])
async def test_history_that_the_server_holds_is_counted_and_visible(member: str) -> None:
    upstream = ScriptedUpstream(window=1024)
    body = f'{{ "input" : "and then?", "model":"m", "{member}":"resp_1", "t":1.0 }}'.encode()
    async with upstream.running(), fronted(upstream.url) as url:
        answer, got = await ask(url, "/v1/responses", body=body, headers=JSON)
        series = 'proxy_untouched_requests_total{dialect="responses",reason="held_by_server"}'
        assert await sample(url, series) == 1
    assert (answer.status, answer.header("x-compaction")) == (200, "none")
    assert json.loads(got)["output"]
    assert [r.body for r in upstream.chats] == [body]


@pytest.mark.parametrize("format_", FORMATS, ids=lambda f: f.name)
async def test_a_request_that_fits_keeps_its_bytes_query_and_headers(format_: Format) -> None:
    upstream = ScriptedUpstream()
    message = '{"role": "user" , "content":"caf\\u00e9"}'
    body = f'{{ "max_tokens":5,"{format_.field}" : [ {message} ], "betas":["x"], "t":0.10 }}'.encode()
    async with upstream.running(), fronted(upstream.url) as url:
        answer, got = await ask(url, f"{format_.path}?beta=true", body=body, headers=JSON)
        direct, straight = await ask(upstream.url, f"{format_.path}?beta=true", body=body, headers=JSON)
    first, second = upstream.chats
    assert first.path == f"{format_.path}?beta=true"
    assert first.body == body
    assert first.header("anthropic-beta") == "a"
    assert (answer.status, direct.status) == (200, 200)
    assert json.loads(got).keys() == json.loads(straight).keys()
    assert second.body == body


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens"])
async def test_our_own_errors_are_said_in_the_format_of_the_path(path: str) -> None:
    upstream = ScriptedUpstream()
    async with upstream.running(), fronted(upstream.url, server={"max_body_bytes": 1024}) as url:
        answer, got = await ask(url, path, body=b"x" * 2000, headers=JSON)
    assert answer.status == 413
    assert json.loads(got)["error"]["type"] == "request_too_large"
    assert ANTHROPIC_MESSAGES.read_whole(got).error
