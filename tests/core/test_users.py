"""Which user messages are kept, and how."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.core.messages import Attachment, Kind, Message, Role, Text
from proxy.core.said import placeholder, said_by_user
from proxy.core.users import render_users
from tests.core.sessions import answers, asks, tokens, user
from tests.core.test_ledger import conversations

PLENTY = 10_000


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("<environment_context>\n<cwd>/w</cwd>\n</environment_context>", id="Codex environment"),
        pytest.param("<turn_aborted>\nThe user interrupted\n</turn_aborted>", id="Codex interruption"),
        pytest.param("<environment_details>\n# Open tabs\n</environment_details>", id="Cline environment"),
        pytest.param("[read_file for 'a.py'] Result:\nx = 1", id="Cline result as text"),
        pytest.param("[ERROR] You did not use a tool in your previous response!", id="Cline prodding"),
        pytest.param("<system-reminder>\nUse the list.\n</system-reminder>", id="Claude Code reminder"),
        pytest.param("<local-command-stdout>x</local-command-stdout>", id="Claude Code command output"),
        pytest.param(
            "<bash-stdout>x</bash-stdout><bash-stderr></bash-stderr>", id="Claude Code shell output"
        ),
        pytest.param(
            "<task-notification><task-id>b</task-id></task-notification>", id="Claude Code notification"
        ),
        pytest.param("x-anthropic-billing-header: cc_version=2.1", id="Claude Code billing header"),
        pytest.param("[Request interrupted by user for tool use]", id="Claude Code interruption"),
        pytest.param("Today's date is Monday, 30 November 2026.", id="Qwen Code date"),
        pytest.param("Observation:\n42", id="smolagents"),
        pytest.param("<returncode>0</returncode>\n<output>x</output>", id="mini-swe-agent"),
        pytest.param("OBSERVATION:\nx", id="SWE-agent"),
        pytest.param(
            "I have *added these files to the chat* so you can edit them.\n\na.py\n```\nx\n```",
            id="aider files",
        ),
        pytest.param("Called the Read tool with the following input: {}", id="opencode attachment"),
        pytest.param("  \n ", id="blank"),
    ],
)
def test_what_a_tool_wrote_in_the_users_name_is_not_kept(text: str) -> None:
    assert render_users([user(text)], PLENTY, PLENTY, tokens) == ""


@pytest.mark.parametrize(
    ("message", "said"),
    [
        pytest.param(
            user("fix <b>it</b>, and `a < b`"), "fix <b>it</b>, and `a < b`", id="markup of the user's own"
        ),
        pytest.param(
            user("<system-reminder>x</system-reminder>", "fix it"), "fix it", id="a reminder in another part"
        ),
        pytest.param(
            user("fix it\n<system-reminder>x</system-reminder>"), "fix it", id="a reminder in the text"
        ),
        pytest.param(user("<tick> never closed"), "<tick> never closed", id="an element that is not closed"),
        pytest.param(
            user("<user_instructions>\nno tabs\n</user_instructions>"),
            "<user_instructions>\nno tabs\n</user_instructions>",
            id="instructions a person wrote",
        ),
        pytest.param(
            user("<command-name>/review</command-name>"),
            "<command-name>/review</command-name>",
            id="a typed command",
        ),
        pytest.param(answers("result", said="and be quick"), "and be quick", id="beside a tool's result"),
        pytest.param(
            user("The observation: it fails"), "The observation: it fails", id="the word in a sentence"
        ),
        pytest.param(asks(("read", {})), "", id="not the assistant"),
    ],
)
def test_what_a_person_wrote_is_kept_word_for_word(message: Message, said: str) -> None:
    assert said_by_user(message) == said


@pytest.mark.parametrize(
    ("file", "text"),
    [
        pytest.param(
            Attachment(kind="image", name="a.png", media_type="image/png", size_bytes=34_200),
            "[image: a.png, image/png, 34 kB]",
            id="all known",
        ),
        pytest.param(Attachment(kind="file", size_bytes=12), "[file: 12 bytes]", id="size only"),
        pytest.param(Attachment(kind="audio", size_bytes=2_500_000), "[audio: 2.5 MB]", id="large"),
        pytest.param(Attachment(kind="image"), "[image]", id="nothing known"),
    ],
)
def test_an_attachment_becomes_a_placeholder(file: Attachment, text: str) -> None:
    assert placeholder(file) == text
    assert (
        said_by_user(Message(role=Role.USER, texts=(Text(Kind.SAID, "see"),), attachments=(file,)))
        == f"see\n{text}"
    )


def test_messages_stay_in_order_and_a_repeat_counts_once_as_its_last() -> None:
    text = render_users([user("go on"), user("rule one"), user("go on")], PLENTY, PLENTY, tokens)
    assert text == "[user message 1 of 2]\nrule one\n\n[user message 2 of 2, the newest of these]\ngo on"


def test_where_room_is_short_the_oldest_and_the_newest_stay_and_a_marker_says_how_many_went() -> None:
    messages = [user(f"message number {n} says something of its own") for n in range(1, 41)]
    text = render_users(messages, 100, 200, tokens)
    assert tokens(text) <= 300
    assert "message number 1 " in text
    assert "message number 2 " in text
    assert "message number 39 " in text
    assert "[user message 40 of 40, the newest of these]\nmessage number 40 " in text
    assert "user messages left out here]" in text
    gone = 40 - text.count("says something")
    assert f"[{gone} user messages left out here]" in text


def test_the_newest_is_whole_up_to_its_own_room_even_without_room_for_others() -> None:
    task = "do this " * 50 + "now"
    text = render_users([user("old"), user(task)], 200, 0, tokens)
    assert text == f"[1 user message left out here]\n\n[user message 2 of 2, the newest of these]\n{task}"


def test_a_message_over_its_room_is_cut_in_its_middle_and_says_how_much() -> None:
    text = render_users([user("begin " + "x" * 10_000 + " end")], 100, 0, tokens)
    assert tokens(text) <= 100
    assert text.startswith("[user message 1 of 1]\nbegin ")
    assert text.endswith(" end")
    assert "characters cut out here …]" in text


def test_one_long_paste_does_not_push_the_others_out() -> None:
    messages = [user("rule: no tabs"), user("x" * 50_000), user("rule: no pushes"), user("task")]
    text = render_users(messages, 100, 200, tokens)
    assert "rule: no tabs" in text
    assert "rule: no pushes" in text
    assert "characters cut out here" in text


@settings(max_examples=150, deadline=None)
@given(messages=conversations(), task_room=st.integers(-3, 60), room=st.integers(-3, 60))
def test_user_messages_raise_nothing_and_stay_in_their_rooms(
    messages: list[Message], task_room: int, room: int
) -> None:
    text = render_users(messages, task_room, room, tokens)
    assert text == "" or tokens(text) <= max(task_room, 0) + max(room, 0)
    assert text == render_users(messages, task_room, room, tokens)


@pytest.mark.parametrize("opening", ["<system-reminder>", "<tick>", "<bash-stdout>"])
def test_elements_that_are_never_closed_cost_linear_time(opening: str) -> None:
    # Quadratic would be minutes here; a timed assertion is not needed to notice that.
    text = (
        opening.replace("system-reminder", "ide_selection") * 100_000
        + "</ide_selection></tick></bash-stdout>"
    )
    assert said_by_user(user(text + opening.replace("system-reminder", "ide_selection") * 100_000))
