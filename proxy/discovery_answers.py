"""
Ask the upstream one small question, and believe only what is sane.

Nothing here raises: no answer, an error, no JSON, and JSON of another shape all come
out as nothing.
"""

import json
from collections.abc import Iterable
from typing import Any, Protocol

from proxy.errors import ProxyError
from proxy.upstream import Answer, Headers

# The largest windows on offer hold ten million.
MOST_TOKENS = 100_000_000


class Ask(Protocol):
    """One small question to the upstream, as `Upstream.ask` puts it."""

    async def __call__(
        self,
        method: str,
        path: str,
        *,
        headers: Headers = (),
        body: bytes = b"",
        timeout_seconds: float = 5.0,
    ) -> Answer:
        """
        Raises:
            ProxyError: If no answer comes, or not in time.
        """
        ...


class Server:
    """Asks, and remembers whether there is anyone to ask."""

    def __init__(self, ask: Ask, model: str, headers: Headers) -> None:
        self._ask = ask
        self._headers = headers
        self.model = model
        self.answered = False
        self.silent = False
        self.seen_headers: dict[str, str] = {}

    async def get(self, path: str) -> Any:
        """The JSON at *path*; None for anything but a 200 with JSON."""
        return await self._asked("GET", path, b"")

    async def post(self, path: str, body: bytes) -> Any:
        """The JSON that *path* answers to *body*; None for anything but a 200 with JSON."""
        return await self._asked("POST", path, body)

    async def _asked(self, method: str, path: str, body: bytes) -> Any:
        if self.silent:
            return None
        headers = [*self._headers, ("content-type", "application/json")] if body else self._headers
        try:
            answer = await self._ask(method, path, headers=headers, body=body)
        except ProxyError:
            # Who did not answer the first question is not asked six more.
            self.silent = not self.answered
            return None
        self.answered = True
        self.seen_headers |= {name.lower(): value for name, value in answer.headers}
        return parsed(answer.body) if answer.status == 200 else None


def entry_of(listed: Any, model: str, names: Iterable[str], *, only: bool = True) -> dict[str, Any]:
    """The entry of *model* in a list; else the one there is, where *only* allows that."""
    entries = dicts_of(listed)
    if model:
        for entry in entries:
            for name in names:
                value = entry.get(name)
                if value == model or (isinstance(value, list) and model in value):
                    return entry
    return entries[0] if only and len(entries) == 1 else {}


def parsed(body: bytes) -> Any:
    """The JSON that *body* is, or None."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def dict_of(value: Any) -> dict[str, Any]:
    """*value* where it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def dicts_of(value: Any) -> list[dict[str, Any]]:
    """The objects in *value* where it is a list, else none."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def whole(value: Any, most: int) -> int | None:
    """A number from 1 to *most*; None for everything else that a server may say."""
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most:
        return value
    return None
