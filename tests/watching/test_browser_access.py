"""
What pages in a real Chromium can do with a proxy on this machine: nothing, unless they are allowed.

The page of another origin tries all that pages have: CORS and no-cors requests, forms,
images. Under a name that leads here it is of the proxy's own origin, for the browser.
"""

import contextlib
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse
from starlette.routing import Route

from proxy.config import ServerConfig
from tests.support import wire_bytes
from tests.support.fronted import fronted
from tests.support.raw_client import ask
from tests.support.raw_upstream import RawUpstream, Send
from tests.support.serving import serving
from tests.watching.browser import browser, needs_chromium

pytestmark = needs_chromium

ADMIN = "sk-admin-99"
# As llama.cpp has it, which lets every page read.
OPEN_TO_ALL = [("Access-Control-Allow-Origin", "*"), ("Access-Control-Allow-Headers", "*")]

TRIES = """async url => {
    const body = JSON.stringify({model: "m", messages: [{role: "user", content: "from a page"}]});
    const outcome = async (path, how) => {
        try { return (await fetch(url + path, how)).type; } catch { return "refused"; }
    };
    const image = () => new Promise(done => {
        const made = new Image();
        made.onload = made.onerror = () => done();
        made.src = url + "/v1/models?from-an-image";
    });
    const headers = {"Content-Type": "application/json", "Authorization": "Bearer x"};
    const tried = [
        await outcome("/v1/chat/completions", {method: "POST", headers, body}),
        await outcome("/v1/chat/completions", {method: "POST", body}),
        await outcome("/status.json", {}),
    ];
    await outcome("/v1/chat/completions", {method: "POST", mode: "no-cors", body});
    await outcome("/v1/models", {mode: "no-cors"});
    await image();
    return tried;
}"""


@contextlib.asynccontextmanager
async def upstream() -> AsyncIterator[RawUpstream]:
    async with RawUpstream(
        script=lambda _: [Send(wire_bytes.response(b"{}", headers=OPEN_TO_ALL))]
    ).running() as running:
        yield running


@contextlib.asynccontextmanager
async def page_elsewhere(*flags: str) -> AsyncIterator[tuple[Any, str]]:
    """A page of another origin, and that origin."""

    async def page(_: Request) -> HTMLResponse:
        return HTMLResponse("<!doctype html><title>elsewhere</title>")

    async with serving(Starlette(routes=[Route("/", page)])) as url, browser(*flags) as launched:
        opened = await launched.new_page()
        await opened.goto(f"{url}/")
        yield opened, url


async def test_a_page_of_another_origin_can_do_nothing() -> None:
    async with upstream() as model, fronted(model.url) as url, page_elsewhere() as (page, _):
        tried = await page.evaluate(TRIES, url)
        await page.evaluate(
            "url => { document.body.innerHTML = `<form method=post action=${url}/v1/x>` }", url
        )
        async with page.expect_response("**/v1/x") as form:
            await page.evaluate("document.forms[0].submit()")
        assert (await form.value).status == 403
    assert tried == ["refused", "refused", "refused"]
    # The form has led the browser to our own answer, for which it wants a picture.
    assert [r.path for r in model.requests if r.path != "/favicon.ico"] == []


async def test_a_page_that_is_allowed_can_ask_and_read() -> None:
    async with (
        upstream() as model,
        page_elsewhere() as (page, origin),
        fronted(model.url, server={"allowed_origins": (origin,)}) as url,
    ):
        tried = await page.evaluate(TRIES, url)
    assert tried == ["cors", "cors", "cors"]
    assert {r.path for r in model.requests if b"from a page" in r.body} == {"/v1/chat/completions"}
    assert "/v1/models?from-an-image" not in [r.path for r in model.requests]


async def test_a_name_that_leads_here_opens_nothing() -> None:
    """DNS rebinding, as far as a browser can tell: page and proxy are one origin."""
    async with (
        upstream() as model,
        fronted(model.url) as url,
        browser("--host-resolver-rules=MAP rebound.example 127.0.0.1") as launched,
    ):
        page = await launched.new_page()
        rebound = f"http://rebound.example:{urlsplit(url).port}"
        # No page can be had under that name; its origin is what counts for what follows.
        answer = await page.goto(f"{rebound}/status")
        assert answer is not None and answer.status == 403
        statuses = await page.evaluate(
            """async () => {
                const ask = async (path, how) => (await fetch(path, how)).status;
                return [
                    await ask("/v1/chat/completions", {method: "POST", body: "{}"}),
                    await ask("/status.json"),
                    await ask("/v1/models"),
                ];
            }"""
        )
    assert statuses == [403, 403, 403]
    assert model.requests == []


async def test_the_status_page_asks_for_a_key_as_a_password_and_works_with_it() -> None:
    async with (
        upstream() as model,
        fronted(model.url, server={"admin_keys": (ADMIN,)}, context={"window": 8192}) as url,
        browser() as launched,
    ):
        context = await launched.new_context(http_credentials={"username": "me", "password": ADMIN})
        page = await context.new_page()
        await page.goto(f"{url}/status")
        await page.locator("#live[data-state=ok]").wait_for()
        await ask(
            url,
            "/v1/chat/completions",
            body={"model": "seen-live", "messages": [{"role": "user", "content": "hi"}]},
        )
        await page.locator(".row", has_text="seen-live").wait_for(timeout=5000)


def test_the_settings_that_are_tried_here_are_the_defaults_otherwise() -> None:
    config = ServerConfig()
    assert (config.keys, config.admin_keys, config.allowed_origins, config.open) == ((), (), (), False)
