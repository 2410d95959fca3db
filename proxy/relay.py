"""
Pass a request on as it is, and its answer back: every endpoint that is not compacted.

Both bodies pass as they come.
"""

from collections.abc import AsyncIterator, Sequence

from proxy import headers as hd
from proxy.admission import Places
from proxy.client import Client
from proxy.upstream import Upstream
from proxy.upstream_response import Response

STREAM_HEADERS = ((b"x-accel-buffering", b"no"), (b"cache-control", b"no-cache"))

# Bodies up to this size are read first: a connection that the upstream has just closed can
# then be replaced.
_READ_FIRST_BYTES = 1024 * 1024


async def relay(
    upstream: Upstream,
    client: Client,
    url: str,
    limit: int,
    places: Places,
    *,
    told: Sequence[tuple[bytes, bytes]] = (),
) -> None:
    """
    Answer *client* with what the upstream answers at *url*, and headers of our own in *told*.

    Raises:
        BodyTooLarge: Where the request's body is over *limit* bytes.
        RequestTooSlow: Where it does not come to its end.
        ClientGone: Where the client left before its body was complete.
        Overloaded: Where there is no place for it.
        UpstreamUnreachable: If there is no answer, or it breaks off.
        UpstreamStalled: If it is silent for too long.
    """
    length = client.body.length(limit)
    short = None if length is None else await client.body.short(_READ_FIRST_BYTES, limit)
    body = client.body.pieces(limit) if short is None else short

    async def passing() -> None:
        async with places.one():
            await _pass(upstream, client, url, body, length, told=told)

    await client.while_there(passing())


async def _pass(
    upstream: Upstream,
    client: Client,
    url: str,
    body: bytes | AsyncIterator[bytes],
    length: int | None,
    *,
    told: Sequence[tuple[bytes, bytes]],
) -> None:
    headers = hd.for_upstream(client.headers)
    if not isinstance(body, bytes) and length is not None:
        headers.append(("content-length", str(length)))
    response = await upstream.send(client.method, url, headers=headers, body=body)
    try:
        await client.head(response.status, [*answer_headers(response), *told])
        async for chunk in response.chunks():
            await client.chunk(chunk)
        await client.end()
    finally:
        await response.close()


def is_stream(response: Response) -> bool:
    """Whether it is a stream of server-sent events."""
    return "text/event-stream" in response.header("content-type").lower()


def answer_headers(response: Response) -> list[tuple[bytes, bytes]]:
    """The end-to-end headers of an answer; a stream's say that nobody on the way may hold it back."""
    headers = hd.for_client(response.headers)
    if is_stream(response):
        present = {name for name, _ in headers}
        headers += [pair for pair in STREAM_HEADERS if pair[0] not in present]
    return headers
