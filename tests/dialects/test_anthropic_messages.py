"""What only the Messages format has: cache markers, results side by side, sealed thinking, systems."""

import copy
import json
from typing import Any

import pytest

from proxy.core.digests import chain
from proxy.core.messages import Cut, Kind, Role, View
from proxy.core.rewrite import Rewrite
from proxy.core.splice import splice
from proxy.dialects.anthropic_messages import ANTHROPIC_MESSAGES, MOST_MARKERS
from proxy.dialects.base import Parsed
from proxy.errors import NotUnderstood

MARK = {"cache_control": {"type": "ephemeral"}}
BLOCK = "<record-1>what happened</record-1>"
SYSTEM = [
    {"type": "text", "text": "x-anthropic-billing-header: cch=1;"},
    {"type": "text", "text": "Careful."},
]
Messages = list[dict[str, Any]]


def text(said: str, **members: Any) -> dict[str, Any]:
    return {"type": "text", "text": said} | members


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def uses(*ids: str) -> dict[str, Any]:
    blocks = [{"type": "tool_use", "id": i, "name": "read", "input": {"path": f"{i}.py"}} for i in ids]
    return {"role": "assistant", "content": blocks}


def result(tool_id: str, content: Any = "x = 1", **members: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": tool_id, "content": content} | members


def session(turns: int) -> Messages:
    return [
        user(text("Port it.")),
        *(m for i in range(turns) for m in (uses(f"t{i}"), user(result(f"t{i}")))),
    ]


def body(messages: Messages, **members: Any) -> bytes:
    return json.dumps(
        {"model": "m", "max_tokens": 9, "system": SYSTEM, "messages": messages} | members
    ).encode()


def parse(messages: Messages, **members: Any) -> Parsed:
    return ANTHROPIC_MESSAGES.parse(body(messages, **members))


def compacted(parsed: Parsed, replaced: int) -> View:
    rewrite = Rewrite(seen=replaced, replaced=replaced, block=BLOCK, notes="n")
    return splice(parsed.conversation, rewrite)


def rendered(parsed: Parsed, replaced: int) -> dict[str, Any]:
    written: dict[str, Any] = json.loads(ANTHROPIC_MESSAGES.render(parsed, compacted(parsed, replaced)))
    return written


def identity(messages: Messages, **members: Any) -> bytes:
    return chain(b"", parse(messages, **members).conversation)[-1]


def marked(messages: Messages, *places: int) -> Messages:
    """The last block of the messages at *places* carries a marker."""
    made = copy.deepcopy(messages)
    for place in places:
        made[place]["content"][-1] |= MARK
    return made


@pytest.mark.parametrize("messages", [[], None, "x", [7], [{"role": "tool", "content": "x"}], {}])
def test_other_bodies_are_left_to_the_upstream(messages: Any) -> None:
    with pytest.raises(NotUnderstood):
        ANTHROPIC_MESSAGES.parse(json.dumps({"messages": messages}).encode())


# Identity


SAME = [
    pytest.param(marked(session(3), 0, 2, 4), id="markers elsewhere"),
    pytest.param([{"role": "user", "content": "Port it."}, *session(3)[1:]], id="a text for its one block"),
    pytest.param(
        [user(text("<system-reminder>now</system-reminder>"), text("Port it.")), *session(3)[1:]],
        id="a reminder that comes and goes",
    ),
    pytest.param(json.loads(json.dumps(session(3)).replace('"t1"', '"toolu_x"')), id="another id for a call"),
    pytest.param(
        [
            session(3)[0],
            {
                "role": "assistant",
                "content": [{"type": "thinking", "thinking": "hm", "signature": "s"}, *uses("t0")["content"]],
            },
            *session(3)[2:],
        ],
        id="thinking that is no longer sent back",
    ),
    pytest.param(
        [session(3)[0], {"role": "system", "content": "Today is Monday."}, *session(3)[1:]],
        id="a system message in the brief",
    ),
]


@pytest.mark.parametrize("messages", SAME)
def test_differences_without_meaning(messages: Messages) -> None:
    assert identity(messages) == identity(session(3))


IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}


@pytest.mark.parametrize("inside", [False, True], ids=["of the user", "in a result"])
def test_a_marker_on_an_image_means_nothing(inside: bool) -> None:
    def history(image: dict[str, Any]) -> Messages:
        seen = user(result("a", [image])) if inside else user(result("a"), image)
        return [user(text("go")), uses("a"), seen]

    assert identity(history(IMAGE)) == identity(history(IMAGE | MARK))
    other = IMAGE | {"source": {"type": "base64", "media_type": "image/png", "data": "BBBB"}}
    assert identity(history(IMAGE)) != identity(history(other))


def test_the_billing_header_changes_with_each_request_and_means_nothing() -> None:
    other = [text("x-anthropic-billing-header: cch=2;"), SYSTEM[1]]
    assert identity(session(3), system=other) == identity(session(3))


OTHER = [
    pytest.param([user(text("Port all.")), *session(3)[1:]], id="another task"),
    pytest.param([*session(3)[:-1], user(result("t2", "x = 2"))], id="another result"),
    pytest.param([*session(3)[:-1], user(result("t2"), text("No!"))], id="words beside a result"),
    pytest.param(
        [*session(3)[:-1], user(result("t2"), {"type": "image", "source": {"data": "AAAA"}})], id="an image"
    ),
]


@pytest.mark.parametrize("messages", OTHER)
def test_differences_with_meaning(messages: Messages) -> None:
    assert identity(messages) != identity(session(3))


def test_swapped_results_are_another_history() -> None:
    start = [user(text("go")), uses("a", "b")]
    assert identity([*start, user(result("a", "1"), result("b", "2"))]) != identity(
        [*start, user(result("b", "1"), result("a", "2"))]
    )


# Several results in a message


def test_several_results_and_words_beside_them_are_one_message_of_a_turn() -> None:
    answered = user(result("a", "1"), result("b", [text("2"), text("3")]), text("Use half-even."))
    conversation = parse([user(text("go")), uses("a", "b"), answered, *session(1)[1:]]).conversation
    assert [(turn.start, turn.end) for turn in conversation.turns] == [(1, 3), (3, 5)]
    message = conversation.messages[2]
    assert (message.role, message.answers) == (Role.TOOL, ("a", "b"))
    assert (message.result(0), message.result(1)) == ("1", "2\n3")
    assert message.said() == "Use half-even."


def test_images_and_documents_are_attachments_also_inside_a_result() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    document = {"type": "document", "title": "Rates", "source": {"type": "url", "url": "https://x/y.pdf"}}
    asked, _, answered = parse(
        [user(image, document), uses("a"), user(result("a", [image]))]
    ).conversation.messages
    assert [(file.kind, file.name, file.media_type) for file in asked.attachments] == [
        ("image", "", "image/png"),
        ("document", "Rates", ""),
    ]
    assert len(answered.attachments) == 1


def test_a_system_message_among_the_turns_is_one() -> None:
    late = {"role": "system", "content": "Mode: review"}
    messages = [*session(1), {"role": "assistant", "content": "Done."}, late, user(text("Go on.")), uses("z")]
    conversation = parse(messages).conversation
    assert [message.role for message in conversation.messages].count(Role.SYSTEM) == 1
    assert [(turn.start, turn.end) for turn in conversation.turns] == [(1, 3), (3, 6), (6, 7)]


# Cache markers


def markers(value: Any) -> int:
    """How many markers a request has."""
    return json.dumps(value).count('"cache_control"')


@pytest.mark.parametrize("places", [(), (0,), (2,), (6,), (2, 4), (2, 8), (2, 4, 6), (0, 2, 4, 8)], ids=str)
@pytest.mark.parametrize("in_system", [0, 1, 2])
def test_there_are_never_more_than_four_and_the_block_carries_that_of_a_replaced_message(
    places: tuple[int, ...], in_system: int
) -> None:
    places = places[: MOST_MARKERS - in_system]
    system = [block | MARK if i < in_system else block for i, block in enumerate(SYSTEM)]
    parsed = parse(marked(session(4), *places), system=system)
    written = rendered(parsed, 6)
    assert markers(written) <= MOST_MARKERS
    block = written["messages"][0]["content"][-1]
    assert block["text"] == BLOCK
    assert ("cache_control" in block) is any(0 < place <= 6 for place in places)
    # What is not replaced keeps its own.
    assert ("cache_control" in written["messages"][0]["content"][0]) is (0 in places)
    assert written["messages"][1:] == marked(session(4), *places)[7:]
    assert written["system"] == system


def test_where_the_client_has_too_many_itself_none_is_added() -> None:
    written = rendered(parse(marked(session(4), 2, 4, 7, 8), system=[block | MARK for block in SYSTEM]), 4)
    assert markers(written) == MOST_MARKERS
    assert "cache_control" not in written["messages"][0]["content"][-1]


def test_a_marker_that_moves_changes_no_byte_but_its_own() -> None:
    def without(written: dict[str, Any]) -> Any:
        return json.loads(json.dumps(written).replace(', "cache_control": {"type": "ephemeral"}', ""))

    places = [(2,), (4,), (6,), (8,), (0, 8), ()]
    plain = [rendered(parse(marked(session(4), *place)), 4) for place in places]
    assert all(without(written) == without(plain[0]) for written in plain)
    # Also where a client makes a text of the block that lost its marker.
    flipped = parse([{"role": "user", "content": "Port it."}, *session(4)[1:]])
    assert without(rendered(flipped, 4)) == without(plain[0])


def test_a_prompt_is_recognised_whichever_message_is_marked() -> None:
    views = [
        splice(parse(messages).conversation, None)
        for messages in (
            session(3),
            marked(session(3), 0, 6),
            [{"role": "user", "content": "Port it."}, *session(3)[1:]],
        )
    ]
    pieces = [list(ANTHROPIC_MESSAGES.message_bytes(view)) for view in views]
    assert pieces[0] == pieces[1] == pieces[2]
    other = splice(parse([user(text("Port all.")), *session(3)[1:]]).conversation, None)
    assert ANTHROPIC_MESSAGES.message_bytes(other)[0] != pieces[0][0]


# Thinking, and arguments that are objects


def test_thinking_is_kept_byte_for_byte_while_the_rest_of_its_message_is_cut() -> None:
    thinking = {"type": "thinking", "thinking": "th\u00eenk " * 300, "signature": "c2ln=="}
    redacted = {"type": "redacted_thinking", "data": "ZGF0YQ=="}
    said = {"role": "assistant", "content": [thinking, redacted, text("s" * 900), *uses("a")["content"]]}
    parsed = parse([user(text("go")), said, user(result("a"))])
    texts = parsed.conversation.messages[1].texts
    assert [t.kind for t in texts] == [Kind.SEALED, Kind.SAID, Kind.ARGUMENTS]
    view = splice(parsed.conversation, Rewrite(seen=2, cuts=(Cut(at=0, text=1, put="short"),), is_trim=True))
    written = json.loads(ANTHROPIC_MESSAGES.render(parsed, view))
    assert written["messages"][1]["content"] == [thinking, redacted, text("short"), *uses("a")["content"]]


@pytest.mark.parametrize(
    "value", [{"content": "x" * 900}, {}, [], "text", None, 7], ids=lambda v: type(v).__name__
)
def test_the_input_of_a_call_is_cut_as_json(value: Any) -> None:
    call = {"type": "tool_use", "id": "a", "name": "write", "input": value}
    messages = [user(text("go")), {"role": "assistant", "content": [call]}, user(result("a"))]
    parsed = parse(messages)
    (arguments,) = parsed.conversation.messages[1].texts
    assert json.loads(arguments.text) == value
    cut = Cut(at=0, text=0, put='{"content": "short"}')
    view = splice(parsed.conversation, Rewrite(seen=2, cuts=(cut,), is_trim=True))
    written = json.loads(ANTHROPIC_MESSAGES.render(parsed, view))
    assert written["messages"][1]["content"] == [call | {"input": {"content": "short"}}]
    # The client's own object is as it was.
    assert json.loads(body(messages))["messages"] == [
        shown.message.wire.value for shown in splice(parsed.conversation, None)
    ]


def test_a_result_of_parts_is_cut_part_by_part() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    answered = result("a", [text("x" * 900), image, text("y")], is_error=True, **MARK)
    parsed = parse([user(text("go")), uses("a"), user(answered)])
    view = splice(parsed.conversation, Rewrite(seen=2, cuts=(Cut(at=1, text=0, put="short"),), is_trim=True))
    written = json.loads(ANTHROPIC_MESSAGES.render(parsed, view))
    assert written["messages"][2]["content"] == [answered | {"content": [text("short"), image, text("y")]}]
