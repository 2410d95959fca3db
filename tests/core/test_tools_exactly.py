"""What a call is, to its last field, and where names and arguments disagree."""

import json
from typing import Any

import pytest

from proxy.core.arguments import Place
from proxy.core.messages import Call
from proxy.core.tools import Act, Deed, act_of, read_call

PATCH = "apply_patch <<E\n*** Add File: a\n+x\nE"


def deed(name: str, arguments: dict[str, Any]) -> Deed:
    return read_call(Call("c", name, json.dumps(arguments)))


@pytest.mark.parametrize(
    ("name", "given", "fields"),
    [
        pytest.param(
            "Read", {"File_Path": "a"}, {"act": Act.READ, "places": (Place(path="a"),)}, id="a read"
        ),
        pytest.param(
            "Write",
            {"File_Path": "a"},
            {"act": Act.WRITE, "places": (Place(path="a", verb="written"),)},
            id="a write",
        ),
        pytest.param(
            "Bash",
            {"Command": "ls", "cwd": "/w"},
            {"act": Act.COMMAND, "command": "ls", "folder": "/w"},
            id="a command",
        ),
        pytest.param(
            "Bash",
            {"Command": PATCH},
            {"act": Act.WRITE, "places": (Place(path="a", verb="written"),)},
            id="a patch through the shell",
        ),
        pytest.param(
            "Grep",
            {"Pattern": "x", "path": "src"},
            {"act": Act.SEARCH, "query": "x", "places": (Place(path="src"),)},
            id="a search",
        ),
        pytest.param("WebFetch", {"Url": "u"}, {"act": Act.FETCH, "addresses": ("u",)}, id="a fetch"),
        pytest.param("TodoWrite", {"To_Dos": []}, {"act": Act.TODO}, id="a to-do list"),
        pytest.param("Task", {"Prompt": "x"}, {"act": Act.JOB}, id="a job"),
        pytest.param("Read", {"Note": "x"}, {"act": Act.OTHER}, id="a read of nothing"),
        pytest.param("WebFetch", {"Note": "x"}, {"act": Act.OTHER}, id="a fetch of nothing"),
        pytest.param("Ponder", {"Note": "x"}, {"act": Act.OTHER}, id="a name that says nothing"),
    ],
)
def test_a_call_is_understood_as_a_whole(name: str, given: dict[str, Any], fields: dict[str, Any]) -> None:
    plain = {key.replace("_", "").lower(): value for key, value in given.items()}
    assert deed(name, given) == Deed(name=name, arguments=plain, given=given, **fields)


@pytest.mark.parametrize(
    ("name", "act"),
    [
        pytest.param("read_file", Act.READ, id="plain"),
        pytest.param("mcp__files__read_file", Act.READ, id="behind a server's name"),
        pytest.param("list__dir", Act.SEARCH, id="what only looks like a server's name"),
        pytest.param("ponder", None, id="not known"),
    ],
)
def test_a_name_alone_may_tell(name: str, act: Act | None) -> None:
    assert act_of(name) is act


@pytest.mark.parametrize(
    ("name", "arguments", "act"),
    [
        pytest.param(
            "bash", {"command": "view", "path": "x"}, Act.COMMAND, id="a shell has no editor's words"
        ),
        pytest.param("bash", {"command": ["ls"], "path": "x"}, Act.COMMAND, id="an argv beside a path"),
        pytest.param("read", {"command": ["x"], "path": "a"}, Act.READ, id="an argv that is no word"),
        pytest.param("read", {"command": "foo", "path": "a"}, Act.READ, id="a word that is no editor's"),
        pytest.param("read", {"command": "insert", "path": "a"}, Act.WRITE, id="an editor's word"),
        pytest.param("edit", {"command": "view", "path": "a"}, Act.READ, id="an editor that reads"),
        pytest.param("edit", {"command": "view", "file": "a"}, Act.WRITE, id="an editor of another kind"),
        pytest.param("bash", {"command": "cat <<E\n+++ b/x\nE"}, Act.COMMAND, id="a diff that is no patch"),
        pytest.param("grep", {"path": "src"}, Act.SEARCH, id="a search of a place"),
        pytest.param("grep", {"pattern": "x"}, Act.SEARCH, id="a search for something"),
        pytest.param("grep", {}, Act.OTHER, id="a search of nothing"),
        pytest.param("ls", {}, Act.SEARCH, id="a listing"),
        pytest.param("list_files", {}, Act.SEARCH, id="a listing by a longer name"),
        pytest.param("open_url", {"url": "u"}, Act.FETCH, id="the word that the arguments bear out"),
        pytest.param("find_things", {"path": "src"}, Act.SEARCH, id="words and a place"),
        pytest.param("find_things", {"query": "x"}, Act.SEARCH, id="words and a query"),
        pytest.param("list_flights", {}, Act.OTHER, id="words alone"),
        pytest.param("run_it", {"command": "ls"}, Act.COMMAND, id="words and a command"),
    ],
)
def test_names_and_arguments_decide_together(name: str, arguments: dict[str, Any], act: Act) -> None:
    assert deed(name, arguments).act is act


@pytest.mark.parametrize(
    ("name", "arguments", "verb"),
    [
        pytest.param("delete_file", {}, "deleted", id="delete"),
        pytest.param("remove_file", {}, "deleted", id="remove"),
        pytest.param("move_file", {}, "moved", id="move"),
        pytest.param("rename_file", {}, "moved", id="rename"),
        pytest.param("create_file", {}, "written", id="create"),
        pytest.param("save_file", {}, "written", id="save"),
        pytest.param("edit_file", {}, "edited", id="edit"),
        pytest.param("save_edit", {}, "edited", id="an edit that is saved"),
        pytest.param("write_edit", {}, "written", id="an edit that is written"),
        pytest.param("write_file", {"command": "foo"}, "written", id="a word that is no editor's"),
        pytest.param("edit", {"command": "create"}, "written", id="an editor that creates"),
        pytest.param("write", {"command": "insert"}, "edited", id="an editor that inserts"),
    ],
)
def test_what_is_done_to_a_file(name: str, arguments: dict[str, Any], verb: str) -> None:
    assert deed(name, {"path": "a", **arguments}).places == (Place(path="a", verb=verb),)
