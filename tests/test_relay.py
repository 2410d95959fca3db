"""What goes upstream is passed on as it came, and its answer back, each piece at once."""

import asyncio
import gzip
import zlib
from collections.abc import Callable

import brotli
import pytest
import zstandard

from tests.support import wire_bytes
from tests.support.fronted import BODY, BOTH, CHAT, OTHER, STREAMED, fronted, playing, saying, sent
from tests.support.gate import Gate
from tests.support.raw_client import RawRequest, ask
from tests.support.raw_upstream import Send, Step, Wait

# Requests


@pytest.mark.parametrize("method", ["GET", "OPTIONS", "PUT", "DELETE", "PATCH", "POST"])
@pytest.mark.parametrize("path", ["/", CHAT, "/v1/files", "/no/such/thing"])
async def test_every_method_and_path_goes_upstream(method: str, path: str) -> None:
    async with saying(b"there").running() as upstream, fronted(upstream.url) as url:
        answer, body = await ask(url, path, method=method, body=b"" if method == "GET" else BODY)
    request = sent(upstream)
    assert (answer.status, body) == (200, b"there")
    assert (request.method, request.path) == (method, path)
    assert request.body == (b"" if method == "GET" else BODY)


async def test_head_goes_upstream_and_its_length_comes_back() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n"
    async with (
        playing(lambda _: [Send(head)]).running() as upstream,
        fronted(upstream.url) as url,
        RawRequest(url, "/v1/files/x", method="HEAD") as request,
    ):
        answer = await request.answer()
    assert (sent(upstream).method, answer.header("content-length")) == ("HEAD", "1234")


@pytest.mark.parametrize(
    "target",
    [
        "/v1/files?a=1&b=%20+%7E&a=2&empty=",
        "/v1/files/a%2Fb%20%7Ec%41",
        "/v1/files/.%2f%2e/x",
        "/v1/files/x/./y",
        "/v1/files/",
        "/v1/files/a;b=c,d@e:f$g!h'(i)*",
        "/v1/files/a%0Ab",
        "/v1/files/%ff%00",
        "/v1/files/%E4%BD%A0?q=%E4%BD%A0",
        "/livez/",
        "/upstream",
    ],
)
async def test_a_target_is_kept_as_sent(target: str) -> None:
    async with saying().running() as upstream, fronted(upstream.url) as url:
        answer, _ = await ask(url, target, method="GET")
    assert (answer.status, sent(upstream).path) == (200, target)


@pytest.mark.parametrize("base", ["", "/", "/v1", "/v1/"])
@pytest.mark.parametrize(
    "path",
    [CHAT, "/chat/completions", "//v1//chat//completions", "/v1/chat/completions/", "/chat/completions//"],
)
async def test_a_chat_arrives_under_v1_however_both_are_written(base: str, path: str) -> None:
    async with saying().running() as upstream, fronted(upstream.url + base) as url:
        await ask(url, path, body=BODY)
    assert sent(upstream).path == CHAT


@BOTH
async def test_the_very_bytes_and_headers_arrive(path: str) -> None:
    headers = [
        ("X-Two", "1"),
        ("X-Two", "2"),
        ("Authorization", "Bearer k"),
        ("Cookie", "a=b; c=d"),
        ("X-Odd", '  "spaced",  twice '.strip()),
        ("X-Utf8", "café".encode().decode("latin-1")),
        ("Accept-Encoding", "br;q=0.1"),
        ("OpenAI-Organization", "o"),
    ]
    async with saying().running() as upstream, fronted(upstream.url) as url:
        await ask(url, path, body=BODY, headers=headers)
    request = sent(upstream)
    assert request.body == BODY
    host = upstream.url.removeprefix("http://")
    expected = [(name.lower(), value) for name, value in headers]
    expected += [("host", host), ("content-length", str(len(BODY)))]
    assert sorted((name.lower(), value) for name, value in request.headers) == sorted(expected)


@BOTH
async def test_a_header_in_latin_1_does_not_fail(path: str) -> None:
    async with saying().running() as upstream, fronted(upstream.url) as url:
        answer, _ = await ask(url, path, body=BODY, headers=[("X-Name", "caf\xe9")])
    assert answer.status == 200
    assert (sent(upstream).header("x-name") or "").encode("latin-1").decode() == "café"


@BOTH
async def test_hop_by_hop_headers_of_a_request_are_dropped(path: str) -> None:
    dropped = ["Keep-Alive", "TE", "Trailer", "Upgrade", "Proxy-Connection", "Proxy-Authorization", "X-Mine"]
    headers = [*((name, "x") for name in dropped), ("Connection", "close, x-mine"), ("X-Kept", "y")]
    async with saying().running() as upstream, fronted(upstream.url) as url:
        answer, _ = await ask(url, path, body=BODY, headers=headers)
    names = {name.lower() for name, _ in sent(upstream).headers}
    assert names == {"host", "content-length", "x-kept"}
    assert answer.status == 200


@BOTH
async def test_a_chunked_upload_arrives_whole(path: str) -> None:
    framed = b"".join(wire_bytes.chunk(piece) for piece in (BODY[:7], BODY[7:30], BODY[30:]))
    headers = [("Transfer-Encoding", "chunked")]
    async with saying().running() as upstream, fronted(upstream.url) as url:
        await ask(url, path, body=framed + wire_bytes.LAST_CHUNK, headers=headers)
    assert sent(upstream).body == BODY


async def test_a_chunked_upload_is_passed_on_while_it_comes() -> None:
    first_is_there = asyncio.Event()

    async def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"first")
        first_is_there.set()
        await reader.readuntil(b"second")
        writer.write(wire_bytes.response(b"{}"))
        writer.close()

    server = await asyncio.start_server(meet, "127.0.0.1", 0)
    async with server, fronted(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}") as url:
        host, _, port = url.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"POST /v1/files HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        writer.write(wire_bytes.chunk(b"first"))
        await first_is_there.wait()
        writer.write(wire_bytes.chunk(b"second") + wire_bytes.LAST_CHUNK)
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        writer.close()


@BOTH
async def test_expect_100_continue_is_answered(path: str) -> None:
    async with (
        saying(b"done").running() as upstream,
        fronted(upstream.url) as url,
        RawRequest(url, path, body=BODY, headers=[("Expect", "100-continue")]) as request,
    ):
        assert (await request.answer()).status == 100
        answer = await request.answer()
        assert (answer.status, await answer.read()) == (200, b"done")
    assert sent(upstream).body == BODY and sent(upstream).header("expect") is None


async def test_a_body_that_is_large_but_within_the_limit_goes_through() -> None:
    body = b'{"messages":[{"role":"user","content":"' + b"x " * 8_500_000 + b'"}]}'
    async with saying().running() as upstream, fronted(upstream.url) as url:
        answer, _ = await ask(url, CHAT, body=body)
    assert answer.status == 200 and sent(upstream).body == body


@BOTH
async def test_a_request_that_offers_an_upgrade_keeps_its_body(path: str) -> None:
    """Java's HTTP client offers one to HTTP/2 with every request."""
    headers = [("Connection", "Upgrade, HTTP2-Settings"), ("Upgrade", "h2c"), ("HTTP2-Settings", "AAMAAABk")]
    async with saying().running() as upstream, fronted(upstream.url) as url:
        answer, _ = await ask(url, path, body=BODY, headers=headers)
    assert (answer.status, sent(upstream).body) == (200, BODY)
    assert {name.lower() for name, _ in sent(upstream).headers} == {"host", "content-length"}


async def test_a_length_beside_chunks_is_refused() -> None:
    body = wire_bytes.chunk(b"whole") + wire_bytes.LAST_CHUNK
    headers = [("Content-Length", "2"), ("Transfer-Encoding", "chunked")]
    async with saying().running() as upstream, fronted(upstream.url) as url:
        answer, _ = await ask(url, OTHER, body=body, headers=headers)
    assert (answer.status, [r for r in upstream.requests if r.path == OTHER]) == (400, [])


async def test_a_target_with_a_host_is_read_without_it() -> None:
    async with saying().running() as upstream, fronted(upstream.url) as url:
        await ask(url, "HTTP://other:1//v1/files?x=http://y", method="GET")
    assert sent(upstream).path == "/v1/files?x=http://y"


async def test_a_tunnel_is_refused_with_the_remedy() -> None:
    async with saying().running() as upstream, fronted(upstream.url) as url:
        answer, body = await ask(url, "other:443", method="CONNECT")
    assert answer.status == 405
    assert b"this is no forward proxy; set it as the base URL of your client" in body
    assert upstream.requests == []


async def test_an_upgrade_to_websockets_is_an_ordinary_request() -> None:
    headers = [("Connection", "Upgrade"), ("Upgrade", "websocket"), ("Sec-WebSocket-Version", "13")]
    async with (
        playing(lambda _: [Send(wire_bytes.status(404))]).running() as upstream,
        fronted(upstream.url) as url,
    ):
        answer, _ = await ask(url, "/v1/realtime", method="GET", headers=headers)
    assert answer.status == 404
    assert sent(upstream).header("upgrade") is None


# Answers


@BOTH
@pytest.mark.parametrize("status", ["200 OK", "201 Created", "404 Not Found", "429 Too Many", "500 Oops"])
async def test_status_headers_and_body_come_back(path: str, status: str) -> None:
    headers = [
        ("Retry-After", "30"),
        ("X-RateLimit-Remaining", "0"),
        ("Set-Cookie", "a=1"),
        ("Set-Cookie", "b=2"),
    ]
    async with (
        saying(b'{"x": 0.10}', status=status, headers=headers).running() as upstream,
        fronted(upstream.url) as url,
    ):
        answer, body = await ask(url, path, body=BODY)
    kept = [(n.lower(), v) for n, v in headers] + [
        ("content-type", "application/json"),
        ("content-length", "11"),
    ]
    got = [pair for pair in answer.headers if pair[0] not in ("x-compaction", "x-context-tokens")]
    assert (answer.status, body) == (int(status[:3]), b'{"x": 0.10}')
    assert sorted(got) == sorted(kept)
    assert len(upstream.requests) == len([r for r in upstream.requests if r.path != path]) + 1


@BOTH
async def test_hop_by_hop_headers_of_an_answer_are_dropped(path: str) -> None:
    headers = [("Keep-Alive", "timeout=5"), ("Connection", "keep-alive, X-Mine"), ("X-Mine", "1")]
    headers += [("Proxy-Authenticate", "x"), ("Trailer", "y"), ("X-Kept", "2")]
    async with saying(headers=headers).running() as upstream, fronted(upstream.url) as url:
        answer, _ = await ask(url, path, body=BODY)
    names = {name for name, _ in answer.headers} - {"x-compaction", "x-context-tokens"}
    assert names == {"content-type", "content-length", "x-kept"}


@BOTH
@pytest.mark.parametrize("said", [True, False])
async def test_server_and_date_are_the_upstreams_or_absent(path: str, said: bool) -> None:
    headers = [("Server", "llama.cpp"), ("Date", "Mon, 01 Jan 2024 00:00:00 GMT")] if said else []
    async with saying(headers=headers).running() as upstream, fronted(upstream.url) as url:
        answer, _ = await ask(url, path, body=BODY)
    found = [(n.title(), v) for n, v in answer.headers if n.lower() in ("server", "date")]
    assert found == headers


@BOTH
async def test_each_chunk_arrives_before_the_next_is_sent(path: str) -> None:
    pieces = wire_bytes.sse("An answer that comes in a number of events")
    gates = [Gate() for _ in pieces]
    steps: list[Step] = [Send(wire_bytes.stream_head())]
    for piece, gate in zip(pieces, gates, strict=True):
        steps += [Send(wire_bytes.chunk(piece)), Wait(gate)]
    steps.append(Send(wire_bytes.LAST_CHUNK))
    async with (
        playing(lambda _: steps).running() as upstream,
        fronted(upstream.url) as url,
        RawRequest(url, path, body=STREAMED) as request,
    ):
        answer = await request.answer()
        got = []
        async for piece in answer.chunks():
            got.append(piece)
            gates[len(got) - 1].open()
    assert got == pieces
    assert answer.header("x-accel-buffering") == "no"
    assert answer.header("cache-control") == "no-cache"
    assert answer.header("transfer-encoding") == "chunked"


async def test_a_comment_before_the_first_event_arrives_at_once() -> None:
    gate = Gate()
    steps = [Send(wire_bytes.stream_head()), Send(wire_bytes.chunk(b":\n\n")), Wait(gate)]
    steps += wire_bytes.stream(wire_bytes.sse("hello"))[1:]
    async with (
        playing(lambda _: steps).running() as upstream,
        fronted(upstream.url) as url,
        RawRequest(url, CHAT, body=STREAMED) as request,
    ):
        pieces = aiter((await request.answer()).chunks())
        assert await anext(pieces) == b":\n\n"
        gate.open()
        assert b"".join([p async for p in pieces]) == b"".join(wire_bytes.sse("hello"))


@pytest.mark.parametrize(
    "change",
    [
        wire_bytes.at_every_byte,
        wire_bytes.with_crlf,
        wire_bytes.without_space,
        wire_bytes.with_comments,
        wire_bytes.two_in_one,
        wire_bytes.in_one_piece,
        wire_bytes.without_done,
    ],
)
async def test_the_bytes_of_a_stream_are_kept_however_they_are_cut(
    change: Callable[[list[bytes]], list[bytes]],
) -> None:
    pieces = change(wire_bytes.sse("北京 in an answer", calls=(("read", '{"path": "北京"}'),)))
    script = wire_bytes.stream(pieces)
    async with playing(lambda _: script).running() as upstream, fronted(upstream.url) as url:
        _, body = await ask(url, CHAT, body=STREAMED)
    assert body == b"".join(pieces)


@BOTH
@pytest.mark.parametrize(
    ("coding", "encode"),
    [
        ("gzip", gzip.compress),
        ("deflate", zlib.compress),
        ("br", brotli.compress),
        ("zstd", zstandard.compress),
        ("x-unknown", bytes),
    ],
)
async def test_an_encoded_answer_keeps_its_bytes_and_its_name(
    path: str, coding: str, encode: Callable[[bytes], bytes]
) -> None:
    body = encode(wire_bytes.completion("hello"))
    async with (
        saying(body, headers=[("Content-Encoding", coding)]).running() as upstream,
        fronted(upstream.url) as url,
    ):
        answer, got = await ask(url, path, body=BODY, headers=[("Accept-Encoding", coding)])
    assert (got, answer.header("content-encoding")) == (body, coding)
    assert answer.header("content-length") == str(len(body))


async def test_an_encoded_stream_is_relayed_as_bytes() -> None:
    body = gzip.compress(b"".join(wire_bytes.sse("hello")))
    head = wire_bytes.stream_head()[:-2] + b"Content-Encoding: gzip\r\n\r\n"
    steps = [Send(head), Send(wire_bytes.chunk(body)), Send(wire_bytes.LAST_CHUNK)]
    async with playing(lambda _: steps).running() as upstream, fronted(upstream.url) as url:
        _, got = await ask(url, CHAT, body=STREAMED)
    assert got == body


@BOTH
@pytest.mark.parametrize("code", [301, 302, 307, 308])
async def test_a_redirect_is_relayed_and_not_followed(path: str, code: int) -> None:
    headers = [("Location", "/elsewhere")]
    async with (
        saying(b"", status=f"{code} Moved", headers=headers).running() as upstream,
        fronted(upstream.url) as url,
    ):
        answer, _ = await ask(url, path, body=BODY)
    assert (answer.status, answer.header("location")) == (code, "/elsewhere")
    assert "/elsewhere" not in [r.path for r in upstream.requests]


async def test_cookies_are_not_kept_between_clients() -> None:
    async with (
        saying(headers=[("Set-Cookie", "session=1; Path=/")]).running() as upstream,
        fronted(upstream.url) as url,
    ):
        await ask(url, OTHER, body=BODY)
        await ask(url, OTHER, body=BODY)
    assert [r.header("cookie") for r in upstream.requests] == [None, None]


@BOTH
@pytest.mark.parametrize("status", ["204 No Content", "304 Not Modified"])
@pytest.mark.parametrize("length", [None, "12"])
async def test_an_answer_without_a_body_ends(path: str, status: str, length: str | None) -> None:
    head = f"HTTP/1.1 {status}\r\nETag: x\r\n" + (f"Content-Length: {length}\r\n" if length else "") + "\r\n"
    async with playing(lambda _: [Send(head.encode())]).running() as upstream, fronted(upstream.url) as url:
        host, _, port = url.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        # The second one shows that nothing was left of the first.
        for _ in range(2):
            writer.write(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{{}}".encode())
            got = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            assert got.startswith(f"http/1.1 {status[:3]} ") and "etag: x\r\n" in got
            assert "content-length" not in got, "it frames nothing there"
        writer.close()


async def test_many_requests_on_one_connection() -> None:
    async with saying(b"there").running() as upstream, fronted(upstream.url) as url:
        host, _, port = url.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        for path in (CHAT, OTHER, CHAT, "/v1/files"):
            writer.write(
                f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(BODY)}\r\n\r\n".encode()
            )
            writer.write(BODY)
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200") and await reader.readexactly(5) == b"there"
        writer.close()
    assert [r.body for r in upstream.requests if r.path != "/props"].count(BODY) >= 4
