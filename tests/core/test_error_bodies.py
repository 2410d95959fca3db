"""What the upstream complains of, word for word, in whatever form it says so."""

import json
from typing import Any

import pytest

from proxy.core.error_bodies import MOST_BODY_BYTES, MOST_TEXT_CHARS, Complaint, find_complaints


def found(status: int, body: bytes) -> list[Complaint]:
    return list(find_complaints(status, body))


def words(status: int, body: bytes) -> list[str]:
    return [complaint.text for complaint in find_complaints(status, body)]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        pytest.param(b"too long", "too long", id="plain text"),
        pytest.param(b" \r\n too long\n\n", "too long", id="space around it"),
        pytest.param(b"XML is too long, says XXX", "XML is too long, says XXX", id="plain text, all of it"),
        pytest.param(b"\xef\xbb\xbftoo long", "too long", id="a mark of the byte order"),
        pytest.param(b'\xef\xbb\xbf\n{"error": "too long"}', "too long", id="such a mark before JSON"),
        pytest.param(b"too \xff long", "too \ufffd long", id="bytes that are no UTF-8"),
        pytest.param(b'"too long"', "too long", id="a JSON string"),
        pytest.param(b'["too long", "by far"]', "too long\nby far", id="a JSON list"),
        pytest.param(b'{"error": "too long"', '{"error": "too long"', id="JSON that breaks off"),
        pytest.param(b"too long: {", "too long: {", id="a brace that is never closed"),
        pytest.param(b"too long: }{", "too long: }{", id="braces the wrong way round"),
        pytest.param(b"too long}", "too long}", id="a brace that is never opened"),
    ],
)
def test_all_of_an_answer_that_failed_is_the_complaint(body: bytes, text: str) -> None:
    assert found(400, body) == [Complaint(text=text)]


@pytest.mark.parametrize("status", [200, 399])
def test_text_that_came_with_success_is_no_complaint(status: int) -> None:
    assert found(status, b"too long") == []
    assert found(status, b'"too long"') == []
    assert found(status, b'["too long"]') == []


@pytest.mark.parametrize("body", [b"", b" \n", b"\xef\xbb\xbf", b"{}", b"[]", b'""', b"[1, null, true]"])
def test_what_says_nothing_is_no_complaint(body: bytes) -> None:
    assert found(500, body) == []


@pytest.mark.parametrize(
    ("body", "texts"),
    [
        pytest.param({"error": {"message": "too long"}}, ["too long"], id="an error"),
        pytest.param({"error": "too long", "message": "m"}, ["too long"], id="an error, and words beside it"),
        pytest.param(
            {"type": "error", "message": "too long"}, ["too long\nerror"], id="the type of an error"
        ),
        pytest.param({"object": "error", "message": "too long"}, ["too long"], id="an object that is one"),
        pytest.param({"response": {"error": {"code": "too_long"}}}, ["too_long"], id="a failed response"),
        pytest.param({"error": None, "message": "fine"}, [], id="no error"),
        pytest.param({"type": "message", "object": "chat", "message": "error"}, [], id="an answer"),
        pytest.param({"response": {"error": None, "message": "fine"}}, [], id="a response that did not fail"),
        pytest.param({"response": "error"}, [], id="a response in words"),
    ],
)
def test_only_an_error_is_read_of_an_answer_that_came_with_success(body: Any, texts: list[str]) -> None:
    assert words(200, json.dumps(body).encode()) == texts


@pytest.mark.parametrize(
    ("body", "texts"),
    [
        pytest.param('data: {"error": {"message": "too long"}}', ["too long"], id="data"),
        pytest.param(
            'data:{"error": {"message": "too long"}}\n\n', ["too long"], id="no blank after the colon"
        ),
        pytest.param('event: error\ndata: {"message": "too long"}\n\n', ["too long"], id="an event"),
        pytest.param("event: error\ndata: too long\ndata: by far\n\n", ["too long\nby far"], id="in words"),
        pytest.param('data: {"error":\ndata: "too long"}\n\n', ["too long"], id="JSON over two lines"),
        pytest.param('error: {"message": "too long"}\n\n', ["too long"], id="llama.cpp's old field"),
        pytest.param("error: too long\n\n", ["too long"], id="that field in words"),
        pytest.param('id: 1\ndata: {"error": "too long"}\n\n', ["too long"], id="an id first"),
        pytest.param('retry: 9\ndata: {"error": "too long"}\n\n', ["too long"], id="a delay first"),
        pytest.param(': ping\n\ndata: {"error": "too long"}\n\n', ["too long"], id="a remark first"),
        pytest.param(
            'data: {"id": 1}\r\n\r\ndata: {"error": "too long"}\r\n\r\n', ["too long"], id="lines of CR LF"
        ),
        pytest.param("event: error\r\ndata: too long\r\n\r\n", ["too long"], id="an event of lines of CR LF"),
        pytest.param('data: {"id": 1}\r\rdata: {"error": "too long"}\r\r', ["too long"], id="lines of CR"),
        pytest.param(
            'data: {"error": "first"}\n\nerror: second\n\nevent: error\ndata: third\n\ndata: {"error": "4"}',
            ["first", "second", "third", "4"],
            id="several, in order",
        ),
        pytest.param('event: error\n\ndata: {"id": 1}\n\n', [], id="the name holds for its event only"),
        pytest.param('event: error\nevent: done\ndata: {"id": 1}\n\n', [], id="the last of two names"),
        pytest.param("event: done\nevent: error \ndata: too long\n\n", ["too long"], id="the last, an error"),
        pytest.param("data: an error is too long\n\ndata: [DONE]\n\n", [], id="data in words"),
        pytest.param('data: ["error"]\n\n', [], id="data that is a list"),
    ],
)
@pytest.mark.parametrize("status", [200, 500])
def test_only_errors_are_read_of_a_stream(status: int, body: str, texts: list[str]) -> None:
    assert words(status, body.encode()) == texts


def test_all_that_the_server_says_is_read_and_nothing_that_it_echoes() -> None:
    said = ["cause", "raw", "metadata", "error_type", "type", "code", "detail", "msg", "message", "error"]
    body = json.dumps({"input": "echo", "body": "echo", **{key: f"the {key}" for key in said}}).encode()
    assert found(400, body) == [
        Complaint(
            text="the error\nthe message\nthe msg\nthe detail\nthe code\nthe type\nthe error_type\n"
            "the metadata\nthe raw\nthe cause"
        )
    ]


@pytest.mark.parametrize(
    "echo",
    [
        "[{'type': 'too_long', 'input': 'hi'}]",
        '[{"code": 413, "message": "too long"}]',
        ' \n[{"code": 413, "message": "too long"}]',
    ],
)
def test_a_list_of_faults_as_text_quotes_the_request_and_is_left_out(echo: str) -> None:
    assert found(400, json.dumps({"detail": echo}).encode()) == []
    assert found(400, json.dumps({"detail": echo, "message": "bad"}).encode()) == [Complaint(text="bad")]


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        pytest.param({"code": 413, "message": "m"}, Complaint(text="m", codes=frozenset({413})), id="a code"),
        pytest.param({"status": 413, "msg": "m"}, Complaint(text="m", codes=frozenset({413})), id="a status"),
        pytest.param(
            {"status_code": 413, "msg": "m"}, Complaint(text="m", codes=frozenset({413})), id="a status code"
        ),
        pytest.param({"code": "413"}, Complaint(text="413", codes=frozenset({413})), id="digits in a string"),
        pytest.param({"code": "41"}, Complaint(text="41"), id="two digits are no status"),
        pytest.param({"code": "4130"}, Complaint(text="4130"), id="neither are four"),
        pytest.param({"code": "4a3"}, Complaint(text="4a3"), id="nor letters"),
        pytest.param({"code": "٤١٣"}, Complaint(text="٤١٣"), id="nor digits of other scripts"),
        pytest.param(
            {"code": 400, "error": {"code": 413, "message": "m"}},
            Complaint(text="m", codes=frozenset({400, 413})),
            id="one at each depth",
        ),
        pytest.param(
            {"msg": "m", "n_ctx": 4096, "n_prompt_tokens": 5000},
            Complaint(text="m", window=4096, prompt=5000),
            id="sizes",
        ),
        pytest.param(
            {"msg": "m", "n_ctx": 1, "n_prompt_tokens": 1},
            Complaint(text="m", window=1, prompt=1),
            id="of one",
        ),
        pytest.param(
            {"msg": "m", "n_ctx": 0, "n_prompt_tokens": -1}, Complaint(text="m"), id="sizes of nothing"
        ),
        pytest.param({"msg": "m", "n_ctx": True, "n_prompt_tokens": "5"}, Complaint(text="m"), id="no sizes"),
        pytest.param(
            {"msg": "m", "n_ctx": 4096, "error": {"n_ctx": 512, "n_prompt_tokens": 9}},
            Complaint(text="m", window=4096, prompt=9),
            id="the outermost size counts",
        ),
    ],
)
def test_numbers_are_read_from_their_fields(body: Any, complaint: Complaint) -> None:
    assert found(400, json.dumps(body).encode()) == [complaint]


@pytest.mark.parametrize(
    ("message", "complaint"),
    [
        pytest.param(
            '{"code": 413}', Complaint(text='{"code": 413}', codes=frozenset({413})), id="nothing around it"
        ),
        pytest.param(
            'Error: {"error": {"code": 413}}.',
            Complaint(text='Error: {"error": {"code": 413}}.', codes=frozenset({413})),
            id="words around it",
        ),
        pytest.param(
            '{"message": "too long"}', Complaint(text='{"message": "too long"}\ntoo long'), id="a message"
        ),
    ],
)
def test_the_error_of_another_server_is_read_inside_a_message(message: str, complaint: Complaint) -> None:
    assert found(400, json.dumps({"message": message}).encode()) == [complaint]


def nested(value: Any, depth: int, how: str) -> bytes:
    """*value* inside so many objects, lists, or objects as text."""
    for _ in range(depth):
        value = {"object": {"error": value}, "list": [value], "text": {"error": json.dumps(value)}}[how]
    return json.dumps(value).encode()


@pytest.mark.parametrize(
    ("how", "most"),
    [
        pytest.param("object", 6, id="objects"),
        pytest.param("list", 6, id="lists"),
    ],
)
def test_an_error_is_read_to_a_depth_of_six(how: str, most: int) -> None:
    assert found(400, nested("m", most, how)) == [Complaint(text="m")]
    assert found(400, nested("m", most + 1, how)) == []


def test_each_object_as_text_counts_as_two_of_the_six() -> None:
    inner = {"code": 413}
    assert [complaint.codes for complaint in found(400, nested(inner, 2, "text"))] == [frozenset({413})]
    assert [complaint.codes for complaint in found(400, nested(inner, 3, "text"))] == [frozenset()]


def test_twenty_of_a_list_are_read() -> None:
    faults = [{"msg": f"fault {n}"} for n in range(1, 23)]
    assert words(422, json.dumps({"detail": faults}).encode()) == [
        "\n".join(f"fault {n}" for n in range(1, 21))
    ]


def test_a_complaint_is_cut() -> None:
    long = "m" * (MOST_TEXT_CHARS + 1)
    assert words(400, json.dumps({"message": long}).encode()) == ["m" * MOST_TEXT_CHARS]
    both = json.dumps({"message": "m" * (MOST_TEXT_CHARS - 2), "detail": "detail"}).encode()
    assert words(400, both) == ["m" * (MOST_TEXT_CHARS - 2) + "\nd"]


def test_a_body_is_read_up_to_64_kibibytes() -> None:
    body = b'{"error": "m", "rest": "' + b"r" * (MOST_BODY_BYTES - 26) + b'"}'
    assert len(body) == MOST_BODY_BYTES == 65_536
    assert found(200, body) == [Complaint(text="m")]
    # One byte more, and it is no JSON: nothing can be told of a success, and only the beginning of a failure.
    longer = body.replace(b"rr", b"rrr", 1)
    assert found(200, longer) == []
    assert words(400, longer) == [longer[:MOST_TEXT_CHARS].decode()]


@pytest.mark.parametrize(
    "body", [b'{"error":' * 9_000, b"[" * 60_000, b'{"error":' * 900 + b"1" + b"}" * 900]
)
@pytest.mark.parametrize("status", [200, 400])
def test_hostile_nesting_raises_nothing(status: int, body: bytes) -> None:
    assert all(len(text) <= MOST_TEXT_CHARS for text in words(status, body))
