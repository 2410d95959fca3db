"""
Undo a body's Content-Encoding, within a limit.

What is decoded is decided by the header, never by looking at the bytes; several codings
are undone in reverse order.
"""

import zlib
from collections.abc import Callable, Iterator

import brotli
import zstandard

from proxy.errors import BadEncoding, BodyTooLarge

# Output is taken in pieces of this size, so that a small body that becomes huge is
# noticed before it is in memory.
_PIECE = 256 * 1024
_ZSTD_INPUT = 1024
# A coding upon a coding upon a coding has no honest use.
_MOST_CODINGS = 3


def codings(header: str) -> tuple[str, ...]:
    """The codings that a Content-Encoding names, in the order in which they were applied."""
    named = (part.strip().lower() for part in header.split(","))
    return tuple(coding for coding in named if coding not in ("", "identity"))


def is_known(header: str) -> bool:
    """Whether `decoded` can undo every coding that the header names."""
    named = codings(header)
    return len(named) <= _MOST_CODINGS and all(coding in _DECODERS for coding in named)


def decoded(body: bytes, header: str, limit: int) -> bytes:
    """
    The body without its codings.

    Raises:
        BadEncoding: If it does not decode, or a coding is not known.
        BodyTooLarge: If it becomes larger than *limit* bytes.
    """
    for coding in reversed(codings(header)):
        pieces = _DECODERS.get(coding)
        if pieces is None:
            raise BadEncoding(
                f"content-encoding: {coding[:40]!r} is not known; use gzip, deflate, br or zstd"
            )
        out: list[bytes] = []
        size = 0
        try:
            for piece in pieces(body):
                size += len(piece)
                if size > limit:
                    raise BodyTooLarge(f"the body is over {limit} bytes once its {coding} is undone")
                out.append(piece)
        except (zlib.error, brotli.error, zstandard.ZstdError, EOFError) as error:
            raise BadEncoding(f"content-encoding: the body is no valid {coding} ({error})") from error
        body = b"".join(out)
    return body


def _zlib(body: bytes, wbits: int) -> Iterator[bytes]:
    rest = body
    while rest:
        decoder = zlib.decompressobj(wbits)
        while rest and not decoder.eof:
            yield decoder.decompress(rest, _PIECE)
            rest = decoder.unconsumed_tail
        yield decoder.flush()
        if not decoder.eof:
            raise EOFError("it ends too early")
        # A gzip body may have several members.
        rest = decoder.unused_data


def _gzip(body: bytes) -> Iterator[bytes]:
    return _zlib(body, zlib.MAX_WBITS | 32)


def _deflate(body: bytes) -> Iterator[bytes]:
    # Some clients send raw deflate, without the zlib frame that the name stands for.
    framed = len(body) > 1 and body[0] & 0x0F == 8 and (body[0] * 256 + body[1]) % 31 == 0
    return _zlib(body, zlib.MAX_WBITS if framed else -zlib.MAX_WBITS)


def _brotli(body: bytes) -> Iterator[bytes]:
    decoder = brotli.Decompressor()
    piece = bytes(decoder.process(body, output_buffer_limit=_PIECE))
    while piece or not decoder.can_accept_more_data():
        yield piece
        piece = bytes(decoder.process(b"", output_buffer_limit=_PIECE))
    if body and not decoder.is_finished():
        raise EOFError("it ends too early")


def _zstd(body: bytes) -> Iterator[bytes]:
    rest = body
    while rest:
        decoder = zstandard.ZstdDecompressor().decompressobj()
        # A few bytes may stand for a block of 128 KiB: little goes in at a time.
        for start in range(0, len(rest), _ZSTD_INPUT):
            yield decoder.decompress(rest[start : start + _ZSTD_INPUT])
            if decoder.eof:
                rest = decoder.unused_data + rest[start + _ZSTD_INPUT :]
                break
        else:
            raise EOFError("it ends too early")


_DECODERS: dict[str, Callable[[bytes], Iterator[bytes]]] = {
    "gzip": _gzip,
    "x-gzip": _gzip,
    "deflate": _deflate,
    "br": _brotli,
    "zstd": _zstd,
}
