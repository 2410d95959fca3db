"""Plain requests are read by httptools; whatever is not plain is understood as h11 understands it."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import uvicorn

from proxy.connections import Connection
from tests.support.asgi import accept_lifespan
from tests.support.serving import serving

App = Callable[[Any, Any, Any], Awaitable[None]]
LAST = b"0\r\n\r\n"


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Answers with what it was asked; `/early` before it has read the body."""
    if scope["type"] == "lifespan":
        return await accept_lifespan(receive, send)
    body = b""
    more = scope["path"] != "/early"
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message["body"]
        more = message["more_body"]
    told = {
        "method": scope["method"],
        "path": scope["raw_path"].decode(),
        "query": scope["query_string"].decode(),
        "version": scope["http_version"],
        "headers": [[n.decode(), v.decode("latin-1")] for n, v in scope["headers"]],
        "body": body.decode("latin-1"),
    }
    said = json.dumps(told).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(said)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else said})


@contextlib.asynccontextmanager
async def connected(
    app: App = echo, http: Any = Connection
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection to *app*."""
    config = uvicorn.Config(
        app, http=http, ws="none", lifespan="on", log_config=None, server_header=False, date_header=False
    )
    async with asyncio.timeout(20), serving(app, grace_seconds=1, config=config) as url:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        try:
            yield reader, writer
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


async def head_of(reader: asyncio.StreamReader) -> tuple[bytes, dict[bytes, bytes]]:
    """Status line and headers of the next answer."""
    status, *lines = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[:-2]
    return status, dict(line.lower().split(b": ", 1) for line in lines)


async def answer(reader: asyncio.StreamReader) -> dict[str, Any]:
    """What the next answer of `echo` says."""
    status, headers = await head_of(reader)
    assert status == b"HTTP/1.1 200 OK", status
    said: dict[str, Any] = json.loads(await reader.readexactly(int(headers[b"content-length"])))
    return said


def post(body: bytes, *lines: bytes, target: bytes = b"/a") -> bytes:
    """A plain request, but for *lines*."""
    head = [b"POST " + target + b" HTTP/1.1", b"Host: x", b"Content-Length: %d" % len(body), *lines]
    return b"\r\n".join([*head, b"", body])


CHUNKED = b"POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n" + LAST
REQUESTS = {
    "plain": post(b"hello", b"X-Mine: a b ", target=b"/a%20b?c=d&e"),
    "no body": b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n",
    "no space after the colon": b"GET /a HTTP/1.1\r\nHost:x\r\nX:\t y\t\r\n\r\n",
    "an empty value": b"GET /a HTTP/1.1\r\nHost: x\r\nX:\r\n\r\n",
    "latin-1 in a value": b"GET /a HTTP/1.1\r\nHost: x\r\nX: caf\xe9\r\n\r\n",
    "a header twice": post(b"", b"X: 1", b"x: 2"),
    "chunked": CHUNKED,
    "an offered upgrade": post(b"hello", b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c"),
    "a folded header": b"GET /a HTTP/1.1\r\nHost: x\r\nX: a\r\n b\r\n\r\n",
    "line feeds alone": b"GET /a HTTP/1.1\nHost: x\n\n",
    "HTTP/1.0": b"GET /a HTTP/1.0\r\nHost: x\r\n\r\n",
    "a target with a host": b"GET http://x/a HTTP/1.1\r\nHost: x\r\n\r\n",
    "another method": b"PROPFIND /a HTTP/1.1\r\nHost: x\r\n\r\n",
    "the same length twice": post(b"hello", b"Content-Length: 5"),
}  # fmt: skip
REFUSED = {
    "no host": b"GET /a HTTP/1.1\r\nX: y\r\n\r\n",
    "two hosts": post(b"hello", b"Host: y"),
    "two lengths": post(b"hello", b"Content-Length: 6"),
    "a length with a sign": b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: +5\r\n\r\nhello",
    "a space before the colon": b"GET /a HTTP/1.1\r\nHost: x\r\nX : y\r\n\r\n",
    "a null in a value": b"GET /a HTTP/1.1\r\nHost: x\r\nX: a\0b\r\n\r\n",
    "a carriage return in a value": b"GET /a HTTP/1.1\r\nHost: x\r\nX: a\rb\r\n\r\n",
    "a space in the target": b"GET /a b HTTP/1.1\r\nHost: x\r\n\r\n",
    "an empty line first": b"\r\n" + post(b"hello"),
    "nonsense": b"nonsense\r\n\r\n",
}


@pytest.mark.parametrize("request_bytes", REQUESTS.values(), ids=REQUESTS)
async def test_a_request_is_understood_as_h11_understands_it(request_bytes: bytes) -> None:
    said = []
    for http in (Connection, "h11"):
        async with connected(http=http) as (reader, writer):
            writer.write(request_bytes)
            said.append(await answer(reader))
    assert said[0] == said[1]


@pytest.mark.parametrize("request_bytes", REFUSED.values(), ids=REFUSED)
async def test_what_h11_refuses_is_refused(request_bytes: bytes) -> None:
    async with connected() as (reader, writer):
        writer.write(request_bytes)
        status, _ = await head_of(reader)
    assert status.startswith(b"HTTP/1.1 400")


@pytest.mark.parametrize("cut", [1, 20, len(post(b"")) - 1, len(post(b"")) + 2])
async def test_a_request_may_come_in_two_pieces(cut: int) -> None:
    request_bytes = post(b"hello")
    async with connected() as (reader, writer):
        writer.write(request_bytes[:cut])
        # The server, in the same loop, reads the first.
        await asyncio.sleep(0)
        writer.write(request_bytes[cut:])
        assert (await answer(reader))["body"] == "hello"


async def test_a_long_body_arrives_whole() -> None:
    body = bytes(range(32, 127)) * 30_000
    async with connected() as (reader, writer):
        writer.write(post(body))
        assert (await answer(reader))["body"].encode() == body


@pytest.mark.parametrize(
    "rest",
    [
        pytest.param([post(b"second"), post(b"third")], id="plain"),
        pytest.param([CHUNKED, post(b"third")], id="not plain"),
    ],
)
async def test_requests_that_come_at_once_are_answered_in_their_order(rest: list[bytes]) -> None:
    async with connected() as (reader, writer):
        writer.write(b"".join([post(b"first"), *rest]))
        said = [(await answer(reader))["body"] for _ in range(3)]
    assert said == ["first", "hello" if rest[0] is CHUNKED else "second", "third"]


async def test_the_rest_of_a_body_that_nobody_read_is_no_request() -> None:
    hidden = post(b"hidden")
    async with connected() as (reader, writer):
        request_bytes = post(hidden, target=b"/early")
        writer.write(request_bytes[:-20])
        assert (await answer(reader))["path"] == "/early"
        writer.write(request_bytes[-20:] + post(b"next"))
        assert (await answer(reader))["body"] == "next"


async def test_a_connection_that_is_to_be_closed_is_closed() -> None:
    async with connected() as (reader, writer):
        writer.write(post(b"hello", b"Connection: close"))
        _, headers = await head_of(reader)
        await reader.readexactly(int(headers[b"content-length"]))
        assert (headers[b"connection"], await reader.read()) == (b"close", b"")


async def test_head_has_the_length_and_no_body() -> None:
    async with connected() as (reader, writer):
        writer.write(b"HEAD /a HTTP/1.1\r\nHost: x\r\n\r\n" + post(b"next"))
        _, headers = await head_of(reader)
        assert int(headers[b"content-length"]) > 0
        assert (await answer(reader))["body"] == "next"


async def test_the_pieces_of_a_stream_are_framed_as_they_are_sent() -> None:
    async def stream(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            return await accept_lifespan(receive, send)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for piece in (b"one", b"", b"three"):
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"end"})

    async with connected(stream) as (reader, writer):
        writer.write(post(b""))
        _, headers = await head_of(reader)
        assert headers == {b"transfer-encoding": b"chunked"}
        assert await reader.readuntil(LAST) == b"3\r\none\r\n5\r\nthree\r\n3\r\nend\r\n" + LAST


async def test_a_head_goes_out_before_the_first_piece_is_there() -> None:
    go_on = asyncio.Event()

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            return await accept_lifespan(receive, send)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await go_on.wait()
        await send({"type": "http.response.body", "body": b"ok"})

    async with connected(slow) as (reader, writer):
        writer.write(post(b""))
        await head_of(reader)
        go_on.set()
        assert await reader.readexactly(2) == b"ok"


@pytest.mark.parametrize("length", [[], [(b"content-length", b"9")]], ids=["chunked", "with a length"])
@pytest.mark.parametrize("fails", [False, True], ids=["returns", "raises"])
async def test_an_answer_that_is_not_ended_is_broken_off(length: Any, fails: bool) -> None:
    async def half(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            return await accept_lifespan(receive, send)
        await send({"type": "http.response.start", "status": 200, "headers": length})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        if fails:
            raise ValueError("on purpose")

    async with connected(half) as (reader, writer):
        writer.write(post(b""))
        await head_of(reader)
        assert await reader.read() == (b"half" if length else b"4\r\nhalf\r\n")


@pytest.mark.parametrize(
    "headers",
    [[(b"x", b"a\r\nset-cookie: b")], [(b"x y", b"a")], [(b"content-length", b"1")]],
    ids=["a line break in a value", "a space in a name", "a length that is too small"],
)
async def test_an_answer_that_is_no_http_does_not_go_out_whole(headers: Any) -> None:
    async def odd(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            return await accept_lifespan(receive, send)
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"long"})

    async with connected(odd) as (reader, writer):
        writer.write(post(b"", b"Connection: close"))
        got = await reader.read()
    assert b"long" not in got and b"set-cookie" not in got


async def test_a_client_that_leaves_is_noticed() -> None:
    left = asyncio.Event()

    async def wait(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            return await accept_lifespan(receive, send)
        await receive()
        assert (await receive())["type"] == "http.disconnect"
        left.set()

    async with connected(wait) as (_, writer):
        writer.write(post(b"hello"))
        await writer.drain()
        writer.close()
        await left.wait()
