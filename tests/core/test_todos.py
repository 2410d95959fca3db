"""The to-do list that a compaction carries over, by the tools of real agents."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.core.messages import Message
from proxy.core.todo_lines import render_reminder, render_todo_list
from proxy.core.todos import Todos, find_todos, holds_list
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
        pytest.param("todowrite", {"todos": [{"text": "a", "done": True}]}, TWO[:1], id="done"),
        pytest.param(
            "todowrite",
            {
                "todos": [
                    {"text": "a", "checked": False},
                    {"text": "b", "completed": False, "status": "later"},
                ]
            },
            [("", "a", "pending"), ("", "b", "later")],
            id="not done, unless a state says more",
        ),
        pytest.param(
            "todowrite",
            {"todos": [" a ", "  ", "", 7, None, {"id": "1"}, {"status": "pending"}, {"content": " b "}]},
            [("", "a", ""), ("", "b", "")],
            id="what holds no text is no item",
        ),
        pytest.param(
            "todowrite",
            {"todos": [{"id": "1", "status": "done"}]},
            [("1", "", "done")],
            id="an id and a state",
        ),
        pytest.param(
            "update_todo_list",
            {
                "todos": "My list:\n[x] a\n- [X] b \n* [ ] c\n2. [] d\n[-] e\n  + [~] f\n"
                "10) [blocked] g\n[in_progress] h\n[ ]\nno box"
            },
            [
                ("", "a", "completed"),
                ("", "b", "completed"),
                ("", "c", "pending"),
                ("", "d", "pending"),
                ("", "e", "in_progress"),
                ("", "f", "in_progress"),
                ("", "g", "blocked"),
                ("", "h", "in_progress"),
            ],
            id="boxes",
        ),
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
        pytest.param(
            [does("todowrite", {"todos": ITEMS}), does("todowrite", {"todos": ITEMS[:1]}, "Error: denied")],
            TWO,
            id="nor does a list that was refused",
        ),
        pytest.param(
            [does("todowrite", {"todos": ITEMS}), does("bash", {"command": "cat"}, "- [ ] not a to-do")],
            TWO,
            id="nor does what a command prints",
        ),
        pytest.param(
            [does("todowrite", {"todos": ITEMS}), does("todowrite", {"todos": []})], [], id="an empty list"
        ),
        pytest.param(
            [does("todowrite", {"todos": ITEMS}), does("todowrite", {"todos": [7]})],
            TWO,
            id="a list that cannot be read changes nothing",
        ),
        pytest.param(
            [does("todowrite", {"todos": ITEMS}), does("todo", {"action": "list", "items": []}, "- [x] z")],
            [("", "z", "completed")],
            id="what a read shows counts, not what it asks",
        ),
    ],
)
def test_calls_are_folded_into_one_list(steps: list[list[Message]], expected: Any) -> None:
    assert found(run(*steps), "todowrite") == expected


def listed(*states: str, first: int = 1) -> list[tuple[str, str, str]]:
    """The items 1: one, 2: two … in these *states*."""
    words = ("one", "two", "three", "four")
    return [(str(n), words[n - 1], state) for n, state in enumerate(states, first)]


START = does(
    "todowrite",
    {
        "todos": [
            {"id": n, "content": text, "status": state} for n, text, state in listed("completed", "", "later")
        ]
    },
)


@pytest.mark.parametrize(
    ("tool", "arguments", "expected"),
    [
        pytest.param(
            "TaskUpdate",
            {"taskId": "2", "status": "done"},
            listed("completed", "done", "later"),
            id="a state",
        ),
        pytest.param(
            "TaskUpdate",
            {"taskId": "3", "subject": "new"},
            [*listed("completed", ""), ("3", "new", "later")],
            id="a text",
        ),
        pytest.param(
            "TaskUpdate",
            {"taskId": "9", "status": "done"},
            listed("completed", "", "later"),
            id="nobody's state",
        ),
        pytest.param(
            "TaskUpdate",
            {"taskId": "9", "subject": "new"},
            [*listed("completed", "", "later"), ("9", "new", "")],
            id="a text of a new id",
        ),
        pytest.param(
            "todo_write",
            {
                "merge": True,
                "todos": [{"id": "9", "status": "done"}, {"id": "2", "status": "done"}, {"content": "four"}],
            },
            [*listed("completed", "done", "later"), ("", "four", "")],
            id="a part of the list, merged",
        ),
        pytest.param(
            "todo_write",
            {"merge": False, "todos": [{"id": "2", "content": "two"}]},
            listed("", first=2),
            id="a list that is not to be merged",
        ),
        pytest.param(
            "todo_write", {"merge": True, "todos": []}, listed("completed", "", "later"), id="nothing"
        ),
        pytest.param(
            "todo", {"action": "toggle", "id": 2}, listed("completed", "completed", "later"), id="toggled"
        ),
        pytest.param(
            "todo", {"action": "toggle", "id": 1}, listed("pending", "", "later"), id="toggled back"
        ),
        pytest.param(
            "todo",
            {"action": "toggle", "id": 1, "status": "blocked"},
            listed("blocked", "", "later"),
            id="toggled to a state",
        ),
        pytest.param(
            "todo", {"action": "update", "id": 1}, listed("completed", "", "later"), id="an update of nothing"
        ),
        pytest.param(
            "todo", {"action": "complete", "id": 3}, listed("completed", "", "completed"), id="completed"
        ),
        pytest.param(
            "todo", {"action": "done", "id": 2}, listed("completed", "completed", "later"), id="done"
        ),
        pytest.param(
            "TaskUpdate",
            {"taskId": "1", "status": "removed"},
            listed("", "later", first=2),
            id="removed by a state",
        ),
        pytest.param("TaskDelete", {"taskId": "1"}, listed("", "later", first=2), id="a tool that removes"),
        pytest.param(
            "todo", {"action": "remove", "id": 1}, listed("", "later", first=2), id="removed by its id"
        ),
        pytest.param(
            "todo",
            {"action": "delete", "todos": [{"id": 1, "content": "x"}, {"id": 2, "content": "y"}]},
            listed("later", first=3),
            id="several removed",
        ),
        pytest.param(
            "todo",
            {"action": "remove", "index": 0},
            listed("completed", "", "later"),
            id="removed, who knows which",
        ),
        pytest.param("clear_todos", {}, [], id="a tool that clears"),
        pytest.param(
            "add_todo", {"text": "four"}, listed("completed", "", "later", ""), id="a tool that adds"
        ),
        pytest.param("todo", {"operation": "clear"}, [], id="an operation"),
        pytest.param("todo", {"command": "clear"}, [], id="a command"),
        pytest.param("todo", {"action": "clear", "operation": "add", "text": "x"}, [], id="the action first"),
        pytest.param(
            "todo",
            {"operation": "add", "command": "clear", "text": "four"},
            listed("completed", "", "later", ""),
            id="then the operation",
        ),
        pytest.param(
            "TaskUpdate", {"action": "clear", "taskId": "1", "status": "done"}, [], id="cleared by any tool"
        ),
        pytest.param(
            "mcp__tasks__TaskUpdate",
            {"taskId": "2", "status": "done"},
            listed("completed", "done", "later"),
            id="a tool with its server before it",
        ),
        pytest.param(
            "tasks.TaskUpdate",
            {"taskId": "2", "status": "done"},
            listed("completed", "done", "later"),
            id="the same with a dot",
        ),
    ],
)
def test_a_call_changes_the_items_that_it_names(tool: str, arguments: Any, expected: Any) -> None:
    assert found(run(START, does(tool, arguments)), "todowrite") == expected


@pytest.mark.parametrize(
    ("tool", "arguments", "expected"),
    [
        pytest.param("todo", {"action": "complete", "text": "b"}, ["completed", "completed"], id="completed"),
        pytest.param("todo", {"action": "remove", "text": "a"}, [None, "in_progress"], id="removed"),
        pytest.param("todo", {"action": "remove", "index": 1}, ["completed", "in_progress"], id="by a place"),
        pytest.param("todo", {"action": "complete", "index": 1}, ["completed", "in_progress"], id="so too"),
        pytest.param(
            "todo_write",
            {"merge": True, "todos": [{"content": "b", "status": "later"}]},
            ["completed", "later"],
            id="merged",
        ),
    ],
)
def test_items_without_ids_are_meant_by_their_texts_and_stay_otherwise(
    tool: str, arguments: Any, expected: list[str | None]
) -> None:
    left = [("", text, state) for text, state in zip("ab", expected, strict=True) if state is not None]
    assert found(run(does("todowrite", {"todos": ITEMS}), does(tool, arguments)), "todowrite") == left


def test_a_text_is_no_id() -> None:
    made = does("todowrite", {"todos": ["1", {"id": "1", "content": "a"}]})
    assert found(run(made, does("todo", {"action": "complete", "id": 1})), "todowrite") == [
        ("", "1", ""),
        ("1", "a", "completed"),
    ]


@pytest.mark.parametrize(
    ("arguments", "result", "ids"),
    [
        pytest.param({"subject": "a"}, "Task #7 created", ["7"], id="one"),
        pytest.param({"subject": "a"}, "Made task 7, before task 8", ["7"], id="the first that is named"),
        pytest.param({"subject": "a"}, '{"task": {"id": "t-7"}}', ["t-7"], id="in JSON"),
        pytest.param({"subject": "a"}, '{"task_id": 7}', ["7"], id="a number in JSON"),
        pytest.param({"id": "own", "subject": "a"}, "Task #7 created", ["own"], id="one that the call names"),
        pytest.param({"subject": "a"}, "ok", ["3"], id="none: its place in the list"),
        pytest.param({"tasks": ["a", "b"]}, "ok", ["3", "4"], id="none for several"),
        pytest.param({"tasks": ["a", "b"]}, "Task #7 and task #9", ["7", "9"], id="several"),
        pytest.param({"tasks": ["a", "b"]}, "Task #7, task #7, task #9", ["7", "9"], id="each once"),
        pytest.param(
            {"tasks": ["a", "b"]}, "Task #7 and others", ["3", "4"], id="fewer than there are items"
        ),
        pytest.param(
            {"tasks": ["a", "b"]}, "task 1 task 2 task 3", ["3", "4"], id="more than there are items"
        ),
        pytest.param(
            {"tasks": ["a", {"id": "own", "name": "b"}]}, "ok", ["3", "own"], id="some of their own"
        ),
        pytest.param({"tasks": []}, "Task #7 created", [], id="nothing"),
        pytest.param({"subject": "a"}, "x" * 492 + " task #7", ["7"], id="in the first 500 characters"),
        pytest.param({"subject": "a"}, "x" * 493 + " task #7", ["3"], id="only there"),
        pytest.param({"tasks": ["a", "b"]}, f"task 7 {'x' * 986} task 9", ["7", "9"], id="500 for each"),
        pytest.param({"tasks": ["a", "b"]}, f"task 7 {'x' * 987} task 9", ["3", "4"], id="and no more"),
    ],
)
def test_new_items_have_the_ids_that_the_result_names(arguments: Any, result: str, ids: list[str]) -> None:
    messages = run(does("todowrite", {"todos": ITEMS}), does("TaskCreate", arguments, result))
    assert found(messages, "todowrite") == [
        *TWO,
        *((n, text, "") for n, text in zip(ids, "ab", strict=False)),
    ]


def test_where_no_call_made_a_list_there_is_none() -> None:
    assert find_todos(does("bash", {"command": "ls"}, "- [x] a"), ["todowrite"]) is None
    assert find_todos(does("todoread", {}, "nothing"), ["todowrite"]) is None
    assert find_todos([], ["todowrite"]) is None
    assert find_todos(does("todo", {"action": "clear"}), ["todowrite"]) == Todos(items=(), message_index=0)


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
        pytest.param(does("TaskUpdate", {"action": "clear"}), True, id="cleared by any tool"),
        pytest.param(does("todowrite", {"todos": []}), True, id="a list that was emptied"),
        pytest.param(does("todowrite", {"todos": ITEMS}, "Error: denied"), False, id="a refused list"),
        pytest.param(does("todoread", {}, "nothing"), False, id="a read that shows nothing"),
        pytest.param(does("bash", {"command": "cat"}, "- [x] a"), False, id="what a command prints"),
        pytest.param(does("todo", {"action": "remove", "id": 1}), False, id="one item less"),
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


@settings(max_examples=80, deadline=None)
@given(messages=conversations(), room=st.integers(-2, 80))
def test_odd_lists_raise_nothing_and_stay_in_their_room(messages: list[Message], room: int) -> None:
    tools = ("todo_write",)
    holds_list(messages, tools)
    text = render_todo_list(find_todos(messages, tools), room, tokens)
    assert text == "" or tokens(text) <= room
    assert text == render_todo_list(find_todos(messages, tools), room, tokens)
