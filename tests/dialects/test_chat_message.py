"""How a chat message is read, and written again where it changes."""

import json
from typing import Any

import pytest

from proxy.core.messages import Attachment, Call, Kind, Message, Role, Text
from proxy.dialects.chat_message import edited, plain_text, read
from proxy.dialects.slices import Item
from proxy.errors import NotUnderstood


def message(**wire: Any) -> Message:
    return read(Item(json.dumps(wire), wire))


def call(name: str = "f", arguments: Any = "{}", **members: Any) -> dict[str, Any]:
    return {"id": "c", "type": "function", "function": {"name": name, "arguments": arguments}} | members


@pytest.mark.parametrize(
    ("role", "read_as"),
    [
        ("system", Role.SYSTEM),
        ("developer", Role.SYSTEM),
        ("user", Role.USER),
        ("assistant", Role.ASSISTANT),
        ("tool", Role.TOOL),
        ("function", Role.TOOL),
    ],
)
def test_roles(role: str, read_as: Role) -> None:
    assert message(role=role).role is read_as


@pytest.mark.parametrize(
    "wire",
    [
        pytest.param("text", id="no object"),
        pytest.param(None, id="null"),
        pytest.param({}, id="no role"),
        pytest.param({"role": "narrator"}, id="another role"),
        pytest.param({"role": ["user"]}, id="a list for a role"),
        pytest.param({"role": None}, id="null for a role"),
    ],
)
def test_what_has_no_known_role_is_not_understood(wire: Any) -> None:
    with pytest.raises(NotUnderstood, match="messages: "):
        read(Item(json.dumps(wire), wire))


@pytest.mark.parametrize(
    ("wire", "texts"),
    [
        pytest.param({"role": "user", "content": "a"}, [Text(Kind.SAID, "a")], id="a string"),
        pytest.param({"role": "tool", "content": "a"}, [Text(Kind.RESULT, "a")], id="a result"),
        pytest.param({"role": "user"}, [], id="absent"),
        pytest.param({"role": "user", "content": None}, [], id="null"),
        pytest.param({"role": "user", "content": 7}, [], id="a number"),
        pytest.param({"role": "user", "content": {"text": "a"}}, [], id="an object"),
        pytest.param(
            {
                "role": "user",
                "content": [{"type": "text", "text": "a"}, {"type": "image_url"}, "b", {"text": 1}],
            },
            [Text(Kind.SAID, "a")],
            id="parts, some of them odd",
        ),
        pytest.param(
            {
                "role": "assistant",
                "reasoning_content": "r",
                "content": "a",
                "tool_calls": [call(), 7, call("g", "[]")],
            },
            [
                Text(Kind.REASONING, "r"),
                Text(Kind.SAID, "a"),
                Text(Kind.ARGUMENTS, "{}", 0),
                Text(Kind.ARGUMENTS, "[]", 1),
            ],
            id="reasoning, text and calls",
        ),
        pytest.param({"role": "user", "tool_calls": [call()]}, [], id="calls of a user are none"),
        pytest.param({"role": "assistant", "tool_calls": {"a": 1}}, [], id="calls that are no list"),
    ],
)
def test_texts(wire: dict[str, Any], texts: list[Text]) -> None:
    assert list(message(**wire).texts) == texts


@pytest.mark.parametrize(
    ("wire", "calls"),
    [
        pytest.param({"tool_calls": [call("f", '{"a":1}')]}, [Call("c", "f", '{"a":1}')], id="one"),
        pytest.param(
            {"tool_calls": [{"id": "", "type": "function"}]}, [Call("", "", "")], id="no function at all"
        ),
        pytest.param({"tool_calls": [{"function": None}]}, [Call("", "", "")], id="null for a function"),
        pytest.param(
            {"tool_calls": [call(arguments={"a": 1})]}, [Call("c", "f", '{"a": 1}')], id="an object"
        ),
        pytest.param({"tool_calls": [call(7, None, id=3)]}, [Call("", "", "null")], id="wrong types"),
        pytest.param(
            {"tool_calls": [{"id": "c", "type": "custom", "custom": {"name": "sh", "input": "ls"}}]},
            [Call("c", "sh", "ls")],
            id="a custom tool",
        ),
        pytest.param(
            {"function_call": {"name": "f", "arguments": "{}"}}, [Call("f", "f", "{}")], id="the legacy form"
        ),
    ],
)
def test_calls(wire: dict[str, Any], calls: list[Call]) -> None:
    assert list(message(role="assistant", **wire).calls) == calls


@pytest.mark.parametrize(
    ("wire", "answers"),
    [
        pytest.param({"role": "tool", "tool_call_id": "c"}, ("c",), id="by id"),
        pytest.param({"role": "function", "name": "f"}, ("f",), id="by name, the legacy form"),
        pytest.param({"role": "tool"}, ("",), id="by nothing"),
        pytest.param({"role": "tool", "tool_call_id": None}, ("",), id="by null"),
        pytest.param({"role": "user", "tool_call_id": "c"}, (), id="a user answers nothing"),
    ],
)
def test_answers(wire: dict[str, Any], answers: tuple[str, ...]) -> None:
    assert message(**wire).answers == answers


@pytest.mark.parametrize(
    ("part", "file"),
    [
        pytest.param(
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
            Attachment(kind="image", media_type="image/png", size_bytes=3),
            id="an image as data",
        ),
        pytest.param(
            {"type": "image_url", "image_url": "https://a/b.png"},
            Attachment(kind="image", name="https://a/b.png"),
            id="an image by address",
        ),
        pytest.param(
            {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
            Attachment(kind="audio", media_type="wav", size_bytes=3),
            id="a sound",
        ),
        pytest.param(
            {"type": "file", "file": {"filename": "a.pdf", "file_data": "AAAA"}},
            Attachment(kind="file", name="a.pdf", size_bytes=3),
            id="a file",
        ),
        pytest.param({}, Attachment(kind="part"), id="nothing"),
        pytest.param({"type": 7, "7": []}, Attachment(kind="part"), id="nonsense"),
    ],
)
def test_attachments(part: dict[str, Any], file: Attachment) -> None:
    assert message(role="user", content=[part]).attachments == (file,)


def test_no_two_different_messages_are_made_equal_by_their_names() -> None:
    called = message(role="assistant", function_call={"name": "name", "arguments": "bob"})
    named = message(role="assistant", name="bob")
    assert called.normal != named.normal


def test_space_around_a_text_does_not_tell_whether_a_reminder_stood_there() -> None:
    with_reminder = message(role="user", content="fix it\n<system-reminder>x</system-reminder>")
    assert with_reminder.normal == message(role="user", content="fix it\n").normal
    assert with_reminder.normal != message(role="user", content="fix that").normal


@pytest.mark.parametrize(
    ("content", "after"),
    [
        pytest.param("task", "task\n\nmore", id="a string"),
        pytest.param("", "more", id="an empty string"),
        pytest.param(None, "more", id="null"),
        pytest.param(
            [{"type": "text", "text": "task", "cache_control": {"type": "ephemeral"}}],
            [
                {"type": "text", "text": "task", "cache_control": {"type": "ephemeral"}},
                {"type": "text", "text": "more"},
            ],
            id="parts",
        ),
        pytest.param([], [{"type": "text", "text": "more"}], id="no parts"),
    ],
)
def test_what_is_appended_comes_last(content: Any, after: Any) -> None:
    wire = {"role": "user", "content": content, "name": "bob"}
    before = json.dumps(wire)
    assert edited(wire, "more", {}) == {"role": "user", "content": after, "name": "bob"}
    assert json.dumps(wire) == before, "what came is not changed"
    absent = {"role": "user"}
    assert edited(absent, "more", {}) == {"role": "user", "content": "more"}


@pytest.mark.parametrize("content", [7, 0, {}, {"a": 1}, True, False])
def test_to_what_is_no_content_nothing_is_appended(content: Any) -> None:
    with pytest.raises(NotUnderstood, match="nothing can be appended to content of type"):
        edited({"role": "user", "content": content}, "more", {})


def test_texts_are_put_in_the_place_of_those_with_their_index() -> None:
    wire = {
        "role": "assistant",
        "reasoning_content": "r",
        "content": [{"type": "text", "text": "a"}, {"type": "image_url"}, {"type": "text", "text": "b"}],
        "tool_calls": [call("f", "1"), {"id": "x"}, call("g", "2")],
        "function_call": {"name": "h", "arguments": "3"},
    }
    texts = message(**wire).texts
    before = json.dumps(wire)
    for i, text in enumerate(texts):
        changed = edited(wire, "", {i: "CUT"})
        assert [t.text for t in message(**changed).texts] == [
            "CUT" if k == i else t.text for k, t in enumerate(texts)
        ]
        assert json.dumps(changed).replace("CUT", text.text, 1) == before or text.text in "ra"
    everything = edited(wire, "", dict.fromkeys(range(len(texts)), "CUT"))
    assert {t.text for t in message(**everything).texts} == {"CUT"}
    assert json.dumps(wire) == before


def test_deep_nesting_beside_what_changes_is_no_hindrance() -> None:
    deep: Any = "x"
    for _ in range(900):
        deep = {"d": deep}
    changed = edited({"role": "user", "content": "a", "extra": deep}, "b", {})
    assert changed["extra"] is deep


@pytest.mark.parametrize(
    ("content", "text"),
    [("a", "a"), (None, ""), (7, ""), ([{"text": "a"}, 3, {"text": None}, {"text": "b"}], "ab"), ({}, "")],
)
def test_plain_text(content: Any, text: str) -> None:
    assert plain_text(content) == text
