"""The first event of a stream that has data says whether the prompt was too long, and no later one."""

from collections.abc import AsyncIterator

import pytest

from proxy.exchange_beginning import read_beginning

OVERFLOW = (
    b'data: {"error":{"code":400,"message":"request (9000 tokens) exceeds the available context size '
    b'(4096 tokens), try increasing it","type":"exceed_context_size_error","n_prompt_tokens":9000,'
    b'"n_ctx":4096}}'
)
SAID = b'data: {"choices":[{"delta":{"content":"Hello"}}]}'


class Answer:
    """As much of an upstream's answer as is looked at."""

    status = 200

    def __init__(self, *pieces: bytes) -> None:
        self.pieces = pieces

    def header(self, name: str) -> str:
        return "text/event-stream" if name == "content-type" else ""

    async def chunks(self) -> AsyncIterator[bytes]:
        for piece in self.pieces:
            yield piece


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"], ids=["LF", "CRLF", "CR"])
@pytest.mark.parametrize(
    ("lines", "is_overflow"),
    [
        pytest.param([OVERFLOW, SAID], True, id="the first event"),
        pytest.param([b": waiting", b"event: ping", OVERFLOW, SAID], True, id="behind one without data"),
        pytest.param([b": waiting", OVERFLOW], True, id="behind a comment"),
        pytest.param([SAID, OVERFLOW], False, id="a later event"),
        pytest.param([b"event: ping", SAID, OVERFLOW], False, id="later, behind one without data"),
    ],
)
@pytest.mark.parametrize("cut_bytes", [1, 7, 10_000], ids=["byte by byte", "small pieces", "one piece"])
async def test_the_first_event_with_data_decides(
    lines: list[bytes], end: bytes, is_overflow: bool, cut_bytes: int
) -> None:
    stream = b"".join(line + 2 * end for line in lines) + SAID + 2 * end
    pieces = [stream[at : at + cut_bytes] for at in range(0, len(stream), cut_bytes)]
    beginning = await read_beginning(Answer(*pieces), None)  # type: ignore[arg-type]  # it asks no more of it
    assert (beginning.overflow is not None) is is_overflow
    assert b"".join(beginning.held) + b"".join([piece async for piece in beginning.rest]) == stream
