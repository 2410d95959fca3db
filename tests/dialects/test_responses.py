"""What only the Responses format has: items of many kinds, sealed reasoning, history held by the server."""

import json
from typing import Any

import pytest

from proxy.core.digests import chain
from proxy.core.messages import Cut, Kind, Message, Role
from proxy.core.rewrite import Rewrite
from proxy.core.splice import splice
from proxy.dialects.responses import RESPONSES
from proxy.errors import HeldByServer, NotUnderstood

USER = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go"}]}
CALL = {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "a", "output": "done"}
REASONING = {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "s" * 900}]}
SEALED = REASONING | {"encrypted_content": "gAAAA" + "x" * 900}


def body(*items: Any, **members: Any) -> bytes:
    return json.dumps({"input": list(items), "model": "m"} | members).encode()


def read(*items: Any) -> tuple[Message, ...]:
    return RESPONSES.parse(body(*items)).conversation.messages


def identity(*items: Any) -> bytes:
    """What stands for a history that ends with these."""
    return chain(b"", RESPONSES.parse(body(*items)).conversation)[-1]


@pytest.mark.parametrize("member", ["previous_response_id", "conversation"])
def test_what_the_server_holds_is_not_understood(member: str) -> None:
    with pytest.raises(HeldByServer):
        RESPONSES.parse(body(USER, **{member: "resp_1"}))
    assert RESPONSES.parse(body(USER, **{member: None}))


@pytest.mark.parametrize("input_", [[], "", None, 7, {}, [7], [{"role": "nobody", "content": "x"}], [None]])
def test_other_bodies_are_left_to_the_upstream(input_: Any) -> None:
    with pytest.raises(NotUnderstood):
        RESPONSES.parse(json.dumps({"input": input_}).encode())


def test_a_text_is_the_message_that_it_stands_for() -> None:
    said = RESPONSES.parse(json.dumps({"input": "go"}).encode()).conversation
    assert said.messages[0].role is Role.USER and said.messages[0].said() == "go"
    assert chain(b"", said)[-1] == identity(USER)


CALLS: list[tuple[str, dict[str, Any], dict[str, Any], str, str]] = [
    ("a function", CALL | {"arguments": '{"x":1}'}, OUTPUT, "f", '{"x": 1}'),
    (
        "a custom tool",
        {"type": "custom_tool_call", "call_id": "a", "name": "apply_patch", "input": "*** Begin"},
        {"type": "custom_tool_call_output", "call_id": "a", "output": "done"},
        "apply_patch",
        "*** Begin",
    ),
    (
        "a local shell",
        {"type": "local_shell_call", "call_id": "a", "action": {"type": "exec", "command": ["ls"]}},
        {"type": "local_shell_call_output", "call_id": "a", "output": "done"},
        "local_shell",
        '{"type": "exec", "command": ["ls"]}',
    ),
    (
        "a shell",
        {"type": "shell_call", "call_id": "a", "action": {"commands": ["ls"]}},
        {"type": "shell_call_output", "call_id": "a", "output": [{"stdout": "done", "stderr": ""}]},
        "shell",
        '{"commands": ["ls"]}',
    ),
    (
        "a patch",
        {"type": "apply_patch_call", "call_id": "a", "operation": {"type": "create_file", "path": "x"}},
        {"type": "apply_patch_call_output", "call_id": "a", "output": "done"},
        "apply_patch",
        '{"type": "create_file", "path": "x"}',
    ),
    (
        "parts for an output",
        CALL,
        OUTPUT | {"output": [{"type": "input_text", "text": "done"}]},
        "f",
        "{}",
    ),
]


@pytest.mark.parametrize(
    ("call", "output", "name", "arguments"), [pytest.param(*row[1:], id=row[0]) for row in CALLS]
)
def test_calls_of_every_kind_pair_with_their_outputs(
    call: dict[str, Any], output: dict[str, Any], name: str, arguments: str
) -> None:
    _, made, answered = read(USER, call, output)
    (found,) = made.calls
    assert (made.role, found.name) == (Role.ASSISTANT, name)
    assert found.arguments == arguments or json.loads(found.arguments) == json.loads(arguments)
    assert [text.text for text in made.texts if text.kind is Kind.ARGUMENTS] == [found.arguments]
    assert (answered.role, answered.answers) == (Role.TOOL, (found.id,))
    assert answered.result(0).strip() == "done"


def test_arguments_that_are_an_object_are_written_as_one() -> None:
    call = {"type": "local_shell_call", "call_id": "a", "action": {"command": ["echo", "x" * 2000]}}
    parsed = RESPONSES.parse(body(USER, call, OUTPUT))
    short = '{"command": ["echo", "short"]}'
    rewrite = Rewrite(seen=2, cuts=(Cut(at=0, text=0, put=short),), is_trim=True)
    written = json.loads(RESPONSES.render(parsed, splice(parsed.conversation, rewrite)))
    assert written["input"][1] == call | {"action": {"command": ["echo", "short"]}}


BUILT_IN: list[dict[str, Any]] = [
    {
        "type": "web_search_call",
        "id": "ws",
        "status": "completed",
        "action": {"type": "search", "query": "q"},
    },
    {"type": "file_search_call", "id": "fs", "queries": ["q"], "results": [{"text": "r"}]},
    {"type": "code_interpreter_call", "id": "ci", "code": "1+1", "outputs": [{"type": "logs", "logs": "2"}]},
    {"type": "mcp_call", "id": "mc", "name": "t", "arguments": "{}", "output": "r"},
    {"type": "mcp_list_tools", "id": "ml", "server_label": "s", "tools": [{"name": "t", "input_schema": {}}]},
    {"type": "mcp_approval_request", "id": "ma", "name": "t", "arguments": "{}"},
    {"type": "image_generation_call", "id": "ig", "result": "AAAA"},
    {"type": "item_reference", "id": "msg_1"},
    {"type": "compaction", "id": "cm", "encrypted_content": "gAAAA"},
    {"type": "something_new", "id": "sn", "payload": {"x": 1}},
]


@pytest.mark.parametrize("item", BUILT_IN, ids=lambda item: item["type"])
def test_what_the_server_does_itself_stays_with_the_output_around_it(item: dict[str, Any]) -> None:
    message = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "so"}]}
    raw = body(USER, REASONING, item, message, USER, CALL, OUTPUT)
    parsed = RESPONSES.parse(raw)
    assert [(turn.start, turn.end) for turn in parsed.conversation.turns] == [(1, 5), (5, 7)]
    view = splice(parsed.conversation, None)
    assert json.loads(RESPONSES.render(parsed, view)) == json.loads(raw)


@pytest.mark.parametrize("item", BUILT_IN, ids=lambda item: item["type"])
def test_what_came_back_of_it_counts_for_identity_and_its_id_does_not(item: dict[str, Any]) -> None:
    other_id = identity(USER, item | {"id": "other"}) == identity(USER, item)
    assert other_id is (item["type"] != "item_reference")
    for field in ("results", "outputs", "output", "payload", "tools"):
        if field in item:
            assert identity(USER, item | {field: "changed"}) != identity(USER, item)


def test_a_screenshot_counts_as_an_image_and_for_identity() -> None:
    def output(data: str) -> dict[str, Any]:
        shot = {"type": "computer_screenshot", "image_url": f"data:image/png;base64,{data}"}
        return {"type": "computer_call_output", "call_id": "a", "output": shot}

    call = {"type": "computer_call", "call_id": "a", "action": {"type": "screenshot"}}
    assert read(USER, call, output("AAAA"))[-1].attachments[0].media_type == "image/png"
    assert identity(USER, call, output("AAAA")) != identity(USER, call, output("BBBB"))


@pytest.mark.parametrize(
    ("item", "kind"),
    [
        pytest.param(SEALED, Kind.SEALED, id="encrypted: never cut"),
        pytest.param(REASONING, Kind.REASONING, id="open"),
    ],
)
def test_reasoning(item: dict[str, Any], kind: Kind) -> None:
    assert {text.kind for text in read(USER, item, CALL)[1].texts} == {kind}
    # Servers encrypt it anew, and clients drop it.
    assert identity(USER, item, CALL) == identity(USER, CALL)


def test_images_and_files_of_users_and_outputs_are_attachments() -> None:
    parts = [
        {"type": "input_image", "image_url": "data:image/png;base64,AAAA"},
        {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,AAAA"},
        {"type": "input_file", "file_id": "file-1"},
    ]
    asked, _, answered = read({"role": "user", "content": parts}, CALL, OUTPUT | {"output": parts[:1]})
    assert [(file.kind, file.name, file.media_type) for file in asked.attachments] == [
        ("image", "", "image/png"),
        ("file", "a.pdf", "application/pdf"),
        ("file", "file-1", ""),
    ]
    assert len(answered.attachments) == 1


def test_tools_of_a_namespace_are_named_with_the_rest() -> None:
    inner = [{"type": "function", "name": "open"}, {"type": "function", "name": "close"}]
    tools = [{"type": "function", "name": "f"}, {"type": "namespace", "name": "door", "tools": inner}]
    tools.append({"type": "web_search"})
    names = RESPONSES.parse(body(USER, tools=tools)).conversation.tool_names
    assert names == ("f", "door", "open", "close", "web_search")


def test_developer_items_belong_to_the_brief_where_they_stand_in_it() -> None:
    developer = {"type": "message", "role": "developer", "content": "Mode: plan"}
    conversation = RESPONSES.parse(body(developer, USER, CALL, OUTPUT, developer, CALL, OUTPUT)).conversation
    assert conversation.brief_end == 2
    assert [message.role for message in conversation.messages if message.said() == "Mode: plan"] == [
        Role.SYSTEM,
        Role.SYSTEM,
    ]


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_an_announced_stream_goes_on_the_same_however_it_is_cut(size: int) -> None:
    created = {"type": "response.created", "response": {"id": "resp_theirs", "instructions": "x" * 3_000}}
    stream = b"".join(
        f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()
        for event in (created, {"type": "response.in_progress", "response": {"id": "resp_theirs"}})
    )

    def relayed(size: int) -> bytes:
        waiting = RESPONSES.waiting("0" * 32)
        waiting.beat()
        pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
        return b"".join([*map(waiting.relay, pieces), waiting.end()])

    assert relayed(size) == relayed(len(stream))
    assert b"resp_theirs" not in relayed(size)
    assert b"response.created" not in relayed(size)
