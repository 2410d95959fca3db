"""What is read of arguments, under plain names, at every limit."""

import json
from typing import Any

import pytest

from proxy.core.arguments import (
    RAW,
    Place,
    find_addresses,
    find_command,
    find_first,
    find_folder,
    find_patched,
    find_places,
    find_query,
    parse_arguments,
    plain_names,
)


@pytest.mark.parametrize("times", [1, 2, 3])
def test_arguments_may_be_encoded_twice_and_not_more_often(times: int) -> None:
    raw: Any = {"path": "a"}
    for _ in range(times):
        raw = json.dumps(raw)
    assert parse_arguments(raw) == ({"path": "a"} if times < 3 else {RAW: raw})


@pytest.mark.parametrize("raw", ["{", "[1]", "3", "null", '"text"', "[" * 100_000])
def test_what_is_no_object_is_kept_as_it_is(raw: str) -> None:
    assert parse_arguments(raw) == {RAW: raw}


def test_of_names_that_are_alike_the_first_counts() -> None:
    given = {"file_path": "a", "filePath": "b", "New-Name": 3}
    assert plain_names(given) == {"filepath": "a", "newname": 3}


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        pytest.param({"command": " ", "cmd": " ls "}, "ls", id="the first that holds something"),
        pytest.param({"commands": ["ls", "cd a"]}, "ls; cd a", id="several"),
        pytest.param({"command": {"command": "ls", "cmd": "wc"}}, "ls; wc", id="an object"),
        pytest.param({RAW: "ls -l"}, "ls -l", id="a text that is no JSON"),
    ],
)
def test_the_command(arguments: dict[str, Any], command: str) -> None:
    assert find_command(arguments) == command


@pytest.mark.parametrize(
    ("patch", "places"),
    [
        pytest.param(
            ["*** Add File: a", "*** Delete File: b"],
            [Place(path="a", verb="written"), Place(path="b", verb="deleted")],
            id="in pieces",
        ),
        pytest.param("--- a/x.py\n+++ b/x.py\n", [Place(path="x.py", verb="edited")], id="a diff"),
        pytest.param(
            "+++ b/my file.py\t2026-01-01", [Place(path="my file.py", verb="edited")], id="a diff with a date"
        ),
        pytest.param("--- a/x.py\n+++ /dev/null", [], id="a file that goes"),
        pytest.param(
            "*** Update File: a\n*** Move to: b",
            [Place(path="a", verb="edited"), Place(path="b", verb="moved here")],
            id="a file that moves",
        ),
        pytest.param("nothing of that", [], id="no patch"),
    ],
)
def test_the_files_of_a_patch(patch: Any, places: list[Place]) -> None:
    assert find_patched({"patch": patch}) == tuple(places)


@pytest.mark.parametrize(
    ("arguments", "folder"),
    [({"cwd": "/w"}, "/w"), ({"cwd": "", "dir": "/d"}, "/d"), ({}, ""), ({"cwd": 3}, "")],
)
def test_the_folder_of_a_command(arguments: dict[str, Any], folder: str) -> None:
    assert find_folder(arguments) == folder


@pytest.mark.parametrize(
    ("argv", "command"),
    [
        pytest.param(["bash", "-lc", " ls | wc "], "ls | wc", id="a shell's"),
        pytest.param(["bash", "-c"], "bash -c", id="a shell without one"),
        pytest.param(["gcc", "main.c"], "gcc main.c", id="a word that ends with c"),
        pytest.param(["tar", "x", "c"], "tar x c", id="no option"),
        pytest.param(["ls", "-l", "a b"], "ls -l 'a b'", id="another option"),
        pytest.param(["ls -l"], "ls -l", id="one text"),
        pytest.param([], "", id="nothing"),
    ],
)
def test_an_argv_is_one_command(argv: list[str], command: str) -> None:
    assert find_command({"command": argv}) == command


def test_addresses_may_stand_in_objects() -> None:
    urls = [{"uri": " u1 "}, {"href": "u2"}, {"url": "u3"}, {"url": "u1"}]
    assert find_addresses({"urls": urls}) == ("u1", "u2", "u3")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        pytest.param("x", "x", id="a text"),
        pytest.param("", "other", id="an empty text"),
        pytest.param(7, "7", id="a number"),
        pytest.param(0, "0", id="nought"),
        pytest.param(301, "301", id="a larger number"),
        pytest.param(10**30 - 1, "9" * 30, id="the largest number"),
        pytest.param(10**30, "", id="a number too large"),
        pytest.param(-(10**30), "", id="a number too small"),
        pytest.param(True, "other", id="a truth value"),
        pytest.param(3.5, "other", id="a fraction"),
        pytest.param([1], "other", id="a list"),
        pytest.param(None, "other", id="null"),
    ],
)
def test_the_first_text_or_number(value: Any, text: str) -> None:
    assert find_first({"a": value, "b": "other"}, ("a", "b")) == text


def test_no_text_and_no_number_is_an_empty_text() -> None:
    assert find_first({"a": [], "c": "x"}, ("a", "b")) == ""


@pytest.mark.parametrize(
    ("value", "found"),
    [
        pytest.param([[["a"]]], ["a"], id="three lists deep"),
        pytest.param([[[["a"]]]], [], id="four lists deep"),
        pytest.param([{"path": "a"}, {"path": " "}, {"name": "b"}, " "], ["a"], id="objects"),
        pytest.param([[[{"path": "a"}]]], [], id="an object too deep"),
    ],
)
def test_paths_are_looked_for_three_deep(value: Any, found: list[str]) -> None:
    assert [place.path for place in find_places({"paths": value})] == found


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        pytest.param({}, (0, 0), id="none named"),
        pytest.param({"viewrange": []}, (0, 0), id="an empty pair"),
        pytest.param({"viewrange": [], "offset": 4}, (4, 0), id="an empty pair beside another name"),
        pytest.param({"viewrange": [5]}, (5, 0), id="from a line"),
        pytest.param({"viewrange": [5, 9]}, (5, 9), id="a pair"),
        pytest.param({"viewrange": [5, 9, "x"]}, (5, 9), id="a pair and more"),
        pytest.param({"viewrange": [5, "x"]}, (0, 0), id="no pair of numbers"),
        pytest.param({"viewrange": [0, 9]}, (1, 9), id="from nought"),
        pytest.param({"viewrange": [1, 9]}, (1, 9), id="from the first"),
        pytest.param({"viewrange": [5, -1]}, (5, 0), id="to the end"),
        pytest.param({"lines": "1-9"}, (1, 9), id="as text"),
        pytest.param({"lines": "0-9"}, (1, 9), id="as text from nought"),
        pytest.param({"lines": "7-"}, (7, 0), id="as text to the end"),
        pytest.param({"limit": 4}, (1, 4), id="a count alone"),
        pytest.param({"offset": 0, "limit": 4}, (1, 4), id="a count from nought"),
        pytest.param({"offset": 3, "limit": 0}, (3, 0), id="no lines"),
        pytest.param({"offset": 3, "limit": 1}, (3, 3), id="one line"),
        pytest.param({"offset": 3, "limit": 2, "endline": 9}, (3, 9), id="an end beats a count"),
        pytest.param({"offset": "5", "limit": "2"}, (5, 6), id="digits"),
        pytest.param({"offset": "-5"}, (1, 0), id="digits below nought"),
        pytest.param({"offset": "5x"}, (0, 0), id="no digits"),
        pytest.param({"offset": 3.0}, (3, 0), id="a whole fraction"),
        pytest.param({"offset": 3.5}, (0, 0), id="a fraction"),
        pytest.param({"offset": True}, (0, 0), id="a truth value"),
        pytest.param({"offset": 91}, (91, 0), id="a larger number"),
        pytest.param({"offset": 10**9 - 1}, (10**9 - 1, 0), id="the largest number"),
        pytest.param({"offset": 10**9}, (0, 0), id="a number too large"),
        pytest.param({"offset": -(10**9)}, (0, 0), id="a number too small"),
    ],
)
def test_the_lines_of_a_file(arguments: dict[str, Any], lines: tuple[int, int]) -> None:
    assert find_places({"path": " a ", **arguments}) == (Place(path="a", first=lines[0], last=lines[1]),)


def nested(depth: int) -> Any:
    value: Any = "a"
    for _ in range(depth):
        value = {"query": value}
    return value


@pytest.mark.parametrize(
    ("arguments", "query"),
    [
        pytest.param({"queries": [{"query": "a"}, {"pattern": "b"}, " "]}, "a, b", id="objects of a list"),
        pytest.param({"query": [[["a"]]]}, "a", id="three lists deep"),
        pytest.param({"query": [[[["a"]]]]}, "", id="four lists deep"),
        pytest.param({"query": nested(3)}, "a", id="three objects deep"),
        pytest.param({"query": nested(4)}, "", id="four objects deep"),
        pytest.param({}, "", id="none"),
    ],
)
def test_queries_are_joined(arguments: dict[str, Any], query: str) -> None:
    assert find_query(arguments) == query
