"""The to-do list that a compaction carries over, by the tools of real agents."""

from typing import Any

import pytest
from hypothesis import given, settings

from proxy.core.messages import Message
from proxy.core.todos import find_todos, render_todos
from tests.core.sessions import does, run
from tests.core.test_ledger import conversations

TWO = [("", "a", "completed"), ("", "b", "in_progress")]
NUMBERED = [("1", "a", "completed"), ("2", "b", "in_progress")]
ITEMS = [{"content": "a", "status": "completed"}, {"content": "b", "status": "in_progress"}]


def found(messages: list[Message], *tools: str) -> list[tuple[str, str, str]]:
    todos = find_todos(messages, tools)
    return [(item.id, item.text, item.state) for item in todos.items] if todos else []


@pytest.mark.parametrize(
    ("tool", "arguments", "expected"),
    [
        pytest.param("todowrite", {"todos": ITEMS}, TWO, id="opencode"),
        pytest.param("TodoWrite", {"todos": [i | {"activeForm": "x"} for i in ITEMS]}, TWO, id="Claude Code"),
        pytest.param(
            "update_plan",
            {
                "explanation": "x",
                "plan": [{"step": "a", "status": "completed"}, {"step": "b", "status": "in_progress"}],
            },
            TWO,
            id="Codex",
        ),
        pytest.param(
            "todo_write",
            {"todos": [i | {"id": str(n)} for n, i in enumerate(ITEMS, 1)]},
            NUMBERED,
            id="Qwen Code",
        ),
        pytest.param(
            "write_todos",
            {"todos": [{"description": "a", "status": "completed"}, ITEMS[1]]},
            TWO,
            id="Gemini CLI",
        ),
        pytest.param("update_todo_list", {"todos": "[x] a\n[-] b"}, TWO, id="Roo Code, one text"),
        pytest.param(
            "manage_todo_list",
            {
                "operation": "write",
                "todoList": [
                    {"id": 1, "title": "a", "status": "completed"},
                    {"id": 2, "title": "b", "status": "in_progress"},
                ],
            },
            NUMBERED,
            id="VS Code",
        ),
        pytest.param("todo", {"todos": ["a", "b"]}, [("", "a", ""), ("", "b", "")], id="plain texts"),
        pytest.param(
            "todo_write",
            {"todos": '[{"content": "a", "status": "completed"}]'},
            TWO[:1],
            id="a list in a string",
        ),
        pytest.param("todowrite", {"todos": [{"text": "a", "done": True}]}, TWO[:1], id="done or not"),
    ],
)
def test_a_list_is_taken_word_for_word_with_its_states(tool: str, arguments: Any, expected: Any) -> None:
    assert found(does(tool, arguments), tool) == expected


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        pytest.param(
            [
                does(
                    "TaskCreate", {"subject": "a", "description": "long"}, "Task #1 created successfully: a"
                ),
                does(
                    "TaskCreate", {"subject": "b", "description": "long"}, "Task #2 created successfully: b"
                ),
                does("TaskUpdate", {"taskId": "1", "status": "completed"}, "Updated task #1 status"),
            ],
            [("1", "a", "completed"), ("2", "b", "")],
            id="Claude Code tasks",
        ),
        pytest.param(
            [
                does("TaskCreate", {"subject": "a"}, "Task #1 created successfully: a"),
                does("TaskUpdate", {"taskId": "1", "status": "deleted"}, "Updated task #1"),
            ],
            [],
            id="a task deleted by its state",
        ),
        pytest.param(
            [does("TaskList", {}, "#1 [completed] a\n#2 [in_progress] b")],
            NUMBERED,
            id="a list that was read",
        ),
        pytest.param(
            [
                does("todo_write", {"todos": [{"id": "1", "content": "a", "status": "pending"}]}),
                does(
                    "todo_write",
                    {
                        "merge": True,
                        "todos": [
                            {"id": "1", "content": "a", "status": "completed"},
                            {"id": "2", "content": "b", "status": "in_progress"},
                        ],
                    },
                ),
            ],
            NUMBERED,
            id="Cursor, merged",
        ),
        pytest.param(
            [
                does("todo", {"action": "add", "text": "a"}, "Added todo #1: a"),
                does("todo", {"action": "toggle", "id": 1}, "Todo #1 completed"),
            ],
            [("1", "a", "completed")],
            id="pi extension",
        ),
        pytest.param(
            [does("todo", {"action": "add", "text": "a"}), does("todo", {"action": "clear"})],
            [],
            id="cleared",
        ),
        pytest.param(
            [does("todowrite", {"todos": ITEMS}), does("todowrite", {"todos": ITEMS[:1]})],
            TWO[:1],
            id="the newest wins",
        ),
        pytest.param(
            [does("todowrite", {"todos": ITEMS}), does("todowrite", {"todos": []}, "Error: invalid input")],
            TWO,
            id="a call that failed changes nothing",
        ),
        pytest.param(
            [does("todowrite", {"todos": ITEMS}), does("todoread", {}, "[]")],
            TWO,
            id="a read changes nothing",
        ),
    ],
)
def test_calls_are_folded_into_one_list(steps: list[list[Message]], expected: Any) -> None:
    assert found(run(*steps), "todowrite") == expected


def test_the_index_is_that_of_the_newest_change() -> None:
    todos = find_todos(run(does("read", {"path": "a"}), does("todowrite", {"todos": ITEMS})), ["todowrite"])
    assert todos is not None
    assert todos.message_index == 2


@pytest.mark.parametrize(
    ("tools", "has"),
    [
        pytest.param(["read", "bash", "edit", "write"], False, id="pi"),
        pytest.param(["bash"], False, id="mini-swe-agent"),
        pytest.param([], False, id="aider"),
        pytest.param(["read", "task", "todowrite"], True, id="opencode"),
        pytest.param(["Task", "Bash"], False, id="a sub-agent is no list"),
        pytest.param(["exec_command", "update_plan"], True, id="Codex"),
        pytest.param(["TaskCreate", "TaskList"], True, id="Claude Code"),
    ],
)
def test_agents_without_a_list_get_neither_list_nor_reminder(tools: list[str], has: bool) -> None:
    messages = does("todowrite", {"todos": ITEMS})
    assert (find_todos(messages, tools) is not None) is has
    assert bool(render_todos(find_todos(messages, tools), tools)) is has
    assert bool(render_todos(None, tools, is_newer_in_tail=True)) is has


def test_the_list_comes_with_a_reminder_that_names_the_reading_tool() -> None:
    tools = ["todowrite", "todoread"]
    text = render_todos(find_todos(does("todowrite", {"todos": ITEMS}), tools), tools)
    assert text.startswith("- [completed] a\n- [in_progress] b\n\n<system-reminder>\n")
    assert text.endswith("</system-reminder>")
    assert "`todoread`" in text
    assert "todoread" not in render_todos(
        find_todos(does("todowrite", {"todos": ITEMS}), tools), ["todowrite"]
    )


def test_where_the_tail_holds_a_newer_list_only_the_reminder_is_given() -> None:
    todos = find_todos(does("todowrite", {"todos": ITEMS}), ["todowrite"])
    text = render_todos(todos, ["todowrite"], is_newer_in_tail=True)
    assert text.startswith("<system-reminder>")
    assert "[completed]" not in text


def test_without_a_list_there_is_no_reminder() -> None:
    assert render_todos(None, ["todowrite"]) == ""


@settings(max_examples=150, deadline=None)
@given(messages=conversations())
def test_odd_lists_raise_nothing(messages: list[Message]) -> None:
    tools = ("todo_write",)
    todos = find_todos(messages, tools)
    assert render_todos(todos, tools) == render_todos(find_todos(messages, tools), tools)
