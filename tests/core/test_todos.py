"""The to-do list that a compaction carries over, by the tools of real agents."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.core.messages import Message
from proxy.core.todo_lines import render_reminder, render_todo_list
from proxy.core.todos import find_todos, holds_list
from tests.core.sessions import does, run, tokens
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
    assert bool(render_reminder(find_todos(messages, tools), tools)) is has
    assert bool(render_reminder(None, tools, is_newer_in_tail=True)) is has


@pytest.mark.parametrize(
    ("steps", "whole"),
    [
        pytest.param(does("todowrite", {"todos": ITEMS}), True, id="a list"),
        pytest.param(does("TaskList", {}, "#1 [completed] a"), True, id="a list that was read"),
        pytest.param(does("todo", {"action": "clear"}), True, id="a list that was cleared"),
        pytest.param(does("todowrite", {"todos": []}, "Error: invalid input"), False, id="a failed call"),
        pytest.param(does("TaskUpdate", {"taskId": "1", "status": "completed"}), False, id="one item"),
        pytest.param(does("TaskCreate", {"subject": "c"}, "Task #3 created"), False, id="one more item"),
        pytest.param(does("todo", {"action": "toggle", "id": 1}), False, id="one item, by an action"),
        pytest.param(does("todo_write", {"merge": True, "todos": ITEMS[:1]}), False, id="items to merge"),
        pytest.param(does("bash", {"command": "ls"}), False, id="no list at all"),
    ],
)
def test_only_a_whole_list_in_the_tail_is_a_newer_one(steps: list[Message], whole: bool) -> None:
    assert holds_list(steps, ["todowrite"]) is whole
    assert holds_list(steps, ["bash"]) is False


@settings(max_examples=150, deadline=None)
@given(messages=conversations(), room=st.integers(-2, 80))
def test_odd_lists_raise_nothing_and_stay_in_their_room(messages: list[Message], room: int) -> None:
    tools = ("todo_write",)
    holds_list(messages, tools)
    text = render_todo_list(find_todos(messages, tools), room, tokens)
    assert text == "" or tokens(text) <= room
    assert text == render_todo_list(find_todos(messages, tools), room, tokens)
