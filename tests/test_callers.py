"""Who may use the proxy, what of a key goes on to where, and who may see the proxy's own pages."""

import asyncio
import json
import logging
from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from proxy import top
from proxy.config import ServerConfig, StoreConfig
from proxy.errors import ProxyError
from tests.support import wire_bytes
from tests.support.fronted import fronted, sample
from tests.support.raw_client import RawAnswer, RawRequest, ask
from tests.support.raw_upstream import RawUpstream, Send

ONE, TWO, ADMIN, UPSTREAM_KEY = "sk-one-4711", "sk-two-0815", "sk-admin-99", "sk-upstream-1"
KEYS: dict[str, Any] = {"keys": (ONE, TWO)}
BODY = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 5}
CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
ENDPOINTS = [
    CHAT,
    "/chat/completions",
    RESPONSES,
    MESSAGES,
    "/v1/messages/count_tokens",
    "/v1/models",
    "/props",
]
PAGES = ["/status", "/status.json", "/status/events", "/status/page.js", "/metrics", "/upstream/metrics"]


@pytest.fixture
async def upstream() -> AsyncIterator[RawUpstream]:
    """Answers everybody, and keeps what reached it."""
    async with RawUpstream(script=lambda _: [Send(wire_bytes.response(b"{}"))]).running() as running:
        yield running


def bearer(key: str) -> tuple[str, str]:
    return "Authorization", f"Bearer {key}"


def basic(key: str, user: str = "anybody") -> tuple[str, str]:
    return "Authorization", "Basic " + b64encode(f"{user}:{key}".encode()).decode()


async def get(url: str, path: str, *headers: tuple[str, str]) -> tuple[RawAnswer, bytes]:
    return await ask(url, path, method="GET", headers=headers)


def everything_sent(upstream: RawUpstream) -> bytes:
    """All that reached the upstream, heads and bodies."""
    return b"\n".join(
        "\n".join(f"{n}: {v}" for n, v in r.headers).encode() + r.path.encode() + r.body
        for r in upstream.requests
    )


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param([], id="none"),
        pytest.param([bearer("sk-one-4712")], id="another"),
        pytest.param([bearer(ONE[:-1])], id="its beginning"),
        pytest.param([bearer(ONE + "1")], id="more than it"),
        pytest.param([bearer(ONE.upper())], id="in capitals"),
        pytest.param([("Authorization", f"Basic {ONE}")], id="another scheme"),
        pytest.param([("Authorization", ONE)], id="no scheme"),
        pytest.param([basic(ONE)], id="as a password: that is for pages"),
        pytest.param([bearer(ADMIN)], id="one for pages"),
        pytest.param([("Authorization", "Bearer ")], id="empty"),
        pytest.param([("X-Api-Key", "")], id="an empty other header"),
        pytest.param([("Authorization", "Bearer \xe9\xff")], id="beyond ASCII"),
    ],
)
async def test_without_one_of_its_keys_nothing_goes_upstream(
    upstream: RawUpstream, headers: list[tuple[str, str]]
) -> None:
    async with fronted(upstream.url, server={**KEYS, "admin_keys": (ADMIN,)}) as url:
        for path in ENDPOINTS:
            answer, body = await ask(url, path, body=BODY, headers=headers)
            assert (answer.status, answer.header("www-authenticate")) == (401, "Bearer")
            assert b"server.keys" in body and b"sk-" not in body
    assert upstream.requests == []


@pytest.mark.parametrize(
    "header",
    [
        pytest.param(bearer(ONE), id="bearer"),
        pytest.param(("authorization", f"bEARER   {TWO} "), id="bearer, oddly written"),
        pytest.param(("x-api-key", TWO), id="x-api-key"),
    ],
)
async def test_with_any_of_its_keys_a_request_goes_on_without_it(
    upstream: RawUpstream, header: tuple[str, str]
) -> None:
    sent = [header, ("api-key", "sk-stray"), ("X-Custom", "kept")]
    async with fronted(upstream.url, server=KEYS) as url:
        for path in ENDPOINTS:
            answer, _ = await ask(url, path, body=BODY, headers=sent)
            assert answer.status == 200
            assert upstream.requests[-1].header("x-custom") == "kept"
    assert b"sk-" not in everything_sent(upstream)
    assert {r.header("authorization") for r in upstream.requests} == {None}


@pytest.mark.parametrize("server", [KEYS, {}], ids=["keys of clients", "no keys"])
async def test_the_upstreams_own_key_takes_the_place_of_the_clients(
    upstream: RawUpstream, server: dict[str, Any]
) -> None:
    reach, environ = {"key_env": "UPSTREAM_KEY"}, {"UPSTREAM_KEY": UPSTREAM_KEY}
    async with fronted(upstream.url, server=server, reach=reach, environ=environ) as url:
        for path in ENDPOINTS:
            answer, body = await ask(url, path, body=BODY, headers=[bearer(ONE), ("x-api-key", ONE)])
            told = str(answer.headers).encode() + body
            assert answer.status == 200 and UPSTREAM_KEY.encode() not in told
    assert {r.header("authorization") for r in upstream.requests} == {f"Bearer {UPSTREAM_KEY}"}
    assert ONE.encode() not in everything_sent(upstream)


async def test_without_keys_a_clients_own_goes_upstream_as_it_is(upstream: RawUpstream) -> None:
    async with fronted(upstream.url) as url:
        for path in ENDPOINTS:
            await ask(url, path, body=BODY, headers=[("Authorization", "Basic x"), ("x-api-key", "y")])
    sent = [r for r in upstream.requests if r.method == "POST"]
    assert {(r.header("authorization"), r.header("x-api-key")) for r in sent} == {("Basic x", "y")}


@pytest.mark.parametrize(
    ("path", "where"),
    [
        pytest.param(CHAT, ("error", "code"), id="chat completions"),
        pytest.param(RESPONSES, ("error", "code"), id="responses"),
        pytest.param(MESSAGES, ("error", "type"), id="messages"),
        pytest.param("/v1/messages/count_tokens", ("error", "type"), id="count_tokens"),
        pytest.param("/v1/models", ("error", "code"), id="anything else"),
    ],
)
async def test_a_refusal_has_the_endpoints_format(
    upstream: RawUpstream, path: str, where: tuple[str, str]
) -> None:
    async with fronted(upstream.url, server=KEYS) as url:
        _, body = await ask(url, path, body=BODY)
    told = json.loads(body)
    expected = "authentication_error" if where[1] == "type" else "invalid_api_key"
    assert told[where[0]][where[1]] == expected
    assert (told.get("type") == "error") is (where[1] == "type")


async def test_a_strangers_body_is_not_waited_for(upstream: RawUpstream) -> None:
    async with fronted(upstream.url, server=KEYS) as url:
        answer, body = await ask(url, CHAT, body=b"{", headers=[("Content-Length", "50000000")])
    assert (answer.status, answer.header("connection")) == (401, "close")
    assert b"server.keys" in body


async def test_no_client_has_the_upstream_say_what_it_was_sent(upstream: RawUpstream) -> None:
    reach, environ = {"key_env": "UPSTREAM_KEY"}, {"UPSTREAM_KEY": UPSTREAM_KEY}
    async with fronted(upstream.url, reach=reach, environ=environ) as url:
        answer, body = await ask(url, "/v1/models", method="TRACE")
    assert (answer.status, upstream.requests) == (405, [])
    assert b"TRACE answers with what the upstream was sent" in body
    async with fronted(upstream.url) as url:
        answer, _ = await ask(url, "/v1/models", method="TRACE")
    assert answer.status == 200


# Pages


@pytest.mark.parametrize(
    ("server", "key"),
    [
        pytest.param({"admin_keys": (ADMIN,)}, ADMIN, id="keys for pages alone"),
        pytest.param({**KEYS, "admin_keys": (ADMIN,)}, ADMIN, id="keys for pages and others for clients"),
        pytest.param(KEYS, ONE, id="keys for clients alone"),
    ],
)
async def test_pages_ask_for_a_key_where_there_are_any(
    upstream: RawUpstream, server: dict[str, Any], key: str
) -> None:
    async with fronted(upstream.url, server=server) as url:
        for path in PAGES:
            without, body = await get(url, path)
            wrong, _ = await get(url, path, bearer("sk-wrong"))
            assert [without.status, wrong.status] == [401, 401]
            assert (without.header("www-authenticate") or "").startswith('Basic realm="compaction-proxy"')
            assert b"sk-" not in body and b"server." in body
            for header in (bearer(key), basic(key), basic(key, user=""), ("X-Api-Key", key)):
                async with RawRequest(url, path, method="GET", headers=[header]) as request:
                    assert (await request.answer()).status == 200
    assert b"sk-" not in everything_sent(upstream)


async def test_a_clients_key_opens_no_page_that_has_keys_of_its_own(upstream: RawUpstream) -> None:
    async with fronted(upstream.url, server={**KEYS, "admin_keys": (ADMIN,)}) as url:
        for path in PAGES:
            answer, body = await get(url, path, bearer(ONE))
            assert answer.status == 401
            assert b"the key that was sent is none that it knows" in body and b"server.admin_keys" in body


async def test_keys_for_pages_leave_clients_their_own(upstream: RawUpstream) -> None:
    async with fronted(upstream.url, server={"admin_keys": (ADMIN,)}) as url:
        answer, _ = await ask(url, CHAT, body=BODY, headers=[bearer("sk-of-the-upstream")])
    assert answer.status == 200
    assert upstream.requests[-1].header("authorization") == "Bearer sk-of-the-upstream"


async def test_without_any_keys_pages_are_open(upstream: RawUpstream) -> None:
    async with fronted(upstream.url) as url:
        for path in PAGES:
            async with RawRequest(url, path, method="GET") as request:
                assert (await request.answer()).status == 200


@pytest.mark.parametrize("path", ["/metrics/", "//metrics", "/metrics%2f", "/STATUS", "/status/../metrics"])
async def test_no_other_spelling_of_a_page_is_let_in_without_a_key(upstream: RawUpstream, path: str) -> None:
    async with fronted(upstream.url, server=KEYS) as url:
        answer, _ = await get(url, path)
    assert answer.status == 401
    assert upstream.requests == []


async def test_probes_need_no_key_and_learn_nothing_of_the_upstream(upstream: RawUpstream) -> None:
    async with fronted(upstream.url, server={**KEYS, "admin_keys": (ADMIN,)}) as url:
        lives, _ = await get(url, "/livez")
        ready, told = await get(url, "/readyz")
        known, all_told = await get(url, "/readyz", bearer(ADMIN))
    assert [lives.status, ready.status, known.status] == [200, 200, 200]
    assert json.loads(told) == {"ready": True}
    assert json.loads(all_told) == {"ready": True, "upstream": "ok", "store": "ok"}


# What is kept of a key


async def test_a_key_stands_in_no_log_no_metric_and_no_file(
    upstream: RawUpstream, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    server = {**KEYS, "admin_keys": (ADMIN,)}
    store = StoreConfig(path=str(tmp_path / "store" / "s.sqlite3"))
    long = {**BODY, "messages": [{"role": "user", "content": "word " * 3000}] * 3}
    async with fronted(upstream.url, server=server, store=store, context={"window": 2048}) as url:
        for path in (CHAT, RESPONSES, MESSAGES):
            for header in (bearer(ONE), ("x-api-key", TWO), bearer("sk-wrong")):
                await ask(url, path, body=long, headers=[header])
        refused = await sample(url, 'proxy_refused_total{code="invalid_api_key"}')
        _, page = await get(url, "/metrics", bearer(ADMIN))
        assert refused == 0.0  # it has no key itself
        assert b'proxy_refused_total{code="invalid_api_key"} 4.0' in page
        logged = "\n".join(f"{r.getMessage()} {r.__dict__}" for r in caplog.records)
        kept = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
        for key in (ONE, TWO, ADMIN, "sk-wrong"):
            assert key not in logged
            assert key.encode() not in page + kept


def test_keys_are_not_shown_by_what_holds_them() -> None:
    assert "sk-" not in repr(ServerConfig(keys=(ONE,), admin_keys=(ADMIN,)))


async def test_the_list_in_a_terminal_sends_a_key_to_the_proxy_alone(upstream: RawUpstream) -> None:
    elsewhere = RawUpstream(
        script=lambda _: [
            Send(wire_bytes.response(b"", status="302 Found", headers=[("Location", upstream.url)]))
        ]
    )
    async with fronted(upstream.url, server={**KEYS, "admin_keys": (ADMIN,)}) as url:
        told = await asyncio.to_thread(top.fetch, top.status_url(url), ADMIN)
        assert told["conversations"] == []
        for key in ("", ONE):
            with pytest.raises(ProxyError, match="--key-env"):
                await asyncio.to_thread(top.fetch, top.status_url(url), key)
    async with elsewhere.running():
        with pytest.raises(top.NotAProxy):
            await asyncio.to_thread(top.fetch, top.status_url(elsewhere.url), ADMIN)
    assert ADMIN.encode() not in everything_sent(upstream)
