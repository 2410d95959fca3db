"""
Lead requests that are for the upstream past the routes of the proxy's own pages.

Nearly all are, and a web framework's stack costs each of them more than reading it does. What
begins like a page of ours takes the usual way.
"""

import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import BaseRoute, Match, Route
from starlette.types import ASGIApp, Receive, Scope, Send

_SERVER = re.compile(r"(?i)^https?://[^/]*")
_SLASHES = re.compile(r"/{2,}")


class Straight(Starlette):
    """
    Starlette, with a short way around it.

    Args:
        routes: The proxy's own pages, and at the end what takes everything else.
        rest: What takes everything else.
        entrance: Stands before both.
        lifespan: As Starlette has it.
    """

    def __init__(
        self,
        *,
        routes: Sequence[BaseRoute],
        rest: ASGIApp,
        entrance: Middleware,
        lifespan: Callable[[Starlette], AbstractAsyncContextManager[None]],
    ) -> None:
        super().__init__(routes=routes, lifespan=lifespan, middleware=[entrance])
        self._own = {_first_segment(route.path) for route in routes if isinstance(route, Route)}
        self._rest = entrance.cls(rest, *entrance.args, **entrance.kwargs)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI's."""
        if scope["type"] == "http" and not _is_usual(scope["path"]):
            # However it is written, a page of ours is ours.
            scope["path"] = _usual(scope["path"])
        if scope["type"] == "http" and _first_segment(scope["path"]) not in self._own:
            await self._rest(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


def _first_segment(path: str) -> str:
    return path.split("/", 2)[1] if path.startswith("/") else path


def _is_usual(path: str) -> bool:
    return path.startswith("/") and "//" not in path


def _usual(path: str) -> str:
    """*path* without doubled slashes, and without the server that a forward proxy is told."""
    return _SLASHES.sub("/", "/" + _SERVER.sub("", path))


class Everything(BaseRoute):
    """Every method and path; a pattern would leave out paths with a line break in them."""

    def __init__(self, app: Callable[[Scope, Receive, Send], Awaitable[None]]) -> None:
        self._app = app

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Starlette's."""
        return (Match.FULL if scope["type"] == "http" else Match.NONE), {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Starlette's."""
        await self._app(scope, receive, send)


class Endpoint:
    """Marks a callable as an ASGI application for `Route`, which takes functions for handlers."""

    def __init__(self, app: Callable[[Scope, Receive, Send], "object"]) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI's."""
        await self._app(scope, receive, send)  # type: ignore[misc]
