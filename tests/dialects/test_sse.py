"""Events are the same wherever their bytes are cut."""

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from proxy.dialects.sse import MAX_EVENT_BYTES, Event, Events, last_data, last_events, split_first


def read(*chunks: bytes) -> list[Event]:
    """All events of a stream that comes in these chunks."""
    reader = Events()
    return [event for chunk in chunks for event in reader.feed(chunk)] + reader.end()


LINE = st.sampled_from(
    [
        b"data: x",
        b"data:y",
        b"data: ",
        b"data",
        b"event: e",
        b"id: 1",
        b": ping",
        b":",
        b"",
        b"error: {}",
        "data: 北京".encode(),
    ]
)
END = st.sampled_from([b"\n", b"\r\n", b"\r"])
STREAM = st.lists(st.tuples(LINE, END), max_size=12).map(lambda pairs: b"".join(a + b for a, b in pairs))


@example(b"data: x\r\ndata: y\n\n", [8, 8])
@given(STREAM | st.binary(max_size=40), st.lists(st.integers(0, 120), max_size=8))
def test_any_cut_gives_the_same_events(stream: bytes, cuts: list[int]) -> None:
    places = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    chunks = [stream[a:b] for a, b in pairwise(places)]
    assert read(*chunks) == read(stream)


@given(STREAM)
def test_byte_by_byte_gives_the_same_events(stream: bytes) -> None:
    assert read(*(stream[i : i + 1] for i in range(len(stream)))) == read(stream)


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        pytest.param(b"data: a\n\n", [Event(b"", b"a")], id="LF"),
        pytest.param(b"data: a\r\n\r\n", [Event(b"", b"a")], id="CRLF"),
        pytest.param(b"data: a\r\r", [Event(b"", b"a")], id="CR"),
        pytest.param(b"data:a\n\n", [Event(b"", b"a")], id="without the space"),
        pytest.param(b"data:  a\n\n", [Event(b"", b" a")], id="only one space goes"),
        pytest.param(b"data: a\ndata: b\n\n", [Event(b"", b"a\nb")], id="several lines"),
        pytest.param(b"event: e\ndata: a\n\n", [Event(b"e", b"a")], id="a name"),
        pytest.param(b":\n\n: ping\n\ndata: a\n\n", [Event(b"", b"a")], id="comments"),
        pytest.param(b"data: [DONE]", [Event(b"", b"[DONE]")], id="the end without a blank line"),
        pytest.param(b'error: {"code":400}\n\n', [Event(b"error", b'{"code":400}')], id="an error field"),
        pytest.param(b"id: 7\nretry: 1\n\n", [], id="fields that are no event"),
        pytest.param(b"data: a:b: c\n\n", [Event(b"", b"a:b: c")], id="colons in the data"),
        pytest.param(b"", [], id="nothing"),
    ],
)
def test_events(stream: bytes, expected: list[Event]) -> None:
    assert read(stream) == expected


@pytest.mark.parametrize(
    ("stream", "inside"),
    [
        pytest.param(b"", False, id="nothing"),
        pytest.param(b":\n\n", False, id="a comment"),
        pytest.param(b": half of a com", False, id="half of a comment"),
        pytest.param(b"da", True, id="half of a field"),
        pytest.param(b"data: a\n", True, id="an event without its blank line"),
        pytest.param(b"data: a\n\n", False, id="a whole event"),
        pytest.param(b"event: e\n", True, id="a name alone"),
    ],
)
def test_whether_an_event_has_begun(stream: bytes, inside: bool) -> None:
    reader = Events()
    reader.feed(stream)
    assert reader.is_in_event is inside


def test_an_event_without_end_is_not_kept() -> None:
    reader = Events()
    piece = b"data: " + b"x" * (1024 * 1024)
    for _ in range(2 * MAX_EVENT_BYTES // len(piece)):
        reader.feed(piece)
    assert reader.feed(b"\n\ndata: a\n\n")[-1] == Event(b"", b"a")


def test_lines_without_end_are_not_kept() -> None:
    reader = Events()
    line = b"data: " + b"x" * 100_000 + b"\n"
    for _ in range(2 * MAX_EVENT_BYTES // len(line)):
        assert reader.feed(line) == []
    assert sum(len(event.data) for event in reader.feed(b"\n")) <= MAX_EVENT_BYTES
    assert reader.feed(b"data: a\n\n") == [Event(b"", b"a")]


@pytest.mark.parametrize(
    ("tail", "expected"),
    [
        pytest.param(b'x":1}\n\ndata: a\n\ndata: [DONE]\n\n', [b"a"], id="begins in the middle of an event"),
        pytest.param(b"data: a\n\ndata: b", [b"a", b"b"], id="ends without a blank line"),
        pytest.param(b"", [], id="nothing"),
        pytest.param(b"\xff\xfe", [], id="no text"),
    ],
)
def test_last_data(tail: bytes, expected: list[bytes]) -> None:
    assert last_data(tail) == expected


@given(STREAM | st.binary(max_size=40))
def test_a_stream_is_split_after_its_first_blank_line(stream: bytes) -> None:
    first, rest = split_first(stream)
    assert first + rest == stream
    assert len(read(first)) <= 1
    assert first or len(read(stream)) <= 1


def test_a_long_line_in_small_pieces_is_searched_once() -> None:
    """Where each piece has the whole line searched again, this takes minutes."""
    reader = Events()
    line = b"data: " + b"x" * 3_000_000
    found = [event for at in range(0, len(line), 100) for event in reader.feed(line[at : at + 100])]
    assert found == []
    assert reader.is_in_event
    assert [len(event.data) for event in reader.feed(b"\n\n")] == [3_000_000]


def test_a_line_that_never_ends_is_not_kept() -> None:
    reader = Events()
    for _ in range(2 * MAX_EVENT_BYTES // 65536):
        assert reader.feed(b"x" * 65536) == []
    assert reader.feed(b"\ndata: 1\n\n") == [Event(b"", b"1")]


PARTS = [
    "data: a",
    "data: bb",
    "event: e",
    ": comment",
    "data: [DONE]",
    "data:",
    "id: 1",
    "\n",
    "\r\n",
    "\r",
    "\n\n",
]


@given(st.lists(st.sampled_from(PARTS), max_size=80), st.integers(1, 4))
def test_the_last_events_are_those_of_the_whole_stream(parts: list[str], most: int) -> None:
    stream = "".join(parts).encode()
    reader = Events()
    datas = [event.data for event in (*reader.feed(stream), *reader.end())]
    assert last_data(stream, most) == [data for data in datas if data and data != b"[DONE]"][-most:]


def test_of_a_long_stream_only_the_end_is_read() -> None:
    stream = b"data: some text\n\n" * 2000 + b"data: [DONE]\n\n"
    assert len(last_data(stream)) == 8
    assert len(last_events(stream, 10)) < 200
