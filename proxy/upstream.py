"""
Talk HTTP to the upstream.

Bytes in, bytes out: nothing is decoded, no redirect followed, no cookie kept, no
header added that the client did not send. Slow is not gone: there is a limit on
connecting and one on silence, none on the whole. aiohttp's client is spoken to directly:
what httpx puts around it takes longer than all the rest of a short request.
"""

import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from proxy.circuit import Circuit
from proxy.connecting import Connector, try_connection
from proxy.paths import Target
from proxy.upstream_response import Response, told, was_closed

Headers = Sequence[tuple[str, str]]

# llama.cpp closes an idle connection after 5 s; one that is used again at that very
# moment would be lost.
KEEPALIVE_SECONDS = 4.0
# A queued request holds its connection, so the pool must not be the bottleneck.
MAX_CONNECTIONS = 1000
_PIECE_BYTES = 256 * 1024

# These state how the body is really sent.
_FRAMING = ("host", "content-length", "transfer-encoding")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A whole answer to a question of our own."""

    status: int
    headers: Headers
    body: bytes


class Upstream:
    """
    The server behind the proxy.

    Args:
        url: As configured, with or without `/v1`.
        key: Replaces the client's credentials where not empty.
        proxy: URL of the HTTP proxy that stands between, or None.
        connect_timeout_seconds: For a connection to come about.
        idle_timeout_seconds: For silence, also while the upstream queues or prefills.

    Attributes:
        circuit: Whether it can be connected to.
    """

    def __init__(
        self,
        *,
        url: str,
        key: str = "",
        proxy: str | None = None,
        connect_timeout_seconds: float = 10.0,
        idle_timeout_seconds: float = 600.0,
    ) -> None:
        self.target = Target.of(url)
        self._key = key
        self._proxy = proxy
        self.wait_at_most(
            connect_timeout_seconds=connect_timeout_seconds, idle_timeout_seconds=idle_timeout_seconds
        )
        self._session: aiohttp.ClientSession | None = None
        self.circuit = Circuit(
            self.target.root,
            lambda: try_connection(proxy or self.target.root, self._timeout.sock_connect or 0),
            now=time.monotonic,
        )

    def wait_at_most(self, *, connect_timeout_seconds: float, idle_timeout_seconds: float) -> None:
        """Other limits for what is sent from now on."""
        self._timeout = aiohttp.ClientTimeout(
            sock_connect=connect_timeout_seconds, sock_read=idle_timeout_seconds
        )

    def _opened(self) -> aiohttp.ClientSession:
        """The session; it can only be made inside the loop that it is for."""
        if self._session is None:
            self._session = self._made()
        return self._session

    def _made(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=Connector(self.circuit, limit=MAX_CONNECTIONS, keepalive_timeout=KEEPALIVE_SECONDS),
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
            auto_decompress=False,
            trust_env=False,
            max_line_size=65536,
            max_field_size=65536,
        )

    async def send(
        self,
        method: str,
        url: str,
        *,
        headers: Headers = (),
        body: bytes | AsyncIterator[bytes] = b"",
        idle_timeout_seconds: float | None = None,
        even_if_down: bool = False,
    ) -> Response:
        """
        Send one request and wait for the head of its answer.

        A connection that the upstream had closed between two requests is replaced once,
        where the body can be sent again and no byte of an answer came. *even_if_down* is for
        those who want to know.

        Raises:
            UpstreamDown: If there was no connection several times, and there is none now.
            UpstreamUnreachable: If there is no connection, or it closed before an answer.
            UpstreamStalled: If the answer's head does not come in time.
        """
        if self.circuit.is_open and not even_if_down:
            await self.circuit.pass_through()
        timeout = self._timeout
        if idle_timeout_seconds is not None:
            timeout = aiohttp.ClientTimeout(sock_connect=timeout.sock_connect, sock_read=idle_timeout_seconds)
        sent = CIMultiDict(self._with_key(headers))
        if isinstance(body, bytes):
            for name in _FRAMING:
                sent.popall(name, None)
            if body or method in ("POST", "PUT", "PATCH"):
                sent["content-length"] = str(len(body))
        there = URL(url, encoded=True)
        for attempt in (1, 2):
            try:
                return Response(
                    await self._opened().request(
                        method,
                        # aiohttp would make a header of credentials in it.
                        there if there.raw_user is None else there.with_user(None),
                        headers=sent,
                        data=_in_pieces(body) if isinstance(body, bytes) else body,
                        allow_redirects=False,
                        timeout=timeout,
                        proxy=self._proxy,
                    )
                )
            except (aiohttp.ClientError, OSError, ValueError) as error:
                again = attempt == 1 and isinstance(body, bytes) and was_closed(error)
                if not again:
                    raise told(error, f"at {self.target.root}") from error
        raise AssertionError("unreachable")

    async def ask(
        self,
        method: str,
        path: str,
        *,
        headers: Headers = (),
        body: bytes = b"",
        timeout_seconds: float = 5.0,
        even_if_down: bool = False,
    ) -> Answer:
        """
        A small question of our own, such as for the window; *path* counts from the root.

        Raises:
            UpstreamUnreachable: If there is no connection, or it broke.
            UpstreamStalled: If the answer does not come in time.
        """
        if body and not any(k.lower() == "content-type" for k, _ in headers):
            headers = [*headers, ("content-type", "application/json")]
        response = await self.send(
            method,
            self.target.url(path),
            headers=headers,
            body=body,
            idle_timeout_seconds=timeout_seconds,
            even_if_down=even_if_down,
        )
        try:
            content = await response.read()
        finally:
            await response.close()
        pairs = [(k.decode("latin-1"), v.decode("latin-1")) for k, v in response.headers]
        return Answer(status=response.status, headers=pairs, body=content)

    async def close(self) -> None:
        """Close every connection."""
        await self.circuit.close()
        if self._session is not None:
            await self._session.close()

    @property
    def adds_key(self) -> bool:
        """Whether requests carry a key that clients do not know."""
        return bool(self._key)

    def _with_key(self, headers: Headers) -> Headers:
        if not self._key:
            return headers
        kept = [(k, v) for k, v in headers if k.lower() not in ("authorization", "x-api-key", "api-key")]
        return [*kept, ("authorization", f"Bearer {self._key}")]


def _in_pieces(body: bytes) -> bytes | AsyncIterator[bytes] | None:
    """A long body in pieces, so that writing it does not hold up everybody else."""

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(body), _PIECE_BYTES):
            yield body[start : start + _PIECE_BYTES]

    return pieces() if len(body) > _PIECE_BYTES else body or None
