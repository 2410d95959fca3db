"""What was not changed keeps its bytes, and the whole means what JSON says it means."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.dialects.slices import dump, put_together, take_apart
from proxy.errors import NotUnderstood

# Any text, halves of surrogate pairs among them.
TEXT = st.text(st.characters(), max_size=10)
VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)
OBJECT = st.dictionaries(TEXT, VALUE, max_size=5)
SPACE = st.text(" \t\n\r", max_size=3)


@st.composite
def written(draw: st.DrawFn, value: Any) -> str:
    """JSON of *value* with spaces anywhere and escapes here and there."""
    match value:
        case dict():
            parts = [
                f"{draw(written(k))}{draw(SPACE)}:{draw(SPACE)}{draw(written(v))}" for k, v in value.items()
            ]
            body = ",".join(f"{draw(SPACE)}{part}{draw(SPACE)}" for part in parts)
            return f"{{{body or draw(SPACE)}}}"
        case list():
            body = ",".join(f"{draw(SPACE)}{draw(written(v))}{draw(SPACE)}" for v in value)
            return f"[{body or draw(SPACE)}]"
        case str():
            is_whole = not any(0xD800 <= ord(c) <= 0xDFFF for c in value)
            return json.dumps(value, ensure_ascii=not (is_whole and draw(st.booleans())))
        case _:
            return json.dumps(value)


@st.composite
def bodies(draw: st.DrawFn) -> tuple[dict[str, Any], list[str], bytes]:
    """An object with a list `messages`, the raw text of its elements, and its bytes."""
    fields = draw(OBJECT)
    fields.pop("messages", None)
    messages = draw(st.lists(VALUE, max_size=4))
    raws = [draw(written(message)) for message in messages]
    array = "[" + ",".join(f"{draw(SPACE)}{raw}{draw(SPACE)}" for raw in raws) + "]"
    parts = [f"{draw(written(k))}:{draw(SPACE)}{draw(written(v))}" for k, v in fields.items()]
    parts.insert(draw(st.integers(0, len(parts))), f'"messages"{draw(SPACE)}:{draw(SPACE)}{array}')
    body = "{" + ",".join(f"{draw(SPACE)}{part}{draw(SPACE)}" for part in parts) + "}"
    text = f"{draw(SPACE)}{body}{draw(SPACE)}"
    return fields | {"messages": messages}, raws, text.encode()


@given(bodies())
def test_every_value_is_as_json_reads_it_and_every_slice_as_it_stood(
    body: tuple[dict[str, Any], list[str], bytes],
) -> None:
    value, raws, raw = body
    taken = take_apart(raw, ("messages",))
    assert {k: item.value for k, item in taken.fields.items()} == json.loads(raw) == value
    assert [item.raw for item in taken.lists["messages"]] == raws
    assert all(json.loads(item.raw) == item.value for item in taken.fields.values())


@given(bodies())
def test_put_together_again_it_means_the_same(body: tuple[dict[str, Any], list[str], bytes]) -> None:
    value, raws, raw = body
    taken = take_apart(raw, ("messages",))
    again = put_together(taken, {})
    assert json.loads(again) == value
    assert list(json.loads(again)) == list(json.loads(raw))
    for kept in raws:
        assert kept.encode() in again


@given(bodies(), VALUE, TEXT)
def test_a_change_changes_nothing_else(
    body: tuple[dict[str, Any], list[str], bytes], new: Any, key: str
) -> None:
    value, _, raw = body
    taken = take_apart(raw, ("messages",))
    assert json.loads(put_together(taken, {key: dump(new)})) == value | {key: new}
    assert json.loads(put_together(taken, {key: None})) == {k: v for k, v in value.items() if k != key}


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_what_json_refuses_is_not_understood(raw: bytes) -> None:
    try:
        value = json.loads(raw.decode())
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict):
        return
    with pytest.raises(NotUnderstood):
        take_apart(raw, ("messages",))


@given(st.text('{}[]",:\\ 1eE+-.tfnu\ud800', max_size=30))
def test_nonsense_is_taken_apart_only_where_json_reads_it(text: str) -> None:
    raw = ("{" + text + "}").encode("utf-8", "surrogatepass")
    try:
        taken = take_apart(raw, ("",))
    except NotUnderstood:
        return
    assert {k: item.value for k, item in taken.fields.items()} == json.loads(raw)


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        pytest.param(b"[]", "expected an object", id="no object"),
        pytest.param(b'{"a":1,"a":1}', "the field 'a' stands twice", id="a field twice"),
        pytest.param(b'{"a":1e400}', "the number 1e400 is too large", id="a float that is too large"),
        pytest.param(b'{"a":[NaN]}', "NaN is no number of JSON", id="NaN"),
        pytest.param(b'{"a":-Infinity}', "-Infinity is no number of JSON", id="infinity"),
        pytest.param(b'{"a":1}{', "something stands after the object", id="something after it"),
        pytest.param(b"{1:2}", "expected a key at 1", id="no key"),
        pytest.param(b'{"a" 1}', "expected a colon at 5", id="no colon"),
        pytest.param(b'{"a":1 "b":2}', "expected a comma at 7", id="no comma"),
        pytest.param(b'{"m":[1 2]}', "expected a comma at 8", id="no comma in the list"),
        pytest.param(b'{"a":' + b"[" * 10**5, "RecursionError", id="too deep"),
        pytest.param(b'{"a":"\xff"}', "UnicodeDecodeError", id="no UTF-8"),
        pytest.param(b'{"a":%s}' % (b"1" * 5000), "ValueError", id="5000 digits"),
    ],
)
def test_why_a_body_is_not_understood(raw: bytes, why: str) -> None:
    with pytest.raises(NotUnderstood) as error:
        take_apart(raw, ("m",))
    assert why in str(error.value)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), [[[-float("inf")]]]])
def test_what_json_cannot_say_is_not_written(value: Any) -> None:
    with pytest.raises(NotUnderstood):
        dump(value)


def test_half_a_surrogate_pair_stays_escaped() -> None:
    assert dump({"\ud800": "\udfff"}) == r'{"\ud800":"\udfff"}'
