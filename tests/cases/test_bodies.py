"""Bodies that are compressed, cut into chunks, huge, or hold half a character."""

import gzip
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import brotli
import pytest
import zstandard

from proxy.config import ServerConfig, StoreConfig
from tests.cases.table import case
from tests.support import wire_bytes
from tests.support.formats import FORMATS, Format
from tests.support.fronted import CHAT, OTHER, fronted, playing, sample, sent
from tests.support.proxied import proxied
from tests.support.raw_client import RawRequest, ask
from tests.support.raw_upstream import RawUpstream, Send
from tests.support.talks import Messages, body, call, noting_upstream, until_compacted

EACH_FORMAT = pytest.mark.parametrize("wire_format", FORMATS, ids=lambda f: f.name)
GO = b'{"messages":[{"role":"user","content":"go"}],"input":"go","max_tokens":9}'
GOOD = "The agent read the pages one after the other."
Encode = Callable[[bytes], bytes]


def echoing() -> RawUpstream:
    return playing(lambda r: [Send(wire_bytes.response(r.body, content_type="x/echo"))])


def long_body() -> dict[str, Any]:
    """One that fits in 4096 and is to be compacted."""
    messages: Messages = [{"role": "user", "content": "Read the pages."}]
    for number in range(9):
        call(messages, "read", {"path": f"{number}.txt"}, "the value of this row was read\n" * 40)
    return {"messages": messages, "model": "m"}


# Half a character


async def test_r34_half_a_surrogate_pair_survives_counting_notes_and_store(tmp_path: Path) -> None:
    store = StoreConfig(kind="sqlite", path=str(tmp_path / "store.sqlite3"))
    upstream = noting_upstream(GOOD)
    messages: Messages = [{"role": "user", "content": "x \ud83d y"}]
    call(messages, "say", {"text": "\udc8d"}, "half \ud83d of it")
    async with upstream.running():
        async with proxied(upstream, store=store) as proxy:
            first = await proxy.send(json.dumps(body(messages)).encode())
            walk = await until_compacted(proxy, messages)
        async with proxied(upstream, store=store) as proxy:
            again = await proxy.send(json.dumps(body(messages)).encode())
            _, page = await ask(proxy.url, "/metrics", method="GET")
    assert first.view == first.body
    assert (walk.status, again.status, again.outcome) == (200, 200, "reused")
    assert b"x \\ud83d y" in again.view
    assert b"context_faults_total 0.0" in page and b"store_errors_total 0.0" in page


@EACH_FORMAT
async def test_r34_half_a_surrogate_pair_goes_through_as_it_is_escaped(wire_format: Format) -> None:
    raw = GO.replace(b'"go"', b'"x \\ud83d y"')
    async with echoing().running() as upstream, fronted(upstream.url, context={"window": 8192}) as url:
        answer, echo = await ask(url, wire_format.path, body=raw)
        assert await sample(url, "context_faults_total") == 0
    assert (answer.status, echo) == (200, raw)


# Compressed

CODINGS = [
    case("R36", "gzip", "gzip", gzip.compress),
    case("R36", "deflate", "deflate", zlib.compress),
    case("R36", "br", "br", brotli.compress),
    case("R36", "zstd", "zstd", zstandard.compress),
    case(
        "R37",
        "two codings are undone in reverse order",
        "gzip, br",
        lambda b: brotli.compress(gzip.compress(b)),
    ),
    case("R37", "a small frame that shows its text", "zstd", zstandard.ZstdCompressor(level=1).compress),
]


@pytest.mark.parametrize(("coding", "encode"), CODINGS)
async def test_a_compressed_body_is_compacted_and_sent_plain(coding: str, encode: Encode) -> None:
    upstream = noting_upstream(GOOD)
    async with upstream.running(), proxied(upstream) as proxy:
        headers = (("Content-Encoding", coding),)
        walk = await proxy.send(encode(json.dumps(long_body()).encode()), headers=headers)
    assert (walk.status, walk.outcome) == (200, "compacted")
    for request in (*walk.turns, *walk.notes):
        assert request.header("content-encoding") is None
        assert request.header("content-length") == str(len(request.body))
        assert request.json["messages"]


@pytest.mark.parametrize(("coding", "encode"), CODINGS)
@EACH_FORMAT
async def test_a_compressed_body_that_fits_can_be_read_by_any_server(
    wire_format: Format, coding: str, encode: Encode
) -> None:
    """Few model servers undo a coding."""
    async with echoing().running() as upstream, fronted(upstream.url, context={"window": 8192}) as url:
        answer, echo = await ask(
            url, wire_format.path, body=encode(GO), headers=[("Content-Encoding", coding)]
        )
    assert (answer.status, echo) == (200, GO)
    assert sent(upstream).header("content-encoding") is None


@pytest.mark.parametrize(("coding", "encode"), CODINGS)
async def test_a_compressed_question_for_the_size_can_be_read_by_any_server(
    coding: str, encode: Encode
) -> None:
    path = "/v1/messages/count_tokens"
    script = playing(lambda r: [Send(wire_bytes.response(b'{"input_tokens":9}'))])
    async with script.running() as upstream, fronted(upstream.url) as url:
        answer, _ = await ask(url, path, body=encode(GO), headers=[("Content-Encoding", coding)])
    assert (answer.status, sent(upstream).body) == (200, GO)
    assert sent(upstream).header("content-encoding") is None


@pytest.mark.parametrize(
    ("coding", "raw", "status"),
    [
        case("R36", "a coding that nobody knows goes through untouched", "x-new", b"\x01\x02", 200),
        case("R36", "a body that is not what it says is refused", "zstd", b"\x28\xb5\x2f\xfdnonsense", 400),
        case("R37", "the header decides and not the first bytes", "gzip", GO, 400),
        case("R37", "nor are bytes taken for a coding that no header names", "", zstandard.compress(GO), 200),
    ],
)
@EACH_FORMAT
async def test_the_header_decides(wire_format: Format, coding: str, raw: bytes, status: int) -> None:
    headers = [("Content-Encoding", coding)] if coding else []
    async with (
        echoing().running() as upstream,
        fronted(upstream.url, server={"max_body_bytes": 1_000_000}) as url,
    ):
        answer, got = await ask(url, wire_format.path, body=raw, headers=headers)
    assert answer.status == status
    if status == 200:
        assert (got, sent(upstream).header("content-encoding")) == (raw, coding or None)
    else:
        assert json.loads(got)["error"]["message"]
        assert not [r for r in upstream.requests if r.is_chat]


@pytest.mark.parametrize(
    ("coding", "encode"),
    [
        case("R37", "a bomb", "gzip", gzip.compress),
        case("R37", "a bomb folded twice", "gzip, zstd", lambda b: zstandard.compress(gzip.compress(b))),
    ],
)
@EACH_FORMAT
async def test_what_grows_without_bound_is_never_unpacked(
    wire_format: Format, coding: str, encode: Encode
) -> None:
    """What it grows to is counted while it is undone, and undoing ends there."""
    bomb = encode(b" " * 3_000_000)
    async with (
        echoing().running() as upstream,
        fronted(upstream.url, server={"max_body_bytes": 1_000_000}) as url,
    ):
        answer, got = await ask(url, wire_format.path, body=bomb, headers=[("Content-Encoding", coding)])
    error = json.loads(got)["error"]
    assert (answer.status, "max_body_bytes" in error["message"]) == (413, True)
    assert not [r for r in upstream.requests if r.path == wire_format.path]


# In chunks


@EACH_FORMAT
@pytest.mark.parametrize("expects", [False, True], ids=["at once", "after 100 Continue"])
async def test_r43_a_body_in_chunks_goes_up_with_its_length(wire_format: Format, expects: bool) -> None:
    framed = b"".join(wire_bytes.chunk(piece) for piece in (GO[:9], GO[9:])) + wire_bytes.LAST_CHUNK
    headers = [("Transfer-Encoding", "chunked"), *([("Expect", "100-continue")] if expects else [])]
    async with (
        echoing().running() as upstream,
        fronted(upstream.url) as url,
        RawRequest(url, wire_format.path, body=framed, headers=headers) as request,
    ):
        answer = await request.answer()
        if expects:
            assert answer.status == 100
            answer = await request.answer()
        assert (answer.status, await answer.read()) == (200, GO)
    assert sent(upstream).header("content-length") == str(len(GO))
    assert sent(upstream).header("transfer-encoding") is sent(upstream).header("expect") is None


# Huge


@pytest.mark.parametrize("path", [*(f.path for f in FORMATS), OTHER])
async def test_r44_the_limit_is_counted_while_chunks_come(path: str) -> None:
    assert ServerConfig().max_body_bytes >= 64 * 1024 * 1024
    framed = wire_bytes.chunk(b" " * 50_000) * 3 + wire_bytes.LAST_CHUNK
    async with (
        echoing().running() as upstream,
        fronted(upstream.url, server={"max_body_bytes": 100_000}) as url,
    ):
        answer, got = await ask(url, path, body=framed, headers=[("Transfer-Encoding", "chunked")])
    error = json.loads(got)["error"]
    assert (answer.status, "100000 bytes" in error["message"]) == (413, True)
    assert "max_body_bytes" in error["message"]
    assert not [r for r in upstream.requests if r.path == CHAT]


async def test_r46_seventeen_megabytes_are_accepted() -> None:
    raw = b'{"messages":[{"role":"user","content":"' + b"x " * 8_700_000 + b'"}]}'
    async with echoing().running() as upstream, fronted(upstream.url) as url:
        answer, echo = await ask(url, CHAT, body=raw)
    assert (answer.status, echo == raw) == (200, True)
