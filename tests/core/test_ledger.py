"""What the ledger says of the calls of a range."""

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.core.entries import gather
from proxy.core.entry_lines import counted
from proxy.core.ledger import render_ledger
from proxy.core.messages import Attachment, Call, Kind, Message, Role, Text
from proxy.core.pairs import pair
from proxy.core.steps import read_steps
from proxy.core.tools import Act, read_call
from proxy.dialects.chat_completions import ChatCompletions
from tests.core.sessions import answers, asks, does, run, tokens, user
from tests.support import trajectories

PLENTY = 100_000


def ledger(*steps: list[Message], room: int = PLENTY) -> str:
    return render_ledger(run(*steps), room, tokens)


@pytest.mark.parametrize(
    ("steps", "line"),
    [
        pytest.param(
            [does("read", {"path": "a.py", "offset": o, "limit": 10}, "x") for o in (1, 11, 50)],
            "- a.py lines 1-20, 50-59 x3 [3]",
            id="reads of one file are one line with merged ranges",
        ),
        pytest.param(
            [does("read", {"path": "a.py"}, "x\n[9 more lines. Use offset=40 to continue]")],
            "- a.py lines 1-39 [1]",
            id="a truncated read claims no more than it showed",
        ),
        pytest.param([does("Read", {"file_path": "a.py"})], "- a.py [1]", id="a whole read"),
        pytest.param(
            [does("read", {"path": "a.py"}, "File not found")],
            "- a.py → failed: File not found [1]",
            id="a read that failed",
        ),
        pytest.param(
            [does("write", {"path": "a.py"}), *[does("edit", {"path": "a.py"})] * 3],
            "- a.py: written, edited x3 [4]",
            id="writes and edits of one file are one line",
        ),
        pytest.param(
            [does("edit", {"path": "a.py"}), does("edit", {"path": "a.py"}, "Could not find the text")],
            "- a.py: edited → newest failed: Could not find the text [2]",
            id="an edit that failed last",
        ),
        pytest.param(
            [does("bash", {"command": "make"}, "x.c:1: error: no\n\n\nCommand exited with code 2")],
            "- make → exit 2: x.c:1: error: no [1]",
            id="a command with its status and failure",
        ),
        pytest.param(
            [
                *[does("bash", {"command": "make"}, "no\nCommand exited with code 2")] * 2,
                does("bash", {"command": "make"}),
            ],
            "- make x3 → 2 chars (2 failed before) [3]",
            id="exact repeats are one line with a count",
        ),
        pytest.param(
            [does("bash", {"command": "cat <<'EOF' > a\nx\nEOF"}, "")],
            "- cat <<'EOF' > a \\n x \\n EOF → no output [1]",
            id="a command of several lines is one",
        ),
        pytest.param(
            [does("exec_command", {"cmd": "ls", "workdir": "/w"}, "a\nb")],
            "- ls (in /w) → 2 lines [1]",
            id="where a command ran",
        ),
        pytest.param(
            [does("grep", {"pattern": "x", "path": "src", "include": "*.py"}, "1\n2")],
            '- grep "x" in src *.py → 2 lines [1]',
            id="a search",
        ),
        pytest.param(
            [does("webfetch", {"url": "https://a.example/b"}, "page")],
            "- https://a.example/b → 4 chars [1]",
            id="an address",
        ),
        pytest.param(
            [does("get_user", {"user_id": 7}, "data")],
            "- get_user(user_id=7) → 4 chars [1]",
            id="another call",
        ),
        pytest.param(
            [does("get_user", {"user_id": 7}, None)], "- get_user(user_id=7) → no result [1]", id="no result"
        ),
        pytest.param(
            [does("todowrite", {"todos": []}), does("todowrite", {"todos": [1]})],
            "- todowrite x2 [2]",
            id="to-do calls count, the list itself is elsewhere",
        ),
    ],
)
def test_a_line_says_what_how_it_ended_and_how_often(steps: list[list[Message]], line: str) -> None:
    assert line in ledger(*steps).splitlines()


def test_the_newest_stands_last_in_its_section() -> None:
    lines = ledger(
        does("bash", {"command": "one"}), does("bash", {"command": "two"}), does("bash", {"command": "one"})
    ).splitlines()
    assert [line.split()[1] for line in lines if line.startswith("- ")] == ["two", "one"]


def test_nothing_done_is_nothing_said() -> None:
    assert render_ledger([user("hello")], PLENTY, tokens) == ""
    assert render_ledger(does("read", {"path": "a"}), 0, tokens) == ""


@pytest.mark.parametrize(
    ("steps", "error"),
    [
        pytest.param(
            [does("bash", {"command": "make"}, "no\nexit status 2")],
            "- make → exit 2: no [1]",
            id="unanswered",
        ),
        pytest.param(
            [
                does("bash", {"command": "make"}, "no\nexit status 2"),
                does("bash", {"command": "make"}, "fine"),
            ],
            None,
            id="the same command went well later",
        ),
        pytest.param(
            [
                does("bash", {"command": "a"}, "old\nexit status 2"),
                does("bash", {"command": "b"}, "new\nexit status 3"),
            ],
            "- b → exit 3: new [2]",
            id="the newest of several",
        ),
        pytest.param(
            [does("edit", {"path": "a"}, "Could not find it"), does("edit", {"path": "a"})],
            None,
            id="an edit repeated",
        ),
        pytest.param(
            [does("bash", {"command": "grep x y"}, "Command exited with code 1")],
            None,
            id="grep found nothing",
        ),
        pytest.param(
            [does("bash", {"command": "ls | grep x"}, "Command exited with code 1")],
            None,
            id="a pipe into grep",
        ),
    ],
)
def test_the_newest_failure_that_no_success_answered_stands_last(
    steps: list[list[Message]], error: str | None
) -> None:
    lines = ledger(*steps).splitlines()
    title = "Newest failure that no later success answered:"
    assert (lines[-1] if title in lines else None) == error


OPEN = "Ids still open, or resumable:"


@pytest.mark.parametrize(
    ("steps", "still_open"),
    [
        pytest.param(
            [
                does(
                    "exec_command",
                    {"cmd": "npm run dev"},
                    "Wall time: 1 s\nProcess running with session ID 42\nOutput:",
                )
            ],
            ["- session 42 [1]"],
            id="Codex session",
        ),
        pytest.param(
            [
                does("exec_command", {"cmd": "make"}, "Process running with session ID 42\nOutput:"),
                does(
                    "write_stdin",
                    {"session_id": 42, "chars": ""},
                    "Process running with session ID 42\nOutput:",
                ),
            ],
            ["- session 42 [1]"],
            id="Codex session asked, still running",
        ),
        pytest.param(
            [
                does("exec_command", {"cmd": "make"}, "Process running with session ID 42\nOutput:"),
                does(
                    "write_stdin",
                    {"session_id": 42, "chars": ""},
                    "Process exited with code 0\nOutput:\ndone",
                ),
            ],
            [],
            id="Codex session ended",
        ),
        pytest.param(
            [
                does(
                    "Bash",
                    {"command": "x", "run_in_background": True},
                    "Command running in background with ID: b1. Output",
                )
            ],
            ["- background b1 [1]"],
            id="Claude Code background shell",
        ),
        pytest.param(
            [
                does("Bash", {"command": "x"}, "Command running in background with ID: bash_1"),
                does("KillShell", {"shell_id": "bash_1"}, "Successfully killed shell: bash_1"),
            ],
            [],
            id="Claude Code shell killed",
        ),
        pytest.param(
            [
                does("Bash", {"command": "x"}, "Command running in background with ID: bash_1"),
                does(
                    "BashOutput",
                    {"bash_id": "bash_1"},
                    "<status>completed</status>\n<exit_code>0</exit_code>",
                ),
            ],
            [],
            id="Claude Code shell that ended",
        ),
        pytest.param(
            [
                does("Bash", {"command": "x"}, "Command running in background with ID: b7."),
                [
                    user(
                        "<task-notification><task-id>b7</task-id><status>completed</status></task-notification>"
                    )
                ],
            ],
            [],
            id="Claude Code tells of the end in a user message",
        ),
        pytest.param(
            [does("run_shell_command", {"command": "x &"}, "Output: ok\nBackground PIDs: 54322, 54323\n")],
            ["- pid 54322 [1]", "- pid 54323 [1]"],
            id="Qwen Code processes",
        ),
        pytest.param(
            [
                does("run_shell_command", {"command": "x &"}, "Output: ok\nBackground PIDs: 54322\n"),
                does("run_shell_command", {"command": "kill -9 54322"}, "ok"),
            ],
            [],
            id="a process killed by a command",
        ),
        pytest.param(
            [
                does(
                    "task",
                    {"prompt": "look"},
                    "task_id: ses_389 (for resuming to continue this task if needed)\n\nok",
                )
            ],
            ["- task ses_389 [1]"],
            id="opencode sub-agent, resumable",
        ),
        pytest.param(
            [does("spawn_agent", {"message": "go"}, '{"agent_id":"0199a"}')],
            ["- agent 0199a [1]"],
            id="Codex agent",
        ),
        pytest.param(
            [
                does("spawn_agent", {"message": "go"}, '{"agent_id":"0199a"}'),
                does("close_agent", {"id": "0199a"}, "{}"),
            ],
            [],
            id="Codex agent closed",
        ),
        pytest.param(
            [does("start_build", {"target": "x"}, '{"job_id": "j-9"}')],
            ["- job j-9 [1]"],
            id="unknown tool, a job",
        ),
        pytest.param(
            [does("read", {"path": "a"}, "Process running with session ID 42")],
            [],
            id="a file that has the words",
        ),
        pytest.param(
            [does("bash", {"command": "cat log"}, "session_id: abc1")], [], id="output that has an id"
        ),
    ],
)
def test_ids_are_listed_until_something_ends_them(steps: list[list[Message]], still_open: list[str]) -> None:
    lines = ledger(*steps).splitlines()
    found = lines[lines.index(OPEN) + 1 :] if OPEN in lines else []
    assert [line for line in found if re.fullmatch(r"- \w+ \S+ \[\d+\]", line)] == still_open


def test_secrets_and_control_tokens_do_not_reach_the_ledger() -> None:
    key = "sk-ant-" + "a1B2" * 8
    text = ledger(
        does("bash", {"command": f"curl -H 'x-api-key: {key}' <|im_start|>"}, f"error: {key}\nexit status 1")
    )
    assert key not in text
    assert "<|im_start|>" not in text
    assert "[secret: Anthropic key]" in text


def session(files: int) -> list[Message]:
    steps = []
    for n in range(files):
        steps += [
            does("read", {"path": f"/work/project/src/part{n % 7}/file{n}.py"}, "x\ny"),
            does("edit", {"path": f"/work/project/src/part{n % 7}/file{n}.py"}),
            does("bash", {"command": f"cd /work/project && pytest tests/test_file{n}.py"}, "1 passed"),
        ]
    return run(*steps)


@pytest.mark.parametrize("room", [10, 30, 60, 100, 200, 400, 800, 1600, 3200, 6400])
def test_the_ledger_stays_in_its_room_and_counts_what_it_merges(room: int) -> None:
    text = render_ledger(session(40), room, tokens)
    assert tokens(text) <= room
    if text:
        assert text.startswith("120 calls: ")
    if room >= 200:
        merged = sum(int(n) for n in re.findall(r"merged: (\d+)", text))
        listed = sum(line.startswith("- ") and "merged: " not in line for line in text.splitlines())
        assert merged + listed == 120


def test_what_was_changed_is_merged_last() -> None:
    text = render_ledger(session(40), 800, tokens)
    kept = {title: text.count(f"{title}") for title in ("edited [", "passed", "pytest")}
    assert kept["edited ["] > kept["pytest"]


def test_paths_and_folders_are_shortened_before_anything_is_merged() -> None:
    messages = session(10)
    whole = tokens(render_ledger(messages, PLENTY, tokens))
    text = render_ledger(messages, whole * 3 // 4, tokens)
    assert "merged" not in text
    assert "Paths of files are below /work/project/src/" in text
    assert "@ in commands: cd /work/project &&" in text


# Odd conversations: what a model or a client can send and nobody meant.
_NAMES = st.sampled_from(
    ["read", "Bash", "apply_patch", "grep", "todo_write", "Task", "webfetch", "x", "", "mcp__a__"]
)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
_KEYS = st.sampled_from(
    ["path", "command", "cmd", "files", "offset", "limit", "url", "pattern", "todos", "plan", "id", ""]
)
_ARGUMENTS = st.dictionaries(_KEYS, _VALUES, max_size=4).map(json.dumps) | st.text(max_size=60)
_RESULTS = st.text(max_size=80) | st.sampled_from(
    [
        "Command exited with code 1",
        '{"metadata": {"exit_code": 3}}',
        "Process running with session ID 4",
        "{",
        "\ud800",
    ]
)


@st.composite
def conversations(draw: st.DrawFn) -> list[Message]:
    messages: list[Message] = []
    for _ in range(draw(st.integers(0, 8))):
        ids = tuple(draw(st.lists(st.sampled_from(["a", "b", ""]), max_size=3)))
        calls = tuple(Call(i, draw(_NAMES), draw(_ARGUMENTS)) for i in ids)
        messages.append(Message(role=Role.ASSISTANT, calls=calls))
        for answered in draw(st.lists(st.sampled_from(["a", "b", "", "?"]), max_size=3)):
            texts = (Text(Kind.RESULT, draw(_RESULTS)), Text(Kind.SAID, draw(st.text(max_size=20))))
            messages.append(Message(role=Role.TOOL, texts=texts, answers=(answered,)))
        if draw(st.booleans()):
            file = Attachment(kind="image", name=draw(st.text(max_size=5)), size_bytes=draw(st.integers()))
            messages.append(
                Message(
                    role=Role.USER, texts=(Text(Kind.SAID, draw(st.text(max_size=40))),), attachments=(file,)
                )
            )
    return messages


@settings(max_examples=150, deadline=None)
@given(messages=conversations(), room=st.integers(-5, 300))
def test_odd_conversations_raise_nothing_and_stay_in_room(messages: list[Message], room: int) -> None:
    text = render_ledger(messages, room, tokens)
    assert text == "" or tokens(text) <= room
    assert text == render_ledger(messages, room, tokens)


@settings(max_examples=100, deadline=None)
@given(messages=conversations())
def test_every_call_counts_in_an_entry(messages: list[Message]) -> None:
    steps = read_steps(messages)
    entries = gather(steps)
    assert sum(entry.calls for entry in entries) >= len(steps)
    assert {step.number for step in steps} >= {entry.newest for entry in entries}


def _said(call: Call) -> str:
    """What the ledger must show of *call*, at the least."""
    deed = read_call(call)
    if deed.places:
        return deed.places[0].path
    telling = deed.command or deed.query or (deed.addresses[0] if deed.addresses else deed.name)
    return telling.strip().splitlines()[0][:60] if telling.strip() else ""


@pytest.mark.parametrize("name", trajectories.NAMES)
def test_every_distinct_call_of_a_recorded_session_is_in_the_ledger(name: str) -> None:
    recorded = trajectories.load(name)
    body = json.dumps({"model": "m", "messages": recorded.messages, "tools": recorded.tools}).encode()
    conversation = ChatCompletions().parse(body).conversation
    turns = conversation.turns
    for end in {turns[len(turns) // 3].end, turns[len(turns) * 2 // 3].end, turns[-1].end}:
        replaced = conversation.messages[conversation.brief_end : end]
        text = render_ledger(replaced, PLENTY, tokens)
        for made in pair(replaced):
            assert _said(made.call) in text
        for room in (100, 500, 1500):
            small = render_ledger(replaced, room, tokens)
            assert 0 < tokens(small) <= room
            assert small.startswith(f"{len(pair(replaced))} call")


def test_thousands_of_calls_are_merged_into_a_small_room() -> None:
    batch = asks(*[("read", {"path": f"f{n}"}) for n in range(2000)])
    text = render_ledger([batch, *[answers("x", f"c{n}") for n in range(2000)]], 500, tokens)
    assert "2000 calls: 2000 reads." in text


@pytest.mark.parametrize(
    ("times", "said"),
    [
        pytest.param(1, "1 command", id="one"),
        pytest.param(2, "2 commands", id="two"),
    ],
)
def test_calls_are_counted_in_plain_grammar(times: int, said: str) -> None:
    assert counted(Act.COMMAND, times) == said
