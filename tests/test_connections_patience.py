"""How long a connection waits for a head, how large it may be, and what is said to what is no request."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator

import pytest

from tests.support.fronted import CHAT, fronted, sample, saying

HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2\r\n"
BY_H11 = b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n"


class Line:
    """A connection, and what came back on it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {
            name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])
        }
        body = await self._reader.readexactly(int(headers["content-length"]))
        return int(head[0].split()[1]), headers, body

    async def is_closed(self) -> bool:
        """Wait for what comes next; whether that is the end."""
        with contextlib.suppress(ConnectionError):
            return await self._reader.read(1) == b""
        return True


@contextlib.asynccontextmanager
async def line(**limits: float) -> AsyncIterator[Line]:
    async with saying(b"yes").running() as upstream, fronted(upstream.url, limits=limits) as url:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        try:
            yield Line(reader, writer)
        finally:
            writer.close()


@pytest.mark.parametrize(
    "begun",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"POS", id="a piece of the first line"),
        pytest.param(HEAD, id="all but the empty line"),
    ],
)
async def test_a_head_that_does_not_end_ends_the_connection(begun: bytes) -> None:
    async with line(head_seconds=0.1) as client:
        client.send(begun)
        assert await client.is_closed()


async def test_pieces_do_not_prolong_it() -> None:
    async with line(head_seconds=0.1) as client:
        client.send(HEAD)
        closed = asyncio.ensure_future(client.is_closed())
        for _ in range(500):
            if closed.done():
                break
            client.send(b"X: y\r\n")
            await asyncio.sleep(0.01)
        assert await closed


@pytest.mark.parametrize(
    "first", [HEAD + b"\r\n{}", BY_H11 + b"\r\n2\r\n{}\r\n0\r\n\r\n"], ids=["plain", "chunked"]
)
async def test_the_next_head_has_its_own_time(first: bytes) -> None:
    async with line(head_seconds=0.2) as client:
        for _ in range(3):
            client.send(first)
            assert (await client.answer())[0] == 200
        # A connection that is kept between two requests is another matter.
        done, _ = await asyncio.wait((closed := asyncio.ensure_future(client.is_closed()),), timeout=0.4)
        assert not done
        client.send(b"POST /")
        assert await closed


async def test_a_head_in_pieces_is_read() -> None:
    async with line() as client:
        for byte in HEAD + b"\r\n{}":
            client.send(bytes([byte]))
            await asyncio.sleep(0)
        assert (await client.answer())[2] == b"yes"


@pytest.mark.parametrize("head", [HEAD, BY_H11], ids=["plain", "chunked"])
@pytest.mark.parametrize("ends", [True, False], ids=["whole", "without end"])
async def test_a_head_that_is_too_large_is_a_431(head: bytes, ends: bool) -> None:
    async with line(head_bytes=2000) as client:
        client.send(head + b"X-Large: " + b"x" * 2000 + (b"\r\n\r\n" if ends else b""))
        status, headers, body = await client.answer()
        error = json.loads(body)["error"]
        assert (status, error["code"], headers["connection"]) == (431, "head_too_large", "close")
        assert "`limits.head_bytes`" in error["message"]
        assert await client.is_closed()


@pytest.mark.parametrize("head", [HEAD, BY_H11], ids=["plain", "chunked"])
async def test_a_head_with_everything_that_agents_send_is_not(head: bytes) -> None:
    async with line() as client:
        client.send(
            head
            + b"Cookie: "
            + b"x" * 30_000
            + b"\r\n\r\n"
            + (b"{}" if head is HEAD else b"2\r\n{}\r\n0\r\n\r\n")
        )
        assert (await client.answer())[0] == 200


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", id="TLS"),
        pytest.param(b"hello\r\n\r\n", id="words"),
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", id="without a host"),
    ],
)
async def test_what_is_no_request_is_a_400(sent: bytes) -> None:
    async with line() as client:
        client.send(sent)
        status, headers, body = await client.answer()
        assert (status, json.loads(body)["error"]["code"], headers["connection"]) == (
            400,
            "bad_request",
            "close",
        )
        assert await client.is_closed()


async def test_a_body_that_becomes_nonsense_ends_without_a_fault(caplog: pytest.LogCaptureFixture) -> None:
    async with saying(b"yes").running() as upstream, fronted(upstream.url) as url:
        for path in (CHAT, "/v1/files"):
            reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
            writer.write(BY_H11.replace(CHAT.encode(), path.encode()) + b"\r\n2\r\n{}\r\nnonsense\r\n")
            assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
            writer.close()
        while await sample(url, "proxy_in_flight_requests"):
            pass
        assert await sample(url, 'proxy_refused_total{code="proxy_error"}') == 0
    assert [record for record in caplog.records if record.exc_info] == []
