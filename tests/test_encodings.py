"""A body's codings are undone by its header, within a limit, or it is refused."""

import contextlib
import gzip
import json
import random
import tracemalloc
import zlib
from collections.abc import Callable

import brotli
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.encodings import codings, decoded, is_known
from proxy.errors import BadEncoding, BodyTooLarge
from tests.support.fronted import BODY, CHAT, fronted, sample, saying, sent
from tests.support.raw_client import ask
from tests.support.scripted import ScriptedUpstream


def raw_deflate(body: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(body) + packer.flush()


def zstd_without_size(body: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_content_size=False).compress(body)


CODERS: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "gzip": ("gzip", gzip.compress),
    "x-gzip": ("x-gzip", gzip.compress),
    "gzip in two members": ("gzip", lambda body: gzip.compress(body[:9]) + gzip.compress(body[9:])),
    "deflate": ("deflate", zlib.compress),
    "deflate without its frame": ("deflate", raw_deflate),
    "br": ("br", brotli.compress),
    "zstd": ("zstd", zstandard.compress),
    "zstd without a size": ("zstd", zstd_without_size),
    "zstd in two frames": ("zstd", lambda body: zstandard.compress(body[:9]) + zstandard.compress(body[9:])),
    "upper case": ("GZIP", gzip.compress),
    "two codings": ("gzip, br", lambda body: brotli.compress(gzip.compress(body))),
    "identity": ("identity", bytes),
}
EACH = pytest.mark.parametrize(
    ("header", "encode"), [pytest.param(*c, id=name) for name, c in CODERS.items()]
)
REAL = pytest.mark.parametrize(
    ("header", "encode"), [pytest.param(*CODERS[name], id=name) for name in CODERS if name != "identity"]
)


@EACH
@settings(max_examples=20, deadline=None)
@given(body=st.binary(max_size=2000))
def test_round_trip(header: str, encode: Callable[[bytes], bytes], body: bytes) -> None:
    assert decoded(encode(body), header, 2000) == body


@REAL
def test_one_byte_over_the_limit_is_too_large(header: str, encode: Callable[[bytes], bytes]) -> None:
    body = encode(b"x" * 100_001)
    assert len(decoded(body, header, 100_001)) == 100_001
    with pytest.raises(BodyTooLarge, match=r"over 100000 bytes once its (\S+) is undone"):
        decoded(body, header, 100_000)


@REAL
def test_half_of_a_body_is_refused(header: str, encode: Callable[[bytes], bytes]) -> None:
    body = encode(json.dumps(list(range(5000))).encode())
    with pytest.raises(BadEncoding, match=r"content-encoding: the body is no valid \S+ \("):
        decoded(body[: len(body) - 5], header, 10**6)


@pytest.mark.parametrize("header", ["gzip", "deflate", "br", "zstd"])
@settings(max_examples=50)
@given(body=st.binary(max_size=200))
def test_whatever_comes_either_decodes_or_is_refused(header: str, body: bytes) -> None:
    with contextlib.suppress(BadEncoding, BodyTooLarge):
        assert len(decoded(body, header, 1000)) <= 1000


@pytest.mark.parametrize(
    ("header", "named", "known"),
    [
        ("", (), True),
        ("identity", (), True),
        (" gzip ,, BR", ("gzip", "br"), True),
        ("compress", ("compress",), False),
        ("gzip, snappy", ("gzip", "snappy"), False),
        ("gzip, gzip, gzip, gzip", ("gzip",) * 4, False),
    ],
)
def test_which_codings_are_known(header: str, named: tuple[str, ...], known: bool) -> None:
    assert (codings(header), is_known(header)) == (named, known)


def test_a_coding_that_is_not_known_is_named() -> None:
    with pytest.raises(BadEncoding, match="'snappy' is not known; use gzip, deflate, br or zstd"):
        decoded(b"", "snappy", 10)


# Through the proxy


@EACH
async def test_an_encoded_request_is_understood_and_goes_on_plain(
    header: str, encode: Callable[[bytes], bytes]
) -> None:
    """Few model servers undo a coding, and none needs one."""
    body = b'{"messages":[{"role":"user","content":"hello"}]}'
    headers = [("Content-Encoding", header), ("Content-Type", "application/json")]
    async with ScriptedUpstream().running() as upstream, fronted(upstream.url) as url:
        answer, _ = await ask(url, CHAT, body=encode(body), headers=headers)
    request = upstream.chats[-1]
    # It was measured, so it was read.
    assert answer.header("x-context-tokens") is not None
    assert (request.body, request.header("content-encoding")) == (body, None)


@pytest.mark.parametrize("header", ["snappy", "gzip, snappy", "gzip, gzip, gzip, gzip"])
async def test_a_coding_that_is_not_known_goes_through_untouched(header: str) -> None:
    headers = [("Content-Encoding", header)]
    async with saying().running() as upstream, fronted(upstream.url) as url:
        answer, _ = await ask(url, CHAT, body=BODY, headers=headers)
    assert (answer.status, answer.header("x-compaction")) == (200, "none")
    assert (sent(upstream).body, sent(upstream).header("content-encoding")) == (BODY, header)


@pytest.mark.parametrize("header", ["gzip", "deflate", "br", "zstd"])
async def test_a_body_that_is_not_what_it_says_is_a_400(header: str) -> None:
    async with saying().running() as upstream, fronted(upstream.url) as url:
        answer, raw = await ask(url, CHAT, body=BODY, headers=[("Content-Encoding", header)])
    error = json.loads(raw)["error"]
    assert (answer.status, error["code"]) == (400, "bad_content_encoding")
    assert error["message"].startswith(f"content-encoding: the body is no valid {header}")
    assert [r for r in upstream.requests if r.path == CHAT] == []


@REAL
async def test_a_bomb_is_refused(header: str, encode: Callable[[bytes], bytes]) -> None:
    body = encode(b" " * 3_000_000)
    async with (
        saying().running() as upstream,
        fronted(upstream.url, server={"max_body_bytes": 1_000_000}) as url,
    ):
        answer, raw = await ask(url, CHAT, body=body, headers=[("Content-Encoding", header)])
    error = json.loads(raw)["error"]
    assert (answer.status, error["code"]) == (413, "body_too_large")
    assert "server.max_body_bytes" in error["message"]
    assert [r for r in upstream.requests if r.path == CHAT] == []


@REAL
async def test_what_is_only_too_large_to_be_looked_into_goes_on_as_it_came(
    header: str, encode: Callable[[bytes], bytes]
) -> None:
    body = encode(b" " * 3_000_000)
    async with (
        saying().running() as upstream,
        fronted(upstream.url, limits={"understood_bytes": 1_000_000}) as url,
    ):
        answer, _ = await ask(url, CHAT, body=body, headers=[("Content-Encoding", header)])
        request = sent(upstream)
        untouched = await sample(url, 'proxy_untouched_requests_total{dialect="chat",reason="too_large"}')
    assert (answer.status, answer.header("x-compaction"), untouched) == (200, "none", 1)
    assert (request.body, request.header("content-encoding")) == (body, header)


# What it takes


@REAL
def test_a_bomb_takes_no_more_memory_than_the_limit(header: str, encode: Callable[[bytes], bytes]) -> None:
    body = encode(b" " * 50_000_000)
    tracemalloc.start()
    with pytest.raises(BodyTooLarge):
        decoded(body, header, 1_000_000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10_000_000


class Counted(bytes):
    """A body that counts how much of it is copied."""

    copied = 0
    largest = 0

    def __getitem__(self, key: object) -> bytes:  # type: ignore[override]
        part = super().__getitem__(key)  # type: ignore[index]
        if isinstance(part, bytes):
            Counted.copied += len(part)
            Counted.largest = max(Counted.largest, len(part))
        return part  # type: ignore[return-value]


@REAL
def test_a_body_is_handed_over_in_small_pieces_once(header: str, encode: Callable[[bytes], bytes]) -> None:
    """What a decoder does not use it gives back as a copy, so the whole must never be in its hands."""
    body = Counted(encode(random.Random(1).randbytes(500_000)))
    Counted.copied = Counted.largest = 0
    decoded(body, header, 1_000_000)
    # Of two codings the second is undone from a body that is not counted.
    assert Counted.copied == len(body)
    assert Counted.largest <= 16 * 1024


@pytest.mark.parametrize(
    ("header", "part"),
    [
        ("gzip", gzip.compress(b"")),
        ("zstd", zstandard.compress(b"")),
        ("zstd", b"\x50\x2a\x4d\x18" + bytes(4)),
    ],
    ids=["gzip members", "zstd frames", "zstd frames to be skipped"],
)
def test_parts_without_end_are_too_many(header: str, part: bytes) -> None:
    with pytest.raises(BodyTooLarge, match="more than 1024 compressed parts"):
        decoded(part * 1025, header, 10**6)


def test_parts_as_parallel_compressors_make_them_are_read() -> None:
    assert decoded(gzip.compress(b"x" * 9) * 1024, "gzip", 10**6) == b"x" * 9 * 1024
