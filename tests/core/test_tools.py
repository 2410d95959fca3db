"""What a call is, told by the tools of real agents. One row is one tool."""

import json
from typing import Any

import pytest

from proxy.core.messages import Call
from proxy.core.tools import Act, Deed, read_call

PATCH = "*** Begin Patch\n*** Update File: src/a.py\n@@\n-x\n+y\n*** Add File: src/b.py\n+z\n*** End Patch"


def deed(name: str, arguments: Any) -> Deed:
    raw = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return read_call(Call("c", name, raw))


def lines(read: Deed) -> list[tuple[str, int, int]]:
    return [(place.path, place.first, place.last) for place in read.places]


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        pytest.param("read", {"path": "a.py"}, [("a.py", 0, 0)], id="pi read"),
        pytest.param("read", {"path": "a.py", "offset": 10}, [("a.py", 10, 0)], id="pi read from a line"),
        pytest.param(
            "read", {"path": "a.py", "offset": 10, "limit": 5}, [("a.py", 10, 14)], id="pi read of lines"
        ),
        pytest.param("read", {"filePath": "/w/a.py", "limit": 50}, [("/w/a.py", 1, 50)], id="opencode read"),
        pytest.param("view_image", {"path": "/w/a.png"}, [("/w/a.png", 0, 0)], id="Codex view_image"),
        pytest.param(
            "Read",
            {"file_path": "/w/a.py", "offset": 3, "limit": 2},
            [("/w/a.py", 3, 4)],
            id="Claude Code Read",
        ),
        pytest.param(
            "NotebookRead", {"notebook_path": "n.ipynb"}, [("n.ipynb", 0, 0)], id="Claude Code notebook"
        ),
        pytest.param("read_file", {"path": "a.py"}, [("a.py", 0, 0)], id="Cline read_file"),
        pytest.param(
            "read_files",
            {"files": [{"path": "a.py", "start_line": 2, "end_line": 9}, {"path": "b.py"}]},
            [("a.py", 2, 9), ("b.py", 0, 0)],
            id="Cline 3 read_files",
        ),
        pytest.param(
            "read_file",
            {"absolute_path": "/w/a.py", "offset": 0, "limit": 20},
            [("/w/a.py", 1, 20)],
            id="Qwen Code",
        ),
        pytest.param("read_many_files", {"paths": ["a", "b"]}, [("a", 0, 0), ("b", 0, 0)], id="Gemini CLI"),
        pytest.param("read_file", {"target_file": "a.py"}, [("a.py", 0, 0)], id="Cursor"),
        pytest.param(
            "str_replace_editor",
            {"command": "view", "path": "/w/a.py", "view_range": [5, -1]},
            [("/w/a.py", 5, 0)],
            id="SWE-agent view",
        ),
        pytest.param("mcp__files__read_file", {"path": "a.py"}, [("a.py", 0, 0)], id="behind MCP"),
        pytest.param("functions.read", {"filename": "a.py"}, [("a.py", 0, 0)], id="with a namespace"),
        pytest.param("show_document", {"path": "a.md"}, [("a.md", 0, 0)], id="unknown tool, known words"),
        pytest.param("read", '"{\\"path\\": \\"a.py\\"}"', [("a.py", 0, 0)], id="encoded twice"),
        pytest.param("read", {"path": "a.py", "lines": "7-9"}, [("a.py", 7, 9)], id="lines as text"),
    ],
)
def test_a_read_names_its_file_and_lines(
    name: str, arguments: Any, expected: list[tuple[str, int, int]]
) -> None:
    read = deed(name, arguments)
    assert (read.act, lines(read)) == (Act.READ, expected)


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        pytest.param("write", {"path": "a.py", "content": "x"}, [("a.py", "written")], id="pi write"),
        pytest.param(
            "edit", {"path": "a.py", "oldText": "x", "newText": "y"}, [("a.py", "edited")], id="pi edit"
        ),
        pytest.param(
            "write", {"filePath": "a.py", "content": "x"}, [("a.py", "written")], id="opencode write"
        ),
        pytest.param(
            "edit",
            {"filePath": "a.py", "oldString": "x", "newString": "y"},
            [("a.py", "edited")],
            id="opencode edit",
        ),
        pytest.param(
            "apply_patch",
            {"patchText": PATCH},
            [("src/a.py", "edited"), ("src/b.py", "written")],
            id="opencode",
        ),
        pytest.param(
            "apply_patch", PATCH, [("src/a.py", "edited"), ("src/b.py", "written")], id="Codex, plain text"
        ),
        pytest.param(
            "apply_patch",
            {"input": PATCH},
            [("src/a.py", "edited"), ("src/b.py", "written")],
            id="Codex, JSON",
        ),
        pytest.param(
            "shell",
            {"command": ["bash", "-lc", f"apply_patch <<'EOF'\n{PATCH}\nEOF"]},
            [("src/a.py", "edited"), ("src/b.py", "written")],
            id="Codex, through the shell",
        ),
        pytest.param(
            "Write", {"file_path": "a.py", "content": ""}, [("a.py", "written")], id="Claude Code Write"
        ),
        pytest.param(
            "Edit", {"file_path": "a.py", "old_string": "x"}, [("a.py", "edited")], id="Claude Code Edit"
        ),
        pytest.param(
            "MultiEdit", {"file_path": "a.py", "edits": []}, [("a.py", "edited")], id="Claude Code MultiEdit"
        ),
        pytest.param(
            "NotebookEdit", {"notebook_path": "n.ipynb"}, [("n.ipynb", "edited")], id="Claude Code notebook"
        ),
        pytest.param(
            "write_to_file", {"path": "a.py", "content": ""}, [("a.py", "written")], id="Cline write_to_file"
        ),
        pytest.param(
            "replace_in_file", {"path": "a.py", "diff": "x"}, [("a.py", "edited")], id="Cline replace_in_file"
        ),
        pytest.param("write_file", {"file_path": "a.py"}, [("a.py", "written")], id="Qwen Code write_file"),
        pytest.param("edit", {"file_path": "a.py"}, [("a.py", "edited")], id="Qwen Code edit"),
        pytest.param("replace", {"file_path": "a.py"}, [("a.py", "edited")], id="Gemini CLI replace"),
        pytest.param("edit_file", {"target_file": "a.py"}, [("a.py", "edited")], id="Cursor edit_file"),
        pytest.param("delete_file", {"target_file": "a.py"}, [("a.py", "deleted")], id="Cursor delete_file"),
        pytest.param(
            "str_replace_editor",
            {"command": "create", "path": "a.py"},
            [("a.py", "written")],
            id="SWE-agent create",
        ),
        pytest.param(
            "str_replace_based_edit_tool",
            {"command": "insert", "path": "a.py"},
            [("a.py", "edited")],
            id="text editor",
        ),
    ],
)
def test_a_write_names_its_files_and_what_it_does(
    name: str, arguments: Any, expected: list[tuple[str, str]]
) -> None:
    read = deed(name, arguments)
    assert (read.act, [(p.path, p.verb) for p in read.places]) == (Act.WRITE, expected)


@pytest.mark.parametrize(
    ("name", "arguments", "command"),
    [
        pytest.param("bash", {"command": "ls -l"}, "ls -l", id="pi, opencode, mini-swe-agent bash"),
        pytest.param("shell", {"command": ["bash", "-lc", "ls -l"]}, "ls -l", id="Codex shell"),
        pytest.param(
            "shell", {"command": ["git", "commit", "-m", "a b"]}, "git commit -m 'a b'", id="Codex argv"
        ),
        pytest.param(
            "exec_command", {"cmd": "ls -l", "yield_time_ms": 1000}, "ls -l", id="Codex exec_command"
        ),
        pytest.param("Bash", {"command": "ls -l", "run_in_background": True}, "ls -l", id="Claude Code Bash"),
        pytest.param("execute_command", {"command": "ls -l"}, "ls -l", id="Cline execute_command"),
        pytest.param("run_commands", {"commands": ["ls -l", "pwd"]}, "ls -l; pwd", id="Cline 3 run_commands"),
        pytest.param("run_shell_command", {"command": "ls -l", "directory": "x"}, "ls -l", id="Qwen Code"),
        pytest.param("run_in_terminal", {"command": "ls -l"}, "ls -l", id="VS Code"),
        pytest.param("python", {"code": "print(1)"}, "print(1)", id="code interpreter"),
        pytest.param("python_interpreter", "print(1)", "print(1)", id="smolagents, plain text"),
        pytest.param("bash", {"command": "cat a.py"}, "cat a.py", id="a shell read stays a command"),
    ],
)
def test_a_command_is_one_text(name: str, arguments: Any, command: str) -> None:
    read = deed(name, arguments)
    assert (read.act, read.command) == (Act.COMMAND, command)


@pytest.mark.parametrize(
    ("name", "arguments", "query", "paths"),
    [
        pytest.param(
            "grep", {"pattern": "x", "path": "src", "include": "*.py"}, "x", ["src"], id="opencode grep"
        ),
        pytest.param("glob", {"pattern": "**/*.py"}, "**/*.py", [], id="opencode glob"),
        pytest.param("list", {"path": "src"}, "", ["src"], id="opencode list"),
        pytest.param("Grep", {"pattern": "x", "glob": "*.py"}, "x", [], id="Claude Code Grep"),
        pytest.param("LS", {"path": "/w"}, "", ["/w"], id="Claude Code LS"),
        pytest.param("WebSearch", {"query": "x y"}, "x y", [], id="Claude Code WebSearch"),
        pytest.param("search_files", {"path": "src", "regex": "x"}, "x", ["src"], id="Cline search_files"),
        pytest.param("search_codebase", {"queries": ["x", "y"]}, "x, y", [], id="Cline 3 search_codebase"),
        pytest.param("list_files", {}, "", [], id="Cline list_files"),
        pytest.param("grep_search", {"pattern": "x"}, "x", [], id="Qwen Code grep_search"),
        pytest.param("search_file_content", {"pattern": "x"}, "x", [], id="Gemini CLI"),
    ],
)
def test_a_search_says_what_and_where(name: str, arguments: Any, query: str, paths: list[str]) -> None:
    read = deed(name, arguments)
    assert (read.act, read.query, [p.path for p in read.places]) == (Act.SEARCH, query, paths)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        pytest.param("webfetch", {"url": "https://a.example/"}, id="opencode"),
        pytest.param("WebFetch", {"url": "https://a.example/", "prompt": "x"}, id="Claude Code"),
        pytest.param("web_fetch", {"url": "https://a.example/"}, id="Qwen Code"),
        pytest.param("fetch_web_content", {"requests": [{"url": "https://a.example/"}]}, id="Cline 3"),
        pytest.param("browser_action", {"action": "launch", "url": "https://a.example/"}, id="Cline"),
    ],
)
def test_a_fetch_has_its_address(name: str, arguments: Any) -> None:
    read = deed(name, arguments)
    assert (read.act, read.addresses) == (Act.FETCH, ("https://a.example/",))


@pytest.mark.parametrize(
    ("name", "act"),
    [
        *(
            pytest.param(name, Act.TODO, id=name)
            for name in ("todowrite", "todoread", "update_plan", "TodoWrite")
        ),
        *(
            pytest.param(name, Act.TODO, id=name)
            for name in ("TaskCreate", "TaskUpdate", "TaskList", "todo_write")
        ),
        *(
            pytest.param(name, Act.TODO, id=name)
            for name in ("write_todos", "update_todo_list", "manage_todo_list")
        ),
        *(pytest.param(name, Act.JOB, id=name) for name in ("task", "Task", "spawn_agent", "write_stdin")),
        *(
            pytest.param(name, Act.JOB, id=name)
            for name in ("BashOutput", "KillShell", "TaskOutput", "close_agent")
        ),
        *(
            pytest.param(name, Act.OTHER, id=name)
            for name in ("skill", "ask_followup_question", "attempt_completion")
        ),
    ],
)
def test_lists_and_jobs_go_by_name(name: str, act: Act) -> None:
    assert deed(name, {"note": "x"}).act is act


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        pytest.param(
            "search_direct_flight",
            {"origin": "JFK", "date": "2024-05-20"},
            id="a search that is none of files",
        ),
        pytest.param("get_user_details", {"user_id": "u"}, id="get, but no path"),
        pytest.param("create_issue", {"title": "t", "body": "b"}, id="create, but no path"),
        pytest.param("read", {}, id="a read of nothing"),
        pytest.param("bash", {"restart": True}, id="a command without one"),
        pytest.param("read", "{broken", id="arguments that are no JSON"),
        pytest.param("read", "[1, 2]", id="arguments that are no object"),
        pytest.param("", {}, id="no name"),
    ],
)
def test_what_shows_nothing_is_another_call(name: str, arguments: Any) -> None:
    assert deed(name, arguments).act is Act.OTHER
