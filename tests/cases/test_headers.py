"""Headers, paths and methods: what belongs to one connection stays there, everything else arrives."""

import gzip
import json
from typing import Any

import aiohttp
import httpx
import pytest

from tests.cases.table import case
from tests.support import wire_bytes
from tests.support.agent_sessions import AgentSession, remembering_upstream
from tests.support.discovery import Server
from tests.support.formats import FORMATS
from tests.support.fronted import CHAT, OTHER, fronted, playing, saying, sent
from tests.support.raw_client import RawRequest, ask
from tests.support.raw_upstream import Send
from tests.support.watched import watched

PATHS = pytest.mark.parametrize("path", [*(f.path for f in FORMATS), OTHER])
GO: dict[str, Any] = {"messages": [{"role": "user", "content": "go"}], "input": "go", "max_tokens": 9}
SAID = wire_bytes.completion("hello")


# Framing of answers


@PATHS
@pytest.mark.parametrize(
    "headers",
    [
        case("R38", "a length and a coding", [("Content-Encoding", "gzip")]),
        case(
            "R38",
            "what belongs to the connection",
            [
                ("Content-Encoding", "gzip"),
                ("Connection", "keep-alive"),
                ("Keep-Alive", "timeout=5"),
                ("Proxy-Authenticate", "Basic"),
                ("TE", "trailers"),
                ("Trailer", "X-Sum"),
                ("Upgrade", "h2c"),
            ],
        ),
    ],
)
async def test_a_compressed_answer_has_one_right_length(path: str, headers: list[tuple[str, str]]) -> None:
    packed = gzip.compress(SAID)
    async with saying(packed, headers=headers).running() as upstream, fronted(upstream.url) as url:
        answer, got = await ask(url, path, body=GO, headers=[("Accept-Encoding", "gzip")])
    names = [name.lower() for name, _ in answer.headers]
    assert (got, names.count("content-length")) == (packed, 1)
    assert (answer.header("content-length"), answer.header("content-encoding")) == (str(len(packed)), "gzip")
    assert not {"connection", "keep-alive", "proxy-authenticate", "te", "trailer", "upgrade"} & set(names)
    assert "transfer-encoding" not in names


@PATHS
async def test_r40_a_client_that_undoes_codings_can_read_a_compressed_answer(path: str) -> None:
    head = [("Content-Encoding", "gzip")]
    async with (
        saying(gzip.compress(SAID), headers=head).running() as upstream,
        fronted(upstream.url) as url,
        httpx.AsyncClient(trust_env=False) as client,
    ):
        answer = await client.post(url + path, json=GO)
    assert answer.content == SAID


async def test_r40_a_refusal_that_was_looked_into_keeps_its_coding() -> None:
    refusal = json.dumps(
        {"error": {"message": "prompt is too long", "code": "context_length_exceeded"}}
    ).encode()
    packed, head = gzip.compress(refusal), [("Content-Encoding", "gzip")]
    async with (
        saying(packed, status="400 No", headers=head).running() as upstream,
        fronted(upstream.url) as url,
        httpx.AsyncClient(trust_env=False) as client,
    ):
        answer = await client.post(url + CHAT, json=GO)
    assert (answer.status_code, answer.content) == (400, refusal)
    assert answer.headers["content-length"] == str(len(packed))


@PATHS
@pytest.mark.parametrize("said", [True, False], ids=["named by the upstream", "not named"])
async def test_r41_server_and_date_are_never_there_twice(path: str, said: bool) -> None:
    headers = [("Server", "uvicorn"), ("Date", "Mon, 01 Jan 2024 00:00:00 GMT")] if said else []
    async with (
        saying(SAID, headers=headers).running() as upstream,
        fronted(upstream.url) as url,
        aiohttp.ClientSession() as client,
        client.post(url + path, json=GO) as answer,
    ):
        assert await answer.read() == SAID
        raw, _ = await ask(url, path, body=GO)
    for names in ([n.decode().lower() for n, _ in answer.raw_headers], [n.lower() for n, _ in raw.headers]):
        assert names.count("server") <= 1 and names.count("date") <= 1
        assert ("server" in names) is said


# Paths and methods

DESK = {"allowed_origins": ("app://desk",)}


@pytest.mark.parametrize("base", ["", "/v1"], ids=["base without v1", "base with v1"])
@pytest.mark.parametrize("upstream_base", ["", "/v1"], ids=["upstream without v1", "upstream with v1"])
@pytest.mark.parametrize("endpoint", ["/chat/completions", "/responses", "/messages"])
async def test_r48_a_base_url_may_end_in_v1_or_not(base: str, upstream_base: str, endpoint: str) -> None:
    async with saying(SAID).running() as upstream, fronted(upstream.url + upstream_base) as url:
        answer, _ = await ask(url + base, base + endpoint, body=GO)
    assert (answer.status, sent(upstream).path) == (200, "/v1" + endpoint)


async def test_r48_a_path_that_nobody_knows_goes_upstream() -> None:
    async with saying(b"theirs").running() as upstream, fronted(upstream.url) as url:
        answer, body = await ask(url, "/v1/v1/oddity?x=1", method="GET")
    assert (answer.status, body, sent(upstream).path) == (200, b"theirs", "/v1/v1/oddity?x=1")


@PATHS
async def test_r49_what_a_browser_asks_first_is_answered_for_pages_that_are_allowed(path: str) -> None:
    asking = [
        ("Origin", "app://desk"),
        ("Access-Control-Request-Method", "POST"),
        ("Access-Control-Request-Headers", "authorization,x-stainless-arch"),
    ]
    async with (
        saying(SAID).running() as upstream,
        fronted(upstream.url, server=DESK) as url,
        RawRequest(url, path, method="OPTIONS", headers=asking) as request,
    ):
        answer = await request.answer()
    assert (answer.status, answer.header("access-control-allow-headers")) == (204, asking[2][1])
    assert answer.header("access-control-allow-origin") == "app://desk"


@PATHS
async def test_r49_head_works_too(path: str) -> None:
    async with (
        playing(lambda _: [Send(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n")]).running() as upstream,
        fronted(upstream.url) as url,
        httpx.AsyncClient(trust_env=False) as client,
    ):
        answer = await client.head(url + path)
    assert (answer.status_code, answer.headers["content-length"]) == (200, "7")


# Who asks


@pytest.mark.parametrize("server", [Server.LLAMA_CPP, Server.VLLM], ids=["llama.cpp", "vLLM"])
@pytest.mark.parametrize(
    ("key", "expected"), [("", "Bearer k"), ("own", "Bearer own")], ids=["client's", "ours"]
)
async def test_r51_the_key_is_on_every_request(server: Server, key: str, expected: str) -> None:
    upstream = remembering_upstream(window=4096, server=server)
    environ = {"UPSTREAM_KEY": key} if key else {}
    reach = {"key_env": "UPSTREAM_KEY"} if key else {}
    async with upstream.running(), fronted(upstream.url, reach=reach, environ=environ) as url:
        body = AgentSession(name="alice").step(15).body()
        answer, _ = await ask(url, CHAT, body=body, headers=[("Authorization", "Bearer k")])
    assert (answer.status, answer.header("x-compaction")) == (200, "compacted")
    paths = {request.path for request in upstream.requests}
    assert {CHAT, "/v1/models"} < paths
    assert {"/props", "/v1/chat/completions/input_tokens"} < paths or "/tokenize" in paths
    assert {request.header("authorization") for request in upstream.requests} == {expected}


@PATHS
async def test_r53_a_rate_limit_is_told_as_it_is_and_not_tried_again(path: str) -> None:
    told = [("Retry-After", "30"), ("X-RateLimit-Remaining-Tokens", "0"), ("X-RateLimit-Reset", "6m0s")]
    body = b'{"error":{"message":"slow down","type":"requests"}}'
    script = [Send(wire_bytes.response(body, status="429 Too Many Requests", headers=told))]
    async with playing(lambda _: script).running() as upstream, watched(upstream.url) as proxy:
        answer, got = await ask(proxy.url, path, body=GO)
    assert (answer.status, got) == (429, body)
    assert [answer.header(name) for name, _ in told] == [value for _, value in told]
    assert len([r for r in upstream.requests if r.path == path]) == 1


# The environment


@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
async def test_r54_an_upstream_on_this_machine_is_reached_directly(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "http://127.0.0.1:9")
    environ = {name: "http://127.0.0.1:9"}
    async with saying(SAID).running() as upstream, fronted(upstream.url, environ=environ) as url:
        answer, _ = await ask(url, CHAT, body=GO)
    assert answer.status == 200


async def test_r54_a_remote_upstream_is_reached_as_the_environment_says() -> None:
    async with saying(SAID).running() as between:
        environ = {"http_proxy": between.url}
        async with fronted("http://models.example.org:8080", environ=environ) as url:
            for path in (CHAT, OTHER):
                answer, body = await ask(url, path, body=GO)
                assert (answer.status, body) == (200, SAID)
                assert sent(between).path == f"http://models.example.org:8080{path}"
        async with fronted(
            "http://models.example.org:8080", environ=environ | {"no_proxy": "example.org"}
        ) as url:
            answer, _ = await ask(url, CHAT, body=GO)
            assert answer.status == 502
