"""No page in a browser may use the proxy: Host and Origin where no keys are asked for, and CORS."""

import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from proxy.config import ServerConfig
from proxy.errors import ForeignHost, ForeignOrigin, ProxyError
from proxy.origins import Origins, Page
from tests.support import wire_bytes
from tests.support.fronted import fronted
from tests.support.raw_client import RawRequest, ask
from tests.support.raw_upstream import RawUpstream, Send

BODY = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
CHAT = "/v1/chat/completions"
PAGE = "https://chat.example.org"
# As llama.cpp has it, which lets every page read.
OPEN_TO_ALL = [
    ("Access-Control-Allow-Origin", "*"),
    ("Access-Control-Allow-Credentials", "true"),
    ("X-Kept", "1"),
]


@pytest.fixture
async def upstream() -> AsyncIterator[RawUpstream]:
    """Answers everybody as llama.cpp does, and keeps what reached it."""
    async with RawUpstream(
        script=lambda _: [Send(wire_bytes.response(b"{}", headers=OPEN_TO_ALL))]
    ).running() as running:
        yield running


def judged(server: dict[str, Any], method: str = "POST", **headers: str) -> str:
    """What becomes of a request: the code it is refused with, "page" or "in"."""
    raw = [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in headers.items()]
    try:
        page = Origins(ServerConfig(**server)).page_of(method, raw)
    except ProxyError as error:
        return error.code
    return "in" if page is None else "page"


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1:8400", "127.0.0.1", "localhost:9", "LocalHost", "localhost.:8400", "[::1]:8400",
     "127.1.2.3:1", "chat.localhost:8400", ""],
)  # fmt: skip
@pytest.mark.parametrize("listen", ["127.0.0.1:8400", "[::1]:8400", "localhost:8400"])
def test_this_machines_own_names_are_let_in(host: str, listen: str) -> None:
    assert judged({"listen": listen}, host=host) == "in"


@pytest.mark.parametrize(
    "host",
    [
        "evil.example:8400", "127.0.0.1.evil.example", "localhost.evil.example", "evil-localhost", "gpu:8400",
        "10.0.0.1:8400", "0.0.0.0:8400", "[::2]:8400", "evil.example@localhost", "localhost@evil.example",
        "127.0.0.1:8400, evil.example", "[::1", "\xe9", "127.1", "[localhost]", "localhost:80:80",
    ],
)  # fmt: skip
def test_any_other_name_is_refused_on_loopback(host: str) -> None:
    assert judged({}, host=host) == "foreign_host"


@pytest.mark.parametrize(
    ("host", "told"),
    [
        ("10.0.0.1:8400", "in"),
        ("[fe80::1]:8400", "in"),
        ("proxy:8400", "in"),
        ("localhost:8400", "in"),
        ("evil.example:8400", "foreign_host"),
        ("proxy.evil.example", "foreign_host"),
    ],
)
def test_an_open_proxy_lets_in_what_no_page_can_be_named(host: str, told: str) -> None:
    assert judged({"listen": "0.0.0.0:8400", "open": True}, host=host) == told


def test_names_are_allowed_by_the_config_and_by_where_it_listens() -> None:
    assert judged({"allowed_hosts": ("Proxy.Example.org",)}, host="proxy.example.ORG:8400") == "in"
    assert judged({"allowed_hosts": ("[::2]",)}, host="[::2]:8400") == "in"
    assert judged({"allowed_hosts": ("*",)}, host="anything.example") == "in"
    assert judged({"listen": "gpu.example:1", "open": True}, host="gpu.example:8400") == "in"


@pytest.mark.parametrize(
    ("origin", "told"),
    [
        pytest.param("http://127.0.0.1:8400", "in", id="our own page"),
        pytest.param("HTTPS://127.0.0.1:8400", "in", id="our own page, behind TLS"),
        pytest.param("http://127.0.0.1:3000", "foreign_origin", id="another port"),
        pytest.param("http://localhost:8400", "foreign_origin", id="another name of this machine"),
        pytest.param("http://127.0.0.1", "foreign_origin", id="without the port"),
        pytest.param("https://evil.example", "foreign_origin", id="another site"),
        pytest.param("http://127.0.0.1:8400.evil.example", "foreign_origin", id="ours at its beginning"),
        pytest.param("null", "foreign_origin", id="a file, or a sandbox"),
        pytest.param("chrome-extension://abc", "foreign_origin", id="an extension"),
        pytest.param("file://127.0.0.1:8400", "foreign_origin", id="another scheme"),
        pytest.param("http://127.0.0.1:8400, https://evil.example", "foreign_origin", id="two"),
        pytest.param("", "in", id="none: no browser"),
    ],
)
def test_a_page_is_let_in_that_is_our_own(origin: str, told: str) -> None:
    assert judged({}, host="127.0.0.1:8400", origin=origin) == told


def test_the_default_port_is_the_same_place() -> None:
    assert judged({}, host="localhost", origin="http://localhost:80") == "in"
    assert judged({}, host="localhost:443", origin="https://localhost") == "in"
    assert judged({}, host="localhost:443", origin="http://localhost") == "foreign_origin"


def test_of_two_origins_none_is_believed() -> None:
    headers = [(b"host", b"localhost:1"), (b"origin", b"http://localhost:1"), (b"origin", b"https://evil")]
    with pytest.raises(ForeignOrigin):
        Origins(ServerConfig()).page_of("POST", headers)


@pytest.mark.parametrize(
    ("method", "site", "mode", "told"),
    [
        pytest.param("GET", "cross-site", "no-cors", "foreign_origin", id="an image"),
        pytest.param("GET", "same-site", "no-cors", "foreign_origin", id="a script on another port"),
        pytest.param("GET", "cross-site", "navigate", "in", id="a link"),
        pytest.param("POST", "cross-site", "navigate", "foreign_origin", id="a form"),
        pytest.param("GET", "same-origin", "cors", "in", id="our own page"),
        pytest.param("GET", "none", "navigate", "in", id="typed in"),
        pytest.param("POST", "", "cors", "in", id="Node says so of itself"),
    ],
)
def test_what_a_browser_says_of_where_it_comes_from_counts(
    method: str, site: str, mode: str, told: str
) -> None:
    headers = {"host": "localhost:8400", "sec_fetch_site": site, "sec_fetch_mode": mode}
    assert judged({}, method, **headers) == told


@pytest.mark.parametrize(
    ("allowed", "origin", "told"),
    [
        ((PAGE,), PAGE, "page"),
        ((PAGE,), PAGE.upper(), "page"),
        ((PAGE,), PAGE + ":444", "foreign_origin"),
        (("*",), "null", "page"),
        (("app://obsidian.md",), "app://obsidian.md", "page"),
    ],
)
def test_pages_are_allowed_by_the_config(allowed: tuple[str, ...], origin: str, told: str) -> None:
    assert judged({"allowed_origins": allowed}, host="localhost", origin=origin) == told


def test_a_key_says_more_than_names_do() -> None:
    server = {"keys": ("sk-one",)}
    assert judged(server, host="evil.example", origin="https://evil.example") == "in"
    assert judged({**server, "allowed_origins": (PAGE,)}, host="proxy.example", origin=PAGE) == "page"


def test_what_a_stranger_sends_is_shown_short_and_on_one_line() -> None:
    for name, kind in (("host", ForeignHost), ("origin", ForeignOrigin)):
        headers = [(b"host", b"localhost"), (name.encode(), b"x\r\n.y\x1b" + b"z" * 1000)]
        with pytest.raises(kind) as refused:
            Origins(ServerConfig()).page_of("POST", headers if name == "origin" else headers[1:])
        assert str(refused.value).isprintable() and len(str(refused.value)) < 400


# Over the wire


@pytest.mark.parametrize(
    ("path", "where"),
    [
        (CHAT, "code"),
        ("/v1/responses", "code"),
        ("/v1/messages", "type"),
        ("/status", "code"),
        ("/livez", "code"),
    ],
)
@pytest.mark.parametrize(
    ("header", "code"),
    [
        pytest.param(("Host", "evil.example"), "foreign_host", id="Host"),
        pytest.param(("Origin", "https://evil.example"), "foreign_origin", id="Origin"),
    ],
)  # fmt: skip
async def test_a_refusal_has_the_endpoints_format_and_nothing_goes_upstream(
    upstream: RawUpstream, path: str, where: str, header: tuple[str, str], code: str
) -> None:
    method = "POST" if path.startswith("/v1") else "GET"
    async with fronted(upstream.url) as url:
        answer, body = await ask(url, path, method=method, body=BODY, headers=[header])
    told = json.loads(body)["error"]
    assert answer.status == 403
    assert f"server.allowed_{header[0].lower()}s of the proxy" in told["message"]
    assert told[where] == ("permission_error" if where == "type" else code)
    assert answer.header("access-control-allow-origin") is None
    assert upstream.requests == []


async def test_the_status_page_works_from_its_own_origin(upstream: RawUpstream) -> None:
    async with fronted(upstream.url) as url:
        own = [("Origin", url), ("Sec-Fetch-Site", "same-origin")]
        for path in ("/status", "/status/page.js", "/status.json", "/status/events"):
            async with RawRequest(url, path, method="GET", headers=own) as request:
                assert (await request.answer()).status == 200


@pytest.mark.parametrize("server", [{}, {"keys": ("sk-one",)}], ids=["no keys", "keys"])
async def test_an_allowed_page_may_ask_and_read_and_no_other(
    upstream: RawUpstream, server: dict[str, Any]
) -> None:
    asks = [
        ("Access-Control-Request-Method", "POST"),
        ("Access-Control-Request-Headers", "authorization,content-type"),
        ("Access-Control-Request-Private-Network", "true"),
    ]
    key = ("Authorization", "Bearer sk-one")
    async with fronted(upstream.url, server={**server, "allowed_origins": (PAGE,)}) as url:
        async with RawRequest(url, CHAT, method="OPTIONS", headers=[("Origin", PAGE), *asks]) as request:
            allowed = await request.answer()
        other, _ = await ask(url, CHAT, method="OPTIONS", headers=[("Origin", "https://evil.example"), *asks])
        assert upstream.requests == []
        answer, _ = await ask(url, CHAT, body=BODY, headers=[("Origin", PAGE), key])
        refused, _ = await ask(url, CHAT, body=BODY, headers=[("Origin", PAGE), ("Host", "evil.example")])
    assert allowed.status == 204
    assert allowed.header("access-control-allow-origin") == PAGE
    assert allowed.header("access-control-allow-methods") == "POST"
    assert allowed.header("access-control-allow-headers") == "authorization,content-type"
    assert allowed.header("access-control-allow-private-network") == "true"
    assert other.status in (401, 403) and other.header("access-control-allow-origin") is None
    # What the upstream says of pages would let every page read.
    assert (answer.status, answer.header("access-control-allow-origin")) == (200, PAGE)
    assert answer.header("access-control-allow-credentials") is None
    assert (answer.header("vary"), answer.header("x-kept")) == ("Origin", "1")
    assert refused.status in (401, 403)


async def test_without_a_page_the_upstreams_headers_stay_as_they_are(upstream: RawUpstream) -> None:
    async with fronted(upstream.url, server={"allowed_origins": (PAGE,)}) as url:
        answer, _ = await ask(url, CHAT, body=BODY)
        options, _ = await ask(url, CHAT, method="OPTIONS")
    assert answer.header("access-control-allow-origin") == "*"
    assert answer.header("vary") is None
    assert options.status == 200 and upstream.requests[-1].method == "OPTIONS"


async def test_a_name_that_leads_here_reads_nothing_although_the_page_is_its_own(
    upstream: RawUpstream,
) -> None:
    """DNS rebinding: for the browser the page and the proxy are one origin."""
    async with fronted(upstream.url) as url:
        port = urlsplit(url).port
        rebound = [("Host", f"evil.example:{port}"), ("Origin", f"http://evil.example:{port}")]
        answer, _ = await ask(url, CHAT, body=BODY, headers=rebound)
    assert answer.status == 403
    assert upstream.requests == []


def test_a_page_is_told_once_who_may_read() -> None:
    page = Page(origin=PAGE.encode())
    headers = page.allowed([(b"Access-Control-Allow-Origin", b"*"), (b"vary", b"Accept"), (b"x", b"1")])
    assert [v for n, v in headers if n == b"access-control-allow-origin"] == [PAGE.encode()]
    assert [v for n, v in headers if n == b"vary"] == [b"Accept", b"Origin"]
