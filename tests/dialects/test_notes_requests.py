"""The notes request of every dialect extends the view it notes; only the allowed fields differ: law 5."""

import json
from typing import Any

import pytest

from proxy.core.messages import Role
from proxy.core.rewrite import Rewrite
from proxy.core.splice import splice
from proxy.dialects.anthropic_messages import ANTHROPIC_MESSAGES
from proxy.dialects.base import NotesFormat
from proxy.dialects.responses import RESPONSES
from tests.dialects.conversations import (
    SYSTEM,
    TASK,
    Messages,
    body_of,
    conversations,
    formats,
    loop,
    others,
    says,
    user,
)
from tests.support.formats import FORMATS, Format
from tests.support.prompts import Rule, refusal, text_of

ASK = "[From the harness] Write the record."
HOW = NotesFormat(instruction=ASK, limit=300, reasoning=100, forbid_tools=True)
LOOSE = NotesFormat(instruction=ASK, limit=300, reasoning=100, forbid_tools=False)


@formats
@conversations
def test_the_view_is_a_prefix_and_the_instruction_stands_in_the_last_message(
    format_: Format, messages: Messages
) -> None:
    raw = format_.wire(body_of(messages))
    parsed = format_.dialect.parse(raw)
    view = splice(parsed.conversation, None)
    rendered = format_.dialect.render_notes(parsed, view, HOW)
    sent, got = format_.slices(raw), format_.slices(rendered)
    last = parsed.conversation.messages[-1]
    if last.role in (Role.USER, Role.TOOL):
        assert got[:-1] == sent[:-1] and len(got) == len(sent)
        before, after = format_.as_chat(raw)["messages"], format_.as_chat(rendered)["messages"]
        # Not a message more, in what the model reads either: it would lose the reasoning before it.
        assert len(after) == len(before) and after[:-1] == before[:-1]
        assert text_of(after[-1]).startswith(text_of(before[-1])) and text_of(after[-1]).endswith(ASK)
    else:
        assert got[:-1] == sent
        assert json.loads(got[-1])["role"] == "user" and ASK in got[-1]
    assert refusal(format_.as_chat(rendered)["messages"], frozenset({Rule.ORPHAN_RESULT})) is None
    assert format_.dialect.render(parsed, view) == raw


@formats
def test_over_a_compacted_view_the_block_is_noted_too(format_: Format) -> None:
    parsed = format_.dialect.parse(format_.wire(body_of([SYSTEM, TASK, *loop(4)])))
    conversation = parsed.conversation
    start = conversation.turns[2].start - conversation.brief_end
    view = splice(conversation, Rewrite(seen=start, replaced=start, block="<record-1>", notes="n"))
    rendered = format_.dialect.render(parsed, view)
    noted = format_.dialect.render_notes(parsed, view, HOW)
    assert format_.slices(noted)[:-1] == format_.slices(rendered)[:-1]
    assert "<record-1>" in format_.slices(noted)[0 if format_.name != "chat" else 1]


FORCED = {
    "chat": {"type": "function", "function": {"name": "read"}},
    "responses": {"type": "function", "name": "read"},
    "messages": {"type": "tool", "name": "read"},
}
NONE = {"chat": "none", "responses": "none", "messages": {"type": "none"}}
AUTO = {"chat": "auto", "responses": "auto", "messages": {"type": "auto"}}


@formats
@pytest.mark.parametrize("has_choice", [True, False], ids=["a tool is forced", "no tool choice"])
@pytest.mark.parametrize("how", [HOW, LOOSE], ids=["none leaves the prompt alone", "none would change it"])
def test_no_tool_is_called_and_none_is_taken_away(
    format_: Format, has_choice: bool, how: NotesFormat
) -> None:
    choice = {"tool_choice": FORCED[format_.name]} if has_choice else {}
    raw = format_.wire(body_of([TASK, *loop(2)], **choice))
    sent, got = others(format_, raw), others(format_, noted(format_, raw, how))
    assert got["tools"] == sent["tools"]
    if how is HOW:
        assert got["tool_choice"] == NONE[format_.name]
    elif has_choice:
        assert got["tool_choice"] == AUTO[format_.name]
    else:
        assert "tool_choice" not in got


@formats
def test_without_tools_there_is_no_tool_choice(format_: Format) -> None:
    raw = format_.wire(body_of([TASK, says("a"), user("b")], tools=[], tool_choice=AUTO[format_.name]))
    assert "tool_choice" not in others(format_, noted(format_, raw))


SAMPLING = {"temperature": 0.2, "top_p": 0.9, "x_unknown": [1, {"two": 2}]}
SCHEMA = {"type": "json_schema", "schema": {"type": "object"}}


def rows() -> list[Any]:
    """Format, members of a request, what is other in its notes request (None: left out)."""
    chat, responses, messages = FORMATS
    table: list[tuple[str, Format, dict[str, Any], dict[str, Any]]] = [
        ("a limit", chat, {"max_completion_tokens": 5}, {"max_completion_tokens": 300}),
        ("no limit", chat, {}, {"max_tokens": 300}),
        ("format", chat, {"response_format": SCHEMA}, {"max_tokens": 300, "response_format": None}),
        ("stop", chat, {"stop": ["x"], "n": 2}, {"max_tokens": 300, "stop": None, "n": None}),
        ("a limit", responses, {"max_output_tokens": 5}, {"max_output_tokens": 300}),
        ("no limit", responses, {}, {"max_output_tokens": 300}),
        ("text.format", responses, {"text": {"format": SCHEMA}}, {"max_output_tokens": 300, "text": None}),
        (
            "what the server would do of itself",
            responses,
            {"truncation": "auto", "background": True, "max_tool_calls": 3, "top_logprobs": 2},
            {
                "max_output_tokens": 300,
                "truncation": None,
                "background": None,
                "max_tool_calls": None,
                "top_logprobs": None,
            },
        ),
        (
            "reasoning and storing stay",
            responses,
            {"reasoning": {"effort": "low"}, "include": ["reasoning.encrypted_content"], "store": False},
            {"max_output_tokens": 300},
        ),
        ("a limit", messages, {"max_tokens": 5}, {"max_tokens": 300}),
        ("stop_sequences", messages, {"stop_sequences": ["x"]}, {"max_tokens": 300, "stop_sequences": None}),
        (
            "output_config with a format",
            messages,
            {"output_config": {"effort": "low", "format": SCHEMA}},
            {"max_tokens": 300, "output_config": {"effort": "low"}},
        ),
        (
            "output_config with nothing else",
            messages,
            {"output_config": {"format": SCHEMA}},
            {"max_tokens": 300, "output_config": None},
        ),
        ("output_format", messages, {"output_format": SCHEMA}, {"max_tokens": 300, "output_format": None}),
        (
            "a thinking budget, which the limit must be above",
            messages,
            {"thinking": {"type": "enabled", "budget_tokens": 4000}},
            {"max_tokens": 4200},
        ),
        (
            "a small thinking budget, which the allowance covers",
            messages,
            {"thinking": {"type": "enabled", "budget_tokens": 50}},
            {"max_tokens": 300},
        ),
        (
            "what is not known stays",
            messages,
            {"context_management": {"edits": []}, "metadata": {"user_id": "u"}, "betas": ["x"]},
            {"max_tokens": 300},
        ),
    ]
    return [pytest.param(*row, id=f"{row[0].name}: {name}") for name, *row in table]


@pytest.mark.parametrize(("format_", "members", "differs"), rows())
@pytest.mark.parametrize("stream", [None, True, False], ids=["", "streamed", "not streamed"])
def test_only_the_allowed_fields_differ(
    format_: Format, members: dict[str, Any], differs: dict[str, Any], stream: bool | None
) -> None:
    asked = members | SAMPLING | ({} if stream is None else {"stream": stream})
    sent = format_.write(body_of([TASK, *loop(2)])) | asked
    raw = json.dumps(sent).encode()
    got = others(format_, noted(format_, raw))
    own = {"stream": True, "tool_choice": NONE[format_.name]}
    own |= {"stream_options": {"include_usage": True}} if format_.name == "chat" else {}
    expected = others(format_, raw) | own | differs
    assert got == {k: v for k, v in expected.items() if v is not None or k not in differs}


def test_an_output_that_takes_no_text_is_followed_by_a_user_message() -> None:
    output = {"type": "computer_screenshot", "image_url": "data:image/png;base64,AAAA"}
    stdout = [{"stdout": "x", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]
    for last in (
        {"type": "computer_call_output", "call_id": "a", "output": output},
        {"type": "shell_call_output", "call_id": "a", "output": stdout},
        {"type": "mcp_approval_response", "approval_request_id": "a", "approve": True},
    ):
        items = [{"role": "user", "content": "go"}, {"type": "computer_call", "call_id": "a"}, last]
        raw = json.dumps({"input": items, "model": "m"}).encode()
        got = json.loads(noted(FORMATS[1], raw))["input"]
        assert got[:3] == items
        assert got[3] == {"type": "message", "role": "user", "content": ASK}


@pytest.mark.parametrize(
    ("output", "extended"),
    [
        pytest.param("x", f"x\n\n{ASK}", id="a string"),
        pytest.param("", ASK, id="an empty one"),
        pytest.param(
            [{"type": "input_text", "text": "x"}],
            [{"type": "input_text", "text": "x"}, {"type": "input_text", "text": ASK}],
            id="a list of parts",
        ),
    ],
)
@pytest.mark.parametrize("kind", ["function_call", "custom_tool_call"])
def test_an_output_keeps_its_form(kind: str, output: Any, extended: Any) -> None:
    last = {"type": f"{kind}_output", "call_id": "a", "output": output}
    items = [{"role": "user", "content": "go"}, {"type": kind, "call_id": "a", "name": "f"}, last]
    raw = json.dumps({"input": items}).encode()
    parsed = RESPONSES.parse(raw)
    got = RESPONSES.render_notes(parsed, splice(parsed.conversation, None), HOW)
    assert json.loads(got)["input"][-1] == last | {"output": extended}


@pytest.mark.parametrize(
    ("content", "extended"),
    [
        pytest.param("x", f"x\n\n{ASK}", id="a string"),
        pytest.param(None, ASK, id="nothing"),
        pytest.param(
            [{"type": "text", "text": "x"}],
            [{"type": "text", "text": "x"}, {"type": "text", "text": ASK}],
            id="blocks",
        ),
    ],
)
def test_the_instruction_goes_inside_the_last_result(content: Any, extended: Any) -> None:
    results = [{"type": "tool_result", "tool_use_id": "a", "content": "first"}]
    results.append({"type": "tool_result", "tool_use_id": "b", "content": content, "is_error": True})
    uses = [{"type": "tool_use", "id": i, "name": "f", "input": {}} for i in "ab"]
    messages = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": uses},
        {"role": "user", "content": results},
    ]
    parsed = ANTHROPIC_MESSAGES.parse(json.dumps({"messages": messages}).encode())
    got = ANTHROPIC_MESSAGES.render_notes(parsed, splice(parsed.conversation, None), HOW)
    assert json.loads(got)["messages"][-1]["content"] == [results[0], results[1] | {"content": extended}]


def noted(format_: Format, raw: bytes, how: NotesFormat = HOW) -> bytes:
    """The notes request over all that *raw* holds."""
    parsed = format_.dialect.parse(raw)
    return format_.dialect.render_notes(parsed, splice(parsed.conversation, None), how)
