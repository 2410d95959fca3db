"""
Show a person what becomes of each conversation: a page, the same as JSON, and a stream of changes.

The page is files without a build step; it may load nothing from elsewhere, and no
text of it can run. What is shown comes from the `Board`, with the health of upstream and
store beside it; content only where `[status] show_content` keeps some.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from importlib import resources

import orjson
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from proxy import __version__
from proxy.board import Board

# Every page that is open holds a connection; more than this is no person.
MOST_STREAMS = 32
# A change is shown at once, those that follow it together: a page draws no faster.
_LEAST_SECONDS_BETWEEN = 0.25
# Also the heartbeat by which a page knows that the connection lives.
HEALTH_SECONDS = 10.0
_PATIENCE_SECONDS = 5.0
_RETRY_MILLISECONDS = 1000

_HEADERS = {
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
}
_FILES = {
    "/status": ("page.html", "text/html"),
    "/status/page.css": ("page.css", "text/css"),
    "/status/page.js": ("page.js", "text/javascript"),
    "/status/plot.js": ("plot.js", "text/javascript"),
    "/status/rows.js": ("rows.js", "text/javascript"),
    "/status/text.js": ("text.js", "text/javascript"),
}

Page = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """Upstream and store: "ok", "loading", or what is wrong with them; empty while not known."""

    upstream: str = ""
    store: str = ""


class Status:
    """
    The pages below `/status`. For one event loop.

    Args:
        board: What is shown.
        now: Seconds since the epoch.
        upstream_url: Where requests go.
        upstream_state: Asks the upstream, for as many seconds at most; "ok", or what is wrong.
        store_state: The same of the store.
    """

    def __init__(
        self,
        board: Board,
        *,
        now: Callable[[], float],
        upstream_url: str,
        upstream_state: Callable[[float], Awaitable[str]],
        store_state: Callable[[], str],
    ) -> None:
        self._board = board
        self._now = now
        self._upstream_url = upstream_url
        self._upstream_state = upstream_state
        self._store_state = store_state
        self._started_at = now()
        self._health = Health()
        self._asked_at = -HEALTH_SECONDS
        self._asking: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._closed = False
        self._streams = 0
        board.on_change = self._ring

    def pages(self) -> dict[str, Page]:
        """What answers at which path."""
        files = {path: _file(name, kind) for path, (name, kind) in _FILES.items()}
        return {**files, "/status.json": self._json, "/status/events": self._events}

    def close(self) -> None:
        """End every stream: a server that stops waits for them."""
        self._closed = True
        self._ring()

    async def _json(self, request: Request) -> Response:
        asked = request.query_params.get("conversation")
        if asked is None:
            await self._look()
            return _reply(self._state())
        story = self._board.story(asked)
        if story is None:
            return _reply({"error": "no such conversation, or it was forgotten"}, 404)
        return _reply({"now": self._now(), "story": story})

    async def _events(self, _: Request) -> Response:
        if self._closed or self._streams >= MOST_STREAMS:
            why = "the proxy is stopping" if self._closed else f"{MOST_STREAMS} status pages are open already"
            return _reply({"error": why}, 503)
        headers = {**_HEADERS, "x-accel-buffering": "no"}
        return StreamingResponse(self._stream(), media_type="text/event-stream", headers=headers)

    async def _stream(self) -> AsyncIterator[bytes]:
        self._streams += 1
        looking = asyncio.ensure_future(self._look())
        try:
            yield b"retry: %d\n\n" % _RETRY_MILLISECONDS
            seen, forgotten, health = -1, -1, self._health
            while not self._closed:
                if forgotten != self._board.forgotten:
                    # What is gone cannot be told by a change.
                    forgotten, seen = self._board.forgotten, self._board.revision
                    yield _event("state", self._state())
                elif seen != self._board.revision:
                    changes, seen = self._board.summaries(since=seen), self._board.revision
                    told = {"now": self._now(), "totals": self._board.totals, "conversations": changes}
                    yield _event("changes", told)
                if looking.done():
                    looking = asyncio.ensure_future(self._look(after_seconds=HEALTH_SECONDS))
                    health = self._health
                    yield _event("health", {"now": self._now(), "health": health})
                await asyncio.sleep(_LEAST_SECONDS_BETWEEN)
                if seen == self._board.revision and not looking.done():
                    waiting = asyncio.ensure_future(self._changed.wait())
                    await asyncio.wait((waiting, looking), return_when=asyncio.FIRST_COMPLETED)
                    waiting.cancel()
        finally:
            looking.cancel()
            self._streams -= 1

    def _state(self) -> dict[str, object]:
        return {
            "version": __version__,
            "now": self._now(),
            "started_at": self._started_at,
            "show_content": self._board.show_content,
            "upstream_url": self._upstream_url,
            "health": self._health,
            "totals": self._board.totals,
            "conversations": self._board.summaries(),
        }

    async def _look(self, after_seconds: float = 0.0) -> None:
        """Bring the health up to date; those who ask at once, or soon after, ask the upstream once."""
        if after_seconds:
            await asyncio.sleep(after_seconds)
        if self._asking is None or (
            self._asking.done() and self._now() - self._asked_at >= HEALTH_SECONDS / 2
        ):
            self._asking = asyncio.ensure_future(self._ask())
        await asyncio.shield(self._asking)

    async def _ask(self) -> None:
        upstream = await self._upstream_state(_PATIENCE_SECONDS)
        self._asked_at = self._now()
        self._health = Health(upstream=upstream, store=self._store_state())

    def _ring(self) -> None:
        rung, self._changed = self._changed, asyncio.Event()
        rung.set()


def _file(name: str, kind: str) -> Page:
    content = resources.files("proxy").joinpath("status_page", name).read_bytes()

    async def answer(_: Request) -> Response:
        return Response(content, media_type=kind, headers=_HEADERS)

    return answer


def _reply(told: object, status: int = 200) -> Response:
    return Response(_dump(told), status, media_type="application/json", headers=_HEADERS)


def _event(name: str, told: object) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (name.encode(), _dump(told))


def _dump(told: object) -> bytes:
    return orjson.dumps(told)
