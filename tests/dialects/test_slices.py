"""What was not changed keeps its bytes."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.dialects.slices import dump, put_together, take_apart
from proxy.errors import NotUnderstood

ODD = (
    b'{ "model" : "m\\u00e9" ,"n":1e300,"x":1.10, '
    b'"messages":[ {"a" : 1 } ,\n"\\ud83d" ,[ ] ], "z":{"b":1,"a":2}}'
)


def test_every_slice_is_as_it_came() -> None:
    body = take_apart(ODD, ("messages", "tools"))
    assert {key: item.raw for key, item in body.fields.items()} == {
        "model": '"m\\u00e9"',
        "n": "1e300",
        "x": "1.10",
        "messages": '[ {"a" : 1 } ,\n"\\ud83d" ,[ ] ]',
        "z": '{"b":1,"a":2}',
    }
    assert [item.raw for item in body.lists["messages"]] == ['{"a" : 1 }', '"\\ud83d"', "[ ]"]
    assert body.value("model") == "mé"
    assert body.value("none") is None


def test_fields_are_changed_dropped_and_added_and_the_rest_keeps_its_bytes() -> None:
    body = take_apart(ODD, ("messages",))
    changed = put_together(body, {"messages": "[]", "n": None, "gone": None, "stream": "true"})
    assert changed == b'{"model":"m\\u00e9","x":1.10,"messages":[],"z":{"b":1,"a":2},"stream":true}'


def test_text_beyond_ascii_goes_as_it_came() -> None:
    raw = '{"messages":["שלום 👩‍👩‍👧"],"é":1}'.encode()
    body = take_apart(raw, ("messages",))
    assert '"שלום 👩‍👩‍👧"'.encode() in put_together(body, {})
    assert json.loads(put_together(body, {})) == json.loads(raw)


@pytest.mark.parametrize(
    "raw",
    [
        b"", b" ", b"[]", b"null", b'"x"', b"{", b"{}x", b'{"a"}', b'{"a":}', b'{"a":1', b'{"a":1,}',
        b"{a:1}", b'{"a":1 "b":2}', b'{"m":[1 2]}', b'{"m":[1,]}', b'{"m":[',
        b"\xff", b'{"a":"\xed\xa0\x80"}',
        b'{"a":1,"a":2}', b"\xef\xbb\xbf{}", b'{"m":' + b"[" * 200_000, b'{"m":[' + b'{"a":' * 200_000,
        b'{"a":1}\x00', b'{"a":1e400}', b'{"a":NaN}', "{\u00a0}".encode(), b'{"a":"\n"}' * 2,
    ],
)  # fmt: skip
def test_what_is_no_object_is_not_understood(raw: bytes) -> None:
    with pytest.raises(NotUnderstood, match="not a JSON object"):
        take_apart(raw, ("m",))


def test_a_field_of_another_kind_than_asked_has_no_elements() -> None:
    body = take_apart(b'{"m":{"a":[1]}}', ("m",))
    assert "m" not in body.lists
    assert body.value("m") == {"a": [1]}


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=200, deadline=None)
@given(
    st.dictionaries(st.text(max_size=5) | st.just("m"), _JSON, max_size=5),
    st.sampled_from([None, 1, "\t"]),
    st.booleans(),
)
def test_taken_apart_and_put_together_it_is_the_same_value(
    value: dict[str, Any], indent: int | str | None, ensure_ascii: bool
) -> None:
    raw = json.dumps(value, indent=indent, ensure_ascii=ensure_ascii)
    body = take_apart(raw.encode(), ("m",))
    assert json.loads(put_together(body, {})) == value
    assert all(item.raw in raw for item in body.fields.values())
    if isinstance(value.get("m"), list):
        assert [item.value for item in body.lists["m"]] == value["m"]


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60) | st.text(st.sampled_from('{}[]",:1 am\\'), max_size=40).map(str.encode))
def test_no_body_raises_anything_else(raw: bytes) -> None:
    try:
        body = take_apart(raw, ("m",))
    except NotUnderstood:
        return
    assert json.loads(raw) == {key: item.value for key, item in body.fields.items()}


def test_what_json_cannot_say_is_not_written() -> None:
    assert dump({"a": "\ud800é"}) == '{"a":"\\ud800\\u00e9"}'
    with pytest.raises(NotUnderstood, match="cannot be written again"):
        dump({"a": float("inf")})
    nested: Any = []
    for _ in range(100_000):
        nested = [nested]
    with pytest.raises(NotUnderstood, match="cannot be written again"):
        dump(nested)
