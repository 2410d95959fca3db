"""Law 5 field by field, and what else a body keeps when it is written again."""

import json
from typing import Any

import pytest

from proxy.core.messages import Shown, View
from proxy.core.rewrite import Rewrite
from proxy.core.splice import splice
from proxy.dialects.base import NotesFormat, Parsed
from proxy.dialects.chat_completions import CHAT_COMPLETIONS
from proxy.errors import NotUnderstood

TOOLS = [{"type": "function", "function": {"name": "bash", "parameters": {"b": 1, "a": 2}}}]
MESSAGES: list[dict[str, Any]] = [
    {"role": "system", "content": "S"},
    {"role": "user", "content": "task"},
    {"role": "assistant", "content": None, "tool_calls": [{"id": "a", "function": {"name": "bash"}}]},
    {"role": "tool", "tool_call_id": "a", "content": "result"},
]
HOW = NotesFormat(instruction="NOTES!", limit=300, forbid_tools=True)


def parse(messages: list[dict[str, Any]] | None = None, **members: Any) -> Parsed:
    body = {"model": "m", "messages": MESSAGES if messages is None else messages} | members
    return CHAT_COMPLETIONS.parse(json.dumps(body).encode())


def whole(parsed: Parsed) -> View:
    return splice(parsed.conversation, None)


def notes(
    how: NotesFormat = HOW, messages: list[dict[str, Any]] | None = None, **members: Any
) -> dict[str, Any]:
    parsed = parse(messages, **members)
    body: dict[str, Any] = json.loads(CHAT_COMPLETIONS.render_notes(parsed, whole(parsed), how))
    return body


# What belongs to the prompt or to sampling, and what the upstream is told besides.
KEPT = {
    "temperature": 0.1, "top_p": 0.9, "top_k": 40, "min_p": 0.1, "seed": 7, "presence_penalty": 0.5,
    "frequency_penalty": 0.5, "logit_bias": {"1": 2}, "user": "u", "reasoning_effort": "low", "store": False,
    "parallel_tool_calls": True, "chat_template_kwargs": {"enable_thinking": False}, "cache_prompt": True,
    "id_slot": 1, "service_tier": "auto", "prompt_cache_key": "k", "metadata": {"a": "b"}, "unknown": [1.10],
}  # fmt: skip
SHAPING = {
    "response_format": {"type": "json_object"}, "stop": ["\n"], "n": 2, "logprobs": True, "top_logprobs": 3,
    "n_probs": 2, "grammar": "root ::= x", "json_schema": {}, "min_tokens": 900, "ignore_eos": True,
    "prediction": {}, "modalities": ["audio"], "audio": {}, "verbosity": "low", "t_max_predict_ms": 5,
    "guided_json": {}, "guided_regex": "x", "guided_choice": ["a"], "guided_grammar": "g",
    "structured_outputs": {},
}  # fmt: skip


@pytest.mark.parametrize("field", KEPT)
def test_law_5_prompt_and_sampling_stay(field: str) -> None:
    assert notes(**{field: KEPT[field], "tools": TOOLS})[field] == KEPT[field]


@pytest.mark.parametrize("members", [{}, {"tools": []}], ids=["no tools", "an empty list"])
def test_law_5_what_is_about_tools_goes_where_there_are_none(members: dict[str, Any]) -> None:
    """Some servers refuse it; the prompt is the same."""
    body = notes(**members, parallel_tool_calls=True, tool_choice="auto")
    assert not {"tools", "parallel_tool_calls", "tool_choice"} & body.keys()


@pytest.mark.parametrize("field", SHAPING)
def test_law_5_what_would_shape_or_cut_the_text_goes(field: str) -> None:
    assert field not in notes(**{field: SHAPING[field]})


def test_law_5_nothing_else_differs() -> None:
    everything = KEPT | SHAPING | {"tools": TOOLS, "max_tokens": 5, "stream": False}
    body = notes(**everything)
    assert body.pop("messages")[:-1] == MESSAGES[:-1]
    assert body == KEPT | {
        "model": "m",
        "tools": TOOLS,
        "max_tokens": 300,
        "stream": True,
        "stream_options": {"include_usage": True},
        "tool_choice": "none",
    }


@pytest.mark.parametrize(
    ("members", "limits"),
    [
        pytest.param({}, {"max_tokens": 300}, id="none: the upstream's own name for it"),
        pytest.param({"max_completion_tokens": 9}, {"max_completion_tokens": 300}, id="the newer name"),
        pytest.param(
            {"max_tokens": 9, "n_predict": -1, "max_completion_tokens": None},
            {"max_tokens": 300, "n_predict": 300, "max_completion_tokens": 300},
            id="every one that is there",
        ),
    ],
)
def test_law_5_every_output_limit_is_the_notes_own(members: dict[str, Any], limits: dict[str, int]) -> None:
    body = notes(**members)
    names = ("n_predict", "max_completion_tokens", "max_tokens")
    assert {name: body[name] for name in names if name in body} == limits


@pytest.mark.parametrize(
    ("members", "forbid", "choice"),
    [
        pytest.param({"tools": TOOLS}, True, "none", id="tools: none"),
        pytest.param({"tools": TOOLS, "tool_choice": "required"}, True, "none", id="a forced call"),
        pytest.param({"tools": TOOLS}, False, None, id="none would remove the tools: nothing is said"),
        pytest.param({"tools": TOOLS, "tool_choice": "required"}, False, "auto", id="a forced call there"),
        pytest.param({"tool_choice": "auto"}, True, None, id="no tools: some servers refuse it"),
        pytest.param({"tools": [], "tool_choice": "none"}, True, None, id="an empty list of tools"),
        pytest.param({}, True, None, id="nothing"),
    ],
)
def test_law_5_tool_choice(members: dict[str, Any], forbid: bool, choice: str | None) -> None:
    body = notes(NotesFormat(instruction="N", limit=1, forbid_tools=forbid), **members)
    assert body.get("tool_choice") == choice


def test_law_5_legacy_functions_are_forbidden_too() -> None:
    assert notes(functions=[{"name": "f"}])["function_call"] == "none"
    assert notes(functions=[{"name": "f"}], function_call={"name": "f"})["function_call"] == "none"
    assert "function_call" not in notes(function_call="auto")


@pytest.mark.parametrize(
    ("last", "after"),
    [
        pytest.param({"role": "tool", "tool_call_id": "a", "content": "r"}, "r\n\nNOTES!", id="a result"),
        pytest.param({"role": "user", "content": "go on"}, "go on\n\nNOTES!", id="a user message"),
        pytest.param({"role": "user", "content": None}, "NOTES!", id="a user message without content"),
        pytest.param(
            {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "r"}]},
            [{"type": "text", "text": "r"}, {"type": "text", "text": "NOTES!"}],
            id="a result in parts",
        ),
        pytest.param({"role": "function", "name": "f", "content": "r"}, "r\n\nNOTES!", id="a legacy result"),
    ],
)
def test_law_5_the_instruction_stands_inside_the_last_message(last: dict[str, Any], after: Any) -> None:
    sent = notes(messages=[*MESSAGES[:3], last])["messages"]
    assert sent == [*MESSAGES[:3], last | {"content": after}]


@pytest.mark.parametrize("last", [{"role": "assistant", "content": "So"}, {"role": "system", "content": "x"}])
def test_law_5_after_any_other_message_it_is_a_user_message_more(last: dict[str, Any]) -> None:
    sent = notes(messages=[*MESSAGES, last])["messages"]
    assert sent == [*MESSAGES, last, {"role": "user", "content": "NOTES!"}]


def test_law_5_the_notes_request_extends_the_view_byte_for_byte() -> None:
    parsed = parse(tools=TOOLS)
    rewrite = Rewrite(seen=2, block="B")
    view = splice(parsed.conversation, rewrite)
    sent, ours = (
        CHAT_COMPLETIONS.parse(raw).body
        for raw in (
            CHAT_COMPLETIONS.render(parsed, view),
            CHAT_COMPLETIONS.render_notes(parsed, view, HOW),
        )
    )
    before, after = ([item.raw for item in body.lists["messages"]] for body in (sent, ours))
    assert after[:-1] == before[:-1]
    assert after[-1].startswith(before[-1].removesuffix('"}').replace(": ", ":").replace(", ", ","))
    assert sent.fields["tools"].raw == ours.fields["tools"].raw


def test_a_last_message_that_is_cut_or_carries_the_block_keeps_that_in_the_notes_request() -> None:
    parsed = parse([{"role": "user", "content": "task"}])
    view = (Shown(message=parsed.conversation.messages[0], appended="BLOCK", cuts=((0, "t"),)),)
    body = json.loads(CHAT_COMPLETIONS.render_notes(parsed, view, HOW))
    assert body["messages"] == [{"role": "user", "content": "t\n\nBLOCK\n\nNOTES!"}]


def test_a_message_of_our_making_carries_block_and_instruction() -> None:
    parsed = parse([{"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}])
    view = splice(parsed.conversation, Rewrite(seen=1, replaced=1, block="BLOCK"))[:1]
    assert json.loads(CHAT_COMPLETIONS.render(parsed, view))["messages"] == [
        {"role": "user", "content": "BLOCK"}
    ]
    body = json.loads(CHAT_COMPLETIONS.render_notes(parsed, view, HOW))
    assert body["messages"] == [{"role": "user", "content": "BLOCK\n\nNOTES!"}]


def test_what_is_not_changed_keeps_its_bytes() -> None:
    raw = (
        b'{ "temperature": 1.10, "messages": [ {"role":"user", "content": "a\\u00e9" }, '
        b'{"content" : "b","role": "user"}, {"role":"assistant","content":"c"} ] , "x": 1e3 }'
    )
    parsed = CHAT_COMPLETIONS.parse(raw)
    view = splice(parsed.conversation, Rewrite(seen=1, replaced=0, block="", is_trim=True))
    assert CHAT_COMPLETIONS.render(parsed, view) == (
        b'{"temperature":1.10,"messages":[{"role":"user", "content": "a\\u00e9" },'
        b'{"content" : "b","role": "user"},{"role":"assistant","content":"c"}],"x":1e3}'
    )
    assert b"".join(CHAT_COMPLETIONS.message_bytes(view)) in CHAT_COMPLETIONS.render(parsed, view).replace(
        b"},{", b"}{"
    )


@pytest.mark.parametrize(
    "members",
    [
        {"messages": []}, {"messages": {}}, {"messages": 0}, {"messages": "x"}, {"messages": [[]]},
        {"messages": [None]}, {"messages": [{"role": "x"}]}, {"messages": [{}]},
    ],
)  # fmt: skip
def test_what_has_no_messages_is_not_understood(members: dict[str, Any]) -> None:
    with pytest.raises(NotUnderstood):
        parse(**members)


@pytest.mark.parametrize(
    ("members", "limit"),
    [
        ({}, None), ({"max_tokens": 5}, 5), ({"max_completion_tokens": 4, "max_tokens": 5}, 4),
        ({"n_predict": 3, "max_tokens": 5}, 3), ({"n_predict": -1}, None), ({"max_tokens": None}, None),
        ({"max_tokens": "5"}, None), ({"max_tokens": True}, None), ({"max_tokens": 5.5}, None),
        ({"max_tokens": 0}, 0), ({"max_tokens": 10**30}, 10**30),
    ],
)  # fmt: skip
def test_the_requests_own_limit(members: dict[str, Any], limit: int | None) -> None:
    assert parse(**members).conversation.output_limit == limit


def test_tools_of_both_forms_are_named_and_counted() -> None:
    conversation = parse(
        tools=[*TOOLS, 7, {"function": 3}, {"name": "web_search"}], functions=[{"name": "old"}], stream=True
    ).conversation
    assert conversation.tool_names == ("bash", "web_search", "old")
    assert len(conversation.fixed_texts) == 2
    assert conversation.stream
    assert parse(tools={"a": 1}, model=7).conversation.model == ""
