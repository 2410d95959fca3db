"""How one long text is made short."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.core.cutting import CUT_KEY, cut_arguments, cut_middle, label

LONG = "h" * 500 + "m" * 500 + "t" * 500


def test_head_and_tail_stay_and_the_marker_says_what_is_gone() -> None:
    assert cut_middle(LONG, 300, "the result of read(a.py)") == (
        "h" * 200
        + "\n[… 1,200 characters of the result of read(a.py) were cut here to fit the context window …]\n"
        + "t" * 100
    )


@pytest.mark.parametrize(
    ("keep", "is_cut"),
    [
        pytest.param(1_500, False, id="nothing to cut"),
        pytest.param(1_301, False, id="less than the marker takes"),
        pytest.param(1_300, True, id="as much as is worth it"),
        pytest.param(0, True, id="nothing stays"),
        pytest.param(-5, True, id="less than nothing"),
    ],
)
def test_a_text_is_cut_only_where_that_gains(keep: int, is_cut: bool) -> None:
    assert (cut_middle(LONG, keep, "x") is not None) is is_cut


@pytest.mark.parametrize("keep", [0, -5])
def test_of_a_text_that_may_keep_nothing_only_the_marker_stays(keep: int) -> None:
    marker = "[… 1,500 characters of this text were cut here to fit the context window …]"
    assert cut_middle(LONG, keep, "this text") == f"\n{marker}\n"
    as_json = f"\\n{marker}\\n"
    assert cut_arguments(f'{{"a": "{LONG}"}}', keep, "this text") == f'{{"a": "{as_json}"}}'


def test_long_strings_of_arguments_are_cut_and_the_rest_stays() -> None:
    cut = cut_arguments(json.dumps({"path": "a.py", "content": LONG, "n": [1, LONG]}), 100, "an argument")
    assert cut is not None
    value = json.loads(cut)
    assert value["path"] == "a.py"
    assert value["content"].startswith("h" * 66 + "\n[… 1,400 characters of an argument were cut")
    assert value["n"][0] == 1
    assert value["n"][1] == value["content"]


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param('{"path": "a.py", "content": "' + LONG, id="JSON that breaks off"),
        pytest.param(LONG, id="no JSON"),
        pytest.param(json.dumps(list(range(5_000))), id="numbers"),
        pytest.param(json.dumps({"lines": ["short"] * 2_000}), id="many short strings"),
        pytest.param('{"n": NaN, "content": "' + LONG + '"}', id="a number that JSON cannot say"),
        pytest.param("[" * 30_000 + "]" * 30_000, id="nested too deeply"),
        pytest.param('"' + "\\u0001" * 1_000 + '"', id="escapes"),
    ],
)
def test_every_long_argument_can_be_cut_and_is_valid_json_then(arguments: str) -> None:
    cut = cut_arguments(arguments, 80, "an argument")
    assert cut is not None
    assert len(cut) < len(arguments) - 100
    json.loads(cut, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


def test_what_has_no_long_string_keeps_its_beginning_as_text() -> None:
    cut = cut_arguments(json.dumps({"path": "a.py", "lines": list(range(5_000))}), 100, "an argument")
    assert cut is not None
    assert list(json.loads(cut)) == [CUT_KEY]
    assert json.loads(cut)[CUT_KEY].startswith('{"path": "a.py", "lines": [0, 1')


def test_what_is_written_anew_keeps_its_letters() -> None:
    """An escape for each letter of another alphabet would take six times the room."""
    assert cut_arguments('{"путь": "é.py", "text": "' + "é" * 500 + '"}', 30, "an argument") == (
        '{"путь": "é.py", "text": "'
        + "é" * 20
        + "\\n[… 470 characters of an argument were cut here to fit the context window …]\\n"
        + "é" * 10
        + '"}'
    )
    assert cut_arguments("é" * 500, 30, "an argument") == (
        '{"cut_arguments": "'
        + "é" * 20
        + "\\n[… 470 characters of the arguments were cut here to fit the context window …]\\n"
        + "é" * 10
        + '"}'
    )


@pytest.mark.parametrize(
    ("keep", "room"),
    [
        pytest.param(100, 2_000, id="where little is kept"),
        pytest.param(600, 2_400, id="four times what is kept"),
    ],
)
def test_names_and_structure_stay_as_long_as_they_are_not_far_over(keep: int, room: int) -> None:
    # Of "text" the marker and what is kept are left, beside as many short strings as there is room for.
    marker = "\\n[… 1,000 characters of an argument were cut here to fit the context window …]\\n"
    head, tail = "h" * (keep * 2 // 3), "t" * (keep - keep * 2 // 3)
    frame = f'{{"text": "{head}{marker}{tail}", "rest": [""'
    rest = ', "x"' * ((room - len(frame) - 2) // 5)
    filled = "x" * (room - len(frame) - len(rest) - 2)
    expected = f'{{"text": "{head}{marker}{tail}", "rest": ["{filled}"{rest}]}}'
    assert len(expected) == room
    whole = f'{{"text": "{head}{"m" * 1_000}{tail}", "rest": ["{filled}"{rest}]}}'
    assert cut_arguments(whole, keep, "an argument") == expected
    one_more = cut_arguments(whole.replace(f'["{filled}"', f'["{filled}x"'), keep, "an argument")
    assert one_more is not None
    assert list(json.loads(one_more)) == [CUT_KEY]


@pytest.mark.parametrize(
    ("keep", "is_written_anew"),
    [pytest.param(43, False, id="less than the marker takes"), pytest.param(42, True, id="worth a look")],
)
def test_arguments_are_only_read_where_as_much_is_over_as_a_cut_is_worth(
    keep: int, is_written_anew: bool
) -> None:
    escaped = '"' + "\\u00e9" * 40 + '"'
    assert len(escaped) == 242
    assert cut_arguments(escaped, keep, "an argument") == ('"' + "é" * 40 + '"' if is_written_anew else None)


@pytest.mark.parametrize(
    ("what", "is_cut"),
    [pytest.param("x" * 32, False, id="100 fewer"), pytest.param("x" * 31, True, id="101 fewer")],
)
def test_arguments_are_cut_only_where_more_than_a_hundred_characters_go(what: str, is_cut: bool) -> None:
    marker = f"\\n[… 200 characters of {what} were cut here to fit the context window …]\\n"
    expected = '{"a": "' + "h" * 20 + marker + "t" * 10 + '"}'
    arguments = '{"a": "' + "h" * 20 + "m" * 200 + "t" * 10 + '"}'
    assert len(arguments) - len(expected) == (101 if is_cut else 100)
    assert cut_arguments(arguments, 30, what) == (expected if is_cut else None)


def test_what_would_get_longer_as_json_stays() -> None:
    assert cut_arguments("\x01" * 1_000, 500, "an argument") is None


@pytest.mark.parametrize("arguments", ["", "{}", '{"path": "a.py"}', "x" * 250])
def test_short_arguments_stay(arguments: str) -> None:
    assert cut_arguments(arguments, 100, "an argument") is None


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=600),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=5), inner, max_size=6),
    max_leaves=20,
)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.text(max_size=5), _JSON, max_size=6), st.integers(0, 300))
def test_cut_arguments_stay_json_and_get_shorter(value: dict[str, Any], keep: int) -> None:
    arguments = json.dumps(value)
    cut = cut_arguments(arguments, keep, "an argument")
    if cut is None:
        return
    assert isinstance(json.loads(cut), dict)
    assert len(cut) < len(arguments)


@given(st.text(max_size=900), st.integers(-10, 900))
def test_a_cut_text_begins_and_ends_as_the_whole(text: str, keep: int) -> None:
    cut = cut_middle(text, keep, "x")
    if cut is not None:
        assert cut.startswith(text[: int(max(keep, 0) * 2 / 3)] + "\n[… ")
        assert keep < 2 or cut[-1] == text[-1]


def test_a_label_is_one_short_line() -> None:
    assert label("read", '{\n  "path": "a.py"\n}') == 'read({ "path": "a.py" })'
    assert label("", "") == "the call()"
    assert label("bash", "x" * 120) == f"bash({'x' * 120})"
    assert label("bash", "x" * 121) == f"bash({'x' * 120}…)"
