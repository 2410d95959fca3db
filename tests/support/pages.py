"""
Serve fixed answers by path, as the endpoints of a server that says what it is.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from proxy.upstream import Answer, Headers, Upstream
from tests.support.serving import serving

KEY = (("authorization", "Bearer secret"),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """An answer that is more than JSON with a 200."""

    status: int = 200
    body: bytes = b"{}"
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Pages:
    """
    A server that answers *pages*, by path with query, to whoever has the *key*.

    A page that is no `Page` is sent as JSON. An empty key lets everyone in.
    """

    pages: dict[str, Any]
    missing: Page = field(default_factory=lambda: Page(status=404))
    key: str = KEY[0][1]
    asked: list[str] = field(default_factory=list)
    bodies: list[Any] = field(default_factory=list)

    async def answer(self, request: Request) -> Response:
        """The page over a socket."""
        path = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        if request.method == "POST":
            assert request.headers["content-type"] == "application/json"
            self.bodies.append(json.loads(await request.body()))
        page = self._page(path, request.headers.get("authorization"))
        return Response(page.body, page.status, page.headers)

    async def ask(
        self,
        method: str,
        path: str,
        *,
        headers: Headers = (),
        body: bytes = b"",
        timeout_seconds: float = 5.0,
    ) -> Answer:
        """What `Upstream.ask` would give, without a socket."""
        page = self._page(path, dict(headers).get("authorization"))
        return Answer(status=page.status, headers=tuple(page.headers.items()), body=page.body)

    def _page(self, path: str, sent_key: str | None) -> Page:
        self.asked.append(path)
        if self.key and sent_key != self.key:
            return Page(status=401)
        page = self.pages.get(path, self.missing)
        return page if isinstance(page, Page) else Page(body=json.dumps(page).encode())


@asynccontextmanager
async def upstream_of(pages: Pages, path: str = "") -> AsyncIterator[Upstream]:
    """Serve *pages*, and talk to it by a URL that ends in *path*."""
    app = Starlette(routes=[Route("/{rest:path}", pages.answer, methods=["GET", "POST"])])
    async with serving(app) as url:
        upstream = Upstream(url=url + path)
        try:
            yield upstream
        finally:
            await upstream.close()
