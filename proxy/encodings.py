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
# What a decoder has not used yet it hands back as a copy: of little, so that the work grows
# with the body and not with its square.
_INPUT = 16 * 1024
# Four bytes may stand for a block of 128 KiB, and zstd does not stop within a piece of input.
_ZSTD_INPUT = 256
# Members of a gzip body, or frames of a zstd body; parallel compressors make one a mebibyte.
_MOST_PARTS = 1024
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
        BodyTooLarge: If it becomes larger than *limit* bytes, or comes in too many parts.
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
                    raise BodyTooLarge(
                        f"the body is over {limit} bytes once its {coding} is undone; send less, or raise "
                        "`server.max_body_bytes` of the proxy if it is meant to be"
                    )
                out.append(piece)
        except (zlib.error, brotli.error, zstandard.ZstdError, EOFError) as error:
            raise BadEncoding(f"content-encoding: the body is no valid {coding} ({error})") from error
        body = b"".join(out)
    return body


def _slices(body: bytes, size: int) -> Iterator[bytes]:
    return (body[start : start + size] for start in range(0, len(body), size))


def _zlib(body: bytes, wbits: int) -> Iterator[bytes]:
    decoder = zlib.decompressobj(wbits)
    members = 1
    for piece in _slices(body, _INPUT):
        rest = piece
        while rest:
            if decoder.eof:
                # A gzip body may have several members.
                members = _counted(members)
                decoder = zlib.decompressobj(wbits)
            yield decoder.decompress(rest, _PIECE)
            rest = decoder.unused_data if decoder.eof else decoder.unconsumed_tail
    yield decoder.flush()
    if body and not decoder.eof:
        raise EOFError("it ends too early")


def _gzip(body: bytes) -> Iterator[bytes]:
    return _zlib(body, zlib.MAX_WBITS | 32)


def _deflate(body: bytes) -> Iterator[bytes]:
    # Some clients send raw deflate, without the zlib frame that the name stands for.
    framed = len(body) > 1 and body[0] & 0x0F == 8 and (body[0] * 256 + body[1]) % 31 == 0
    return _zlib(body, zlib.MAX_WBITS if framed else -zlib.MAX_WBITS)


def _brotli(body: bytes) -> Iterator[bytes]:
    decoder = brotli.Decompressor()
    for piece in _slices(body, _INPUT):
        out = bytes(decoder.process(piece, output_buffer_limit=_PIECE))
        while out or not decoder.can_accept_more_data():
            yield out
            out = bytes(decoder.process(b"", output_buffer_limit=_PIECE))
    if body and not decoder.is_finished():
        raise EOFError("it ends too early")


def _zstd(body: bytes) -> Iterator[bytes]:
    decoder = zstandard.ZstdDecompressor().decompressobj()
    frames = 1
    for piece in _slices(body, _ZSTD_INPUT):
        rest = piece
        while rest:
            if decoder.eof:
                frames = _counted(frames)
                decoder = zstandard.ZstdDecompressor().decompressobj()
            yield decoder.decompress(rest)
            rest = decoder.unused_data if decoder.eof else b""
    if body and not decoder.eof:
        raise EOFError("it ends too early")


def _counted(parts: int) -> int:
    """One part more. Each costs a decoder, however small it is."""
    if parts >= _MOST_PARTS:
        raise BodyTooLarge(f"the body has more than {_MOST_PARTS} compressed parts")
    return parts + 1


_DECODERS: dict[str, Callable[[bytes], Iterator[bytes]]] = {
    "gzip": _gzip,
    "x-gzip": _gzip,
    "deflate": _deflate,
    "br": _brotli,
    "zstd": _zstd,
}
