"""What every dialect reads of an answer, and what it says itself: usage, notes, errors, heartbeats."""

import json
from typing import Any

import pytest

from proxy.dialects.base import Piece, Usage
from proxy.dialects.sse import Events, last_data
from proxy.dialects.waiting import ANNOUNCED
from tests.dialects.conversations import formats
from tests.support import answers, answers_messages, answers_responses
from tests.support.answers import Answer, Numbers
from tests.support.formats import FORMATS, Format

NUMBERS = Numbers(prompt=900, cached=800, completion=40, has_timings=False)
KEY = "0123456789abcdef" * 2
# What a tool may be called with: its own usage must not be taken for the answer's.
TRAP = {"usage": {"input_tokens": 5, "output_tokens": 6, "prompt_tokens": 7}}
SAID = Answer(text='He said "usage": {"input_tokens": 1}. ' + "word " * 40)
# As Codex has it: the last event repeats it all.
BODY = {
    "model": "m",
    "instructions": "i" * 60_000,
    "tools": [{"type": "function", "name": "f", "parameters": TRAP}],
}
TAIL = 32 * 1024


def whole(format_: Format, answer: Answer) -> bytes:
    """The answer without a stream."""
    return json.dumps(_written(format_, answer)[0]).encode()


def streamed(format_: Format, answer: Answer) -> bytes:
    """The answer as a stream."""
    return b"".join(_written(format_, answer)[1])


def _written(format_: Format, answer: Answer) -> Any:
    named = {"model": "m", "number": 1}
    if format_.name == "responses":
        return (
            answers_responses.whole(answer, NUMBERS, **named, body=BODY),
            answers_responses.events(answer, NUMBERS, **named, body=BODY),
        )
    if format_.name == "messages":
        return (
            answers_messages.whole(answer, NUMBERS, **named),
            answers_messages.events(answer, NUMBERS, **named),
        )
    return (
        answers.whole(answer, NUMBERS, **named),
        answers.events(answer, NUMBERS, **named, include_usage=True),
    )


def heard(format_: Format, answer: Answer) -> list[Piece]:
    """Every event of the streamed answer, read."""
    return [format_.dialect.read_event(event.data) for event in Events().feed(streamed(format_, answer))]


SEVERAL = [
    pytest.param(SAID, id="a text that speaks of usage"),
    pytest.param(Answer(text="ok"), id="a short text"),
    pytest.param(Answer(text="x" * 90_000), id="a text longer than what is kept"),
    pytest.param(Answer(calls=(("f", TRAP),)), id="a call with a usage of its own"),
]


@formats
@pytest.mark.parametrize("answer", SEVERAL)
def test_usage(format_: Format, answer: Answer) -> None:
    expected = Usage(prompt=900, completion=40, cached=800)
    assert format_.dialect.read_usage(b"", whole(format_, answer), is_stream=False) == expected
    stream = streamed(format_, answer)
    for head in (4 * 1024, len(stream)):
        got = format_.dialect.read_usage(stream[:head], stream[-TAIL:], is_stream=True)
        assert got == expected


@formats
@pytest.mark.parametrize("usage", [{"usage": None}, {"usage": []}, {"usage": {"input_tokens": -1}}, {}, []])
def test_nonsense_is_no_usage(format_: Format, usage: Any) -> None:
    raw = json.dumps(usage).encode()
    assert format_.dialect.read_usage(b"", raw, is_stream=False) is None
    assert format_.dialect.read_usage(raw, raw, is_stream=True) is None
    assert format_.dialect.read_usage(b"", b"[" * 100_000, is_stream=False) is None


def test_the_schema_of_a_tool_after_it_is_not_taken_for_the_usage() -> None:
    usage = '"usage":{"input_tokens":900,"output_tokens":40}'
    tail = f'data: {{"response":{{{usage},"tools":[{{"properties":{{"usage":{{"type":"object"}}}}}}]}}}}\n\n'
    got = FORMATS[1].dialect.read_usage(b"", tail.encode(), is_stream=True)
    assert got == Usage(prompt=900, completion=40, cached=None)


def test_messages_say_the_prompt_first_or_last() -> None:
    start = b'data: {"type":"message_start","message":{"usage":{"input_tokens":7,"output_tokens":1}}}\n\n'
    last = b'data: {"type":"message_delta","usage":{"output_tokens":9}}\n\n'
    both = b'data: {"type":"message_delta","usage":{"input_tokens":8,"output_tokens":9}}\n\n'
    dialect = FORMATS[2].dialect
    said_first = dialect.read_usage(start + last, start + last, is_stream=True)
    assert said_first == Usage(prompt=7, completion=9, cached=None)
    said_last = dialect.read_usage(start + both, both, is_stream=True)
    assert said_last == Usage(prompt=8, completion=9, cached=None)


@formats
def test_notes_are_heard_whole_and_streamed(format_: Format) -> None:
    answer = Answer(text="Notes of a file.", reasoning="Let me see.")
    pieces = heard(format_, answer)
    assert "".join(piece.text for piece in pieces) == "Notes of a file."
    assert any(piece.reasoning for piece in pieces)
    assert [piece.finish for piece in pieces if piece.finish] == ["stop"]
    assert not any(piece.called or piece.error for piece in pieces)
    at_once = format_.dialect.read_whole(whole(format_, answer))
    assert at_once == Piece(text="Notes of a file.", reasoning=True, finish="stop")


@formats
def test_a_call_is_heard(format_: Format) -> None:
    answer = Answer(calls=(("f", {"path": "x"}),))
    assert any(piece.called for piece in heard(format_, answer))
    assert format_.dialect.read_whole(whole(format_, answer)).called


@formats
def test_an_answer_that_was_cut_is_heard(format_: Format) -> None:
    answer = Answer(text="half", finish_reason="length")
    assert [piece.finish for piece in heard(format_, answer) if piece.finish] == ["length"]
    assert format_.dialect.read_whole(whole(format_, answer)).finish == "length"


@formats
@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"{",
        b"[]",
        b"7",
        b"null",
        b'"x"',
        b"{}",
        b'{"type":7}',
        b'{"choices":7,"delta":7,"item":7}',
        b"[" * 99_999,
    ],
    ids=lambda said: said[:20].decode() or "nothing",
)
def test_nonsense_reads_as_nothing(format_: Format, said: bytes) -> None:
    assert format_.dialect.read_event(said) == Piece()
    assert format_.dialect.read_whole(said) == Piece()


@formats
def test_our_errors_are_read_as_errors(format_: Format) -> None:
    dialect = format_.dialect
    error = dialect.read_whole(dialect.error(502, "upstream_unreachable", "no connection"))
    assert "no connection" in error.error and "upstream_unreachable" in error.error
    stream = dialect.error_event(502, "upstream_unreachable", "no connection")
    assert stream.endswith(b"\n\n")
    read = [dialect.read_event(data) for data in last_data(stream)]
    assert read and all("no connection" in piece.error for piece in read)


def test_errors_have_the_form_that_sdks_know() -> None:
    chat, responses, messages = (format_.dialect for format_ in FORMATS)
    for dialect in (chat, responses):
        error = json.loads(dialect.error(413, "body_too_large", "too large"))["error"]
        assert (error["code"], error["type"]) == ("body_too_large", "invalid_request_error")
    body = json.loads(messages.error(413, "body_too_large", "too large"))
    assert (body["type"], body["error"]["type"]) == ("error", "request_too_large")
    assert json.loads(messages.error(500, "x", "y"))["error"]["type"] == "api_error"
    assert messages.error_event(500, "x", "y").startswith(b"event: error\n")
    first, second = Events().feed(responses.error_event(500, "x", "y"))
    assert (first.name, second.name) == (b"error", b"response.failed")
    assert json.loads(second.data)["response"]["error"] == {"code": "x", "message": "y"}


@formats
def test_a_count_is_said_as_servers_say_it(format_: Format) -> None:
    assert json.loads(format_.dialect.count_answer(12)) == {"input_tokens": 12}


# Heartbeats


@pytest.mark.parametrize("format_", [FORMATS[0], FORMATS[2]], ids=["chat", "messages"])
def test_a_heartbeat_that_is_no_part_of_an_answer_changes_none(format_: Format) -> None:
    waiting = format_.dialect.waiting(KEY)
    beats = b"".join(waiting.beat() for _ in range(3))
    assert all(format_.dialect.read_event(event.data) == Piece() for event in Events().feed(beats))
    stream = streamed(format_, SAID)
    assert waiting.relay(stream) + waiting.end() == stream
    assert waiting.renamed is None


def test_a_chat_heartbeat_is_a_comment_and_that_of_messages_a_ping() -> None:
    assert FORMATS[0].dialect.waiting(KEY).beat() == b": waiting\n"
    assert FORMATS[2].dialect.waiting(KEY).beat() == b'event: ping\ndata: {"type": "ping"}\n\n'


def announced(stream: bytes, *, beats: int = 3, chunk: int = 0) -> list[dict[str, Any]]:
    """The events that a client gets that waited for a Responses stream."""
    waiting = FORMATS[1].dialect.waiting(KEY)
    got = b"".join(waiting.beat() for _ in range(beats))
    size = chunk or len(stream)
    got += b"".join(waiting.relay(stream[at : at + size]) for at in range(0, len(stream), size))
    return [json.loads(event.data) for event in Events().feed(got + waiting.end()) if event.data]


@pytest.mark.parametrize("chunk", [0, 1, 7, 1000], ids=lambda n: f"in pieces of {n}" if n else "at once")
def test_a_response_is_announced_once_and_keeps_its_id(chunk: int) -> None:
    # Every piece is looked at, so that a long stream in single bytes would take long.
    stream = streamed(FORMATS[1], Answer(text="ok")).replace(b"i" * 60_000, b"i")
    sent = [json.loads(event.data) for event in Events().feed(stream)]
    got = announced(stream, chunk=chunk)
    kinds = [event["type"] for event in got]
    assert kinds[:3] == ["response.created", "response.in_progress", "response.in_progress"]
    assert kinds[3:] == [event["type"] for event in sent[1:]]
    ids = {event["response"]["id"] for event in got if "response" in event}
    assert len(ids) == 1 and ANNOUNCED.fullmatch(ids.pop().encode())
    # But for that one id everything is as it came.
    for before, after in zip(sent[1:], got[3:], strict=True):
        if "response" in before:
            after["response"]["id"] = before["response"]["id"]
        assert after == before


def test_a_stream_that_did_not_wait_is_not_touched() -> None:
    waiting = FORMATS[1].dialect.waiting(KEY)
    stream = streamed(FORMATS[1], Answer(text="ok"))
    assert waiting.relay(stream) + waiting.end() == stream
    assert waiting.renamed is None


def test_comments_before_the_first_event_are_no_event() -> None:
    got = announced(b": processing\n\n: still\n\n" + streamed(FORMATS[1], Answer(text="ok")))
    assert [event["type"] for event in got].count("response.created") == 1


def test_a_stream_that_begins_otherwise_or_breaks_off_goes_on_as_it_is() -> None:
    error = b'event: error\ndata: {"type":"error","message":"no"}\n\n'
    assert announced(error)[-1] == {"type": "error", "message": "no"}
    waiting = FORMATS[1].dialect.waiting(KEY)
    waiting.beat()
    cut = b'event: response.created\ndata: {"type":"resp'
    assert waiting.relay(cut) + waiting.end() == cut


def test_both_ids_are_told() -> None:
    waiting = FORMATS[1].dialect.waiting(KEY)
    waiting.beat()
    waiting.relay(streamed(FORMATS[1], Answer(text="ok")))
    assert waiting.renamed == (f"resp_waited_{KEY}", "resp_1")


@pytest.mark.parametrize("format_", FORMATS[1:], ids=lambda format_: format_.name)
def test_a_stream_of_nothing_but_beginnings_of_usage_is_given_up(format_: Format) -> None:
    """Each of them read to its end takes seconds, in which everybody waits."""
    noise = b'"usage":{' * 7_000
    assert format_.dialect.read_usage(noise, noise, is_stream=True) is None
    usage = b'data: {"usage":{"input_tokens":7,"output_tokens":2}}\n\n'
    found = format_.dialect.read_usage(usage + noise, noise + usage, is_stream=True)
    assert found is not None
    assert found.prompt == 7
