"""
Write answers byte by byte: whole ones, and every broken one that the fault tests play.

A function returns bytes, or steps for `RawUpstream`. Where a fault lies in the place of
the break, the bytes before it are good.
"""

import json
import socket
from collections.abc import Iterable, Mapping
from typing import Any

from tests.support.answers import Answer, Numbers, events, whole
from tests.support.raw_upstream import Close, Reset, Send, Stall, Step

_NUMBERS = Numbers(prompt=100, cached=0, completion=10, has_timings=True)


def response(
    body: bytes,
    *,
    status: str = "200 OK",
    content_type: str = "application/json",
    headers: Iterable[tuple[str, str]] = (),
    length: int | None = None,
) -> bytes:
    """An answer with a Content-Length: the right one, or *length*."""
    lines = [f"HTTP/1.1 {status}", f"Content-Type: {content_type}"]
    lines += [f"Content-Length: {len(body) if length is None else length}"]
    lines += [f"{name}: {value}" for name, value in headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + body


def completion(text: str, **answer: Any) -> bytes:
    """The JSON of a good chat completion; *answer* as for `Answer`."""
    return json.dumps(whole(Answer(text=text, **answer), _NUMBERS, model="scripted", number=1)).encode()


def stream_head(content_type: str = "text/event-stream") -> bytes:
    """Status and headers of a stream in transfer chunks."""
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head.encode("latin-1")


def chunk(data: bytes) -> bytes:
    """One transfer chunk."""
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


LAST_CHUNK = b"0\r\n\r\n"


def sse(text: str, *, include_usage: bool = True, **answer: Any) -> list[bytes]:
    """The events of a good chat stream, each with its blank line, [DONE] last; *answer* as for `Answer`."""
    said = Answer(text=text, **answer)
    return list(events(said, _NUMBERS, model="scripted", number=1, include_usage=include_usage))


def stream(pieces: Iterable[bytes]) -> list[Step]:
    """A whole stream, each piece a transfer chunk and a send of its own."""
    return [Send(stream_head()), *(Send(chunk(piece)) for piece in pieces), Send(LAST_CHUNK)]


def without_done(pieces: list[bytes]) -> list[bytes]:
    """The events without the last one."""
    return pieces[:-1]


def at_every_byte(pieces: list[bytes]) -> list[bytes]:
    """The same bytes, one a piece."""
    return [bytes([byte]) for byte in b"".join(pieces)]


def with_crlf(pieces: list[bytes]) -> list[bytes]:
    """Lines end in CR LF."""
    return [piece.replace(b"\n", b"\r\n") for piece in pieces]


def without_space(pieces: list[bytes]) -> list[bytes]:
    """`data:` without the blank after it."""
    return [piece.replace(b"data: ", b"data:", 1) for piece in pieces]


def with_comments(pieces: list[bytes]) -> list[bytes]:
    """A comment before every event, and llama.cpp's bare colon."""
    return [b": ping\n\n", *(part for piece in pieces for part in (b":\n\n", piece))]


def two_in_one(pieces: list[bytes]) -> list[bytes]:
    """Two events in each piece."""
    return [b"".join(pieces[i : i + 2]) for i in range(0, len(pieces), 2)]


def in_one_piece(pieces: list[bytes]) -> list[bytes]:
    """All events in one piece."""
    return [b"".join(pieces)]


def sse_error(error: Mapping[str, Any]) -> list[bytes]:
    """A stream that has an error object as its only event."""
    return [b"data: " + json.dumps({"error": dict(error)}).encode() + b"\n\n"]


def status(code: int, *, retry_after: str | None = None) -> bytes:
    """A refusal with an OpenAI error object that names its own status."""
    reasons = {
        401: "Unauthorized",
        404: "Not Found",
        408: "Request Timeout",
        413: "Payload Too Large",
        429: "Too Many Requests",
        500: "Internal Server Error",
        503: "Service Unavailable",
    }
    reason = reasons.get(code, "Refused")
    error = {"message": f"{reason} (scripted)", "type": "scripted", "code": code}
    body = json.dumps({"error": error}).encode()
    headers = [("Retry-After", retry_after)] if retry_after is not None else []
    return response(body, status=f"{code} {reason}", headers=headers)


def html(code: int = 200) -> bytes:
    """What a web server in front of nothing says."""
    page = b"<!doctype html><html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>"
    return response(page, status=f"{code} OK", content_type="text/html")


def truncated_json(text: str = "Half of an answer") -> bytes:
    """A good length, and JSON that stops in its middle."""
    body = completion(text)
    return response(body[: len(body) // 2])


def reset_before_headers() -> list[Step]:
    """The connection is reset when the request is there."""
    return [Reset()]


def closed_before_headers() -> list[Step]:
    """The connection ends without a word when the request is there."""
    return [Close()]


def reset_in_body(text: str = "Half of an answer") -> list[Step]:
    """Headers and half of the body, then a reset."""
    data = response(completion(text))
    return [Send(data[: len(data) - 60]), Reset()]


def reset_in_stream(text: str = "Half of an answer, as events", after: int = 3) -> list[Step]:
    """*after* events, then a reset."""
    return [*stream(sse(text))[: after + 1], Reset()]


def closed_in_stream(text: str = "Half of an answer, as events", after: int = 3) -> list[Step]:
    """*after* events, then the connection ends without the last transfer chunk."""
    return [*stream(sse(text))[: after + 1], Close()]


def length_too_long(text: str = "An answer") -> list[Step]:
    """Content-Length says ten bytes more than come."""
    body = completion(text)
    return [Send(response(body, length=len(body) + 10)), Close()]


def length_too_short(text: str = "An answer") -> list[Step]:
    """Content-Length says ten bytes fewer than come."""
    body = completion(text)
    return [Send(response(body, length=len(body) - 10)), Close()]


def stall_before_headers() -> list[Step]:
    """Nothing ever comes."""
    return [Stall()]


def stall_in_body(text: str = "Half of an answer") -> list[Step]:
    """Headers and half of the body, then nothing."""
    data = response(completion(text))
    return [Send(data[: len(data) - 60]), Stall()]


def stall_in_stream(text: str = "Half of an answer, as events", after: int = 3) -> list[Step]:
    """*after* events, then nothing."""
    return [*stream(sse(text))[: after + 1], Stall()]


def closed_port() -> str:
    """A base URL where connecting is refused (the port was free a moment ago)."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
    return f"http://127.0.0.1:{port}"
