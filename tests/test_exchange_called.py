"""Whether an answer ended with tool calls, told from the end of it."""

import json

import pytest

from proxy.exchange_called import has_called
from tests.support import answers, answers_messages, answers_responses
from tests.support.answers import Answer, Numbers
from tests.support.formats import FORMATS, Format

EACH = pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
NUMBERS = Numbers(prompt=100, cached=0, completion=10, has_timings=True)
CALLING = Answer(text="I look.", calls=(("read_file", {"path": "a.py"}),))
# It quotes what a call looks like.
SPEAKING = Answer(text='It says "type": "function_call", "type":"tool_use" and finish_reason "tool_calls".')


def whole(form: Format, answer: Answer) -> bytes:
    if form.name == "responses":
        made = answers_responses.whole(answer, NUMBERS, model="m", number=1, body={})
    elif form.name == "messages":
        made = answers_messages.whole(answer, NUMBERS, model="m", number=1)
    else:
        made = answers.whole(answer, NUMBERS, model="m", number=1)
    return json.dumps(made).encode()


def stream(form: Format, answer: Answer) -> bytes:
    if form.name == "responses":
        return b"".join(answers_responses.events(answer, NUMBERS, model="m", number=1, body={}))
    if form.name == "messages":
        return b"".join(answers_messages.events(answer, NUMBERS, model="m", number=1))
    return b"".join(answers.events(answer, NUMBERS, model="m", number=1, include_usage=True))


@EACH
@pytest.mark.parametrize(("answer", "called"), [(CALLING, True), (SPEAKING, False)], ids=["calls", "speaks"])
def test_calls_are_told_from_text(form: Format, answer: Answer, called: bool) -> None:
    assert has_called(form.dialect, whole(form, answer), is_stream=False) is called
    assert has_called(form.dialect, stream(form, answer), is_stream=True) is called


@EACH
def test_the_end_of_a_stream_is_enough(form: Format) -> None:
    said = stream(form, CALLING)
    assert all(
        has_called(form.dialect, said[-left:], is_stream=True) for left in (len(said) // 2, len(said) - 5)
    )


@EACH
@pytest.mark.parametrize("tail", [b"", b"\xff\xfe", b"[1", b'data: {"error": {"message": "no"}}\n\n'])
def test_nonsense_and_errors_are_no_calls(form: Format, tail: bytes) -> None:
    assert has_called(form.dialect, tail, is_stream=True) is False
    assert has_called(form.dialect, tail, is_stream=False) is False
