"""
What every dialect keeps of a conversation when a view of it is written: laws 1 to 4 and 6.

Each conversation is written in all formats, and every turn is tried as the first that is kept.
"""

import json
from itertools import pairwise
from typing import Any

from proxy.core.messages import Cut, Kind, Role, View
from proxy.core.rewrite import Rewrite
from proxy.core.splice import splice
from proxy.dialects.base import Parsed
from tests.dialects.conversations import (
    IMAGE,
    SYSTEM,
    TABLE,
    TASK,
    Messages,
    body_of,
    calls,
    conversations,
    formats,
    loop,
    others,
    result,
)
from tests.support.formats import Format
from tests.support.prompts import Rule, refusal, text_of

BLOCK = "<record-1>what happened</record-1>"


def compacted(parsed: Parsed) -> list[tuple[int, View]]:
    """Every compaction that is possible: how many messages it replaces, and its view."""
    conversation = parsed.conversation
    end = conversation.brief_end
    starts = [turn.start - end for turn in conversation.turns][1:]
    return [
        (start, splice(conversation, Rewrite(seen=start, replaced=start, block=BLOCK, notes="n")))
        for start in starts
    ]


@formats
@conversations
def test_a_view_of_everything_keeps_every_byte_of_every_message(format_: Format, messages: Messages) -> None:
    raw = format_.wire(body_of(messages))
    parsed = format_.dialect.parse(raw)
    view = splice(parsed.conversation, None)
    assert format_.dialect.render(parsed, view) == raw
    assert len(parsed.conversation.messages) == len(format_.slices(raw))


@formats
def test_odd_bytes_of_what_is_kept_stay(format_: Format) -> None:
    parsed_odd = json.dumps(format_.write(body_of([TASK, *loop(3)], temperature=0.5)), indent=3)
    odd = parsed_odd.replace("0.5", "0.50").replace("shop", r"\u0073hop \ud83d").encode()
    parsed = format_.dialect.parse(odd)
    for replaced, view in compacted(parsed):
        rendered = format_.dialect.render(parsed, view)
        assert b'"temperature":0.50' in rendered
        tail = format_.slices(odd)[parsed.conversation.brief_end + replaced :]
        assert format_.slices(rendered)[-len(tail) :] == tail


@formats
@conversations
def test_brief_and_tail_are_word_for_word_and_the_block_is_in_the_briefs_last_user(
    format_: Format, messages: Messages
) -> None:
    raw = format_.wire(body_of(messages))
    parsed = format_.dialect.parse(raw)
    sent, brief_end = format_.slices(raw), parsed.conversation.brief_end
    users = [i for i in range(brief_end) if parsed.conversation.messages[i].role is Role.USER]
    views = compacted(parsed)
    assert views or len(parsed.conversation.turns) == 1
    for replaced, view in views:
        rendered = format_.dialect.render(parsed, view)
        got = format_.slices(rendered)
        tail = sent[brief_end + replaced :]
        assert got[len(got) - len(tail) :] == tail
        brief = got[: len(got) - len(tail)]
        carrier = users[-1] if users else brief_end
        assert [i for i, piece in enumerate(brief) if BLOCK in piece] == [carrier]
        assert brief[:carrier] + brief[carrier + 1 :] == sent[:carrier] + sent[carrier + 1 : brief_end]
        assert others(format_, rendered) == others(format_, raw)
        if users:
            before, after = json.loads(sent[carrier]), json.loads(brief[carrier])
            assert after | {"content": 0} == before | {"content": 0}
            kept = before["content"]
            assert after["content"][: len(kept)] == kept
        assert json.loads(brief[carrier])["role"] == "user"
        assert text_of(json.loads(brief[carrier])).endswith(BLOCK)


@formats
@conversations
def test_pairs_and_batches_stay_together_and_no_two_users_meet(format_: Format, messages: Messages) -> None:
    raw = format_.wire(body_of(messages))
    parsed = format_.dialect.parse(raw)
    own_neighbours = _meeting_users(format_.as_chat(raw))
    for _, view in compacted(parsed):
        chat = format_.as_chat(format_.dialect.render(parsed, view))
        assert refusal(chat["messages"], frozenset({Rule.ORPHAN_RESULT, Rule.NO_USER})) is None
        assert _meeting_users(chat) <= own_neighbours
        for message, after in pairwise(chat["messages"]):
            if message.get("tool_calls"):
                assert after["role"] == "tool"
            if message.get("reasoning_content"):
                assert message.get("tool_calls"), "reasoning without the call that it led to"


@formats
@conversations
def test_writing_views_changes_nothing_of_what_came(format_: Format, messages: Messages) -> None:
    raw = format_.wire(body_of(messages))
    parsed = format_.dialect.parse(raw)
    for replaced, view in compacted(parsed):
        first = format_.dialect.render(parsed, view)
        pieces = list(format_.dialect.message_bytes(view))
        assert format_.dialect.render(parsed, view) == first
        assert list(format_.dialect.message_bytes(view)) == pieces
        assert format_.dialect.render(parsed, splice(parsed.conversation, None)) == raw
        # After a restart there is another object for the same bytes.
        again = format_.dialect.parse(raw)
        assert format_.dialect.render(again, dict(compacted(again))[replaced]) == first


@formats
@conversations
def test_a_view_extends_the_one_before_while_nothing_is_rewritten(
    format_: Format, messages: Messages
) -> None:
    parsed = format_.dialect.parse(format_.wire(body_of(messages)))
    for replaced, view in compacted(parsed):
        later = format_.dialect.parse(format_.wire(body_of([*messages, calls("z"), result("z")])))
        grown = dict(compacted(later)).get(replaced)
        if grown is None or messages is TABLE["a prefill"]:
            continue
        pieces = list(format_.dialect.message_bytes(view))
        assert list(format_.dialect.message_bytes(grown))[: len(pieces)] == pieces


def cut_everything(parsed: Parsed) -> View:
    """Every text after the brief is cut, but for those that must not be."""
    conversation = parsed.conversation
    cuts = tuple(
        Cut(at=at, text=i, put='{"path":"short"}' if text.kind is Kind.ARGUMENTS else "short")
        for at, message in enumerate(conversation.messages[conversation.brief_end :])
        for i, text in enumerate(message.texts)
        if text.kind is not Kind.SEALED
    )
    return splice(conversation, Rewrite(seen=len(conversation.messages), cuts=cuts, is_trim=True))


@formats
@conversations
def test_a_trimmed_view_says_what_it_was_given_and_keeps_its_form(
    format_: Format, messages: Messages
) -> None:
    raw = format_.wire(body_of(messages))
    parsed = format_.dialect.parse(raw)
    trimmed = format_.dialect.render(parsed, cut_everything(parsed))
    assert format_.dialect.render(parsed, splice(parsed.conversation, None)) == raw
    again = format_.dialect.parse(trimmed).conversation
    before = parsed.conversation
    for old, new in zip(before.messages, again.messages, strict=True):
        assert (new.role, new.answers, len(new.attachments)) == (old.role, old.answers, len(old.attachments))
        assert [(c.id, c.name) for c in new.calls] == [(c.id, c.name) for c in old.calls]
        assert [t.kind for t in new.texts] == [t.kind for t in old.texts]
    for old, new in zip(before.messages[before.brief_end :], again.messages[before.brief_end :], strict=True):
        for was, now in zip(old.texts, new.texts, strict=True):
            assert now.text == was.text if was.kind is Kind.SEALED else "short" in now.text
    assert refusal(format_.as_chat(trimmed)["messages"], frozenset({Rule.ORPHAN_RESULT})) is None


@formats
def test_signed_reasoning_is_sealed_where_the_format_signs(format_: Format) -> None:
    parsed = format_.dialect.parse(format_.wire(body_of(TABLE["reasoning before its call"])))
    kinds = {text.kind for message in parsed.conversation.messages for text in message.texts}
    assert (Kind.SEALED in kinds) is (format_.name != "chat")
    assert (Kind.REASONING in kinds) is (format_.name == "chat")


@formats
def test_the_core_sees_the_same_conversation_in_every_format(format_: Format) -> None:
    messages = [SYSTEM, {"role": "user", "content": [{"type": "text", "text": "Look"}, IMAGE]}, *loop(2)]
    conversation = format_.dialect.parse(
        format_.wire(body_of(messages, max_tokens=77, stream=True))
    ).conversation
    assert conversation.tool_names == ("read",)
    assert (conversation.model, conversation.output_limit, conversation.stream) == ("m", 77, True)
    assert len(conversation.turns) == 2
    made = [call for message in conversation.messages for call in message.calls]
    assert [(call.id, call.name, json.loads(call.arguments)) for call in made] == [
        ("c0", "read", {"path": "c0.py"}),
        ("c1", "read", {"path": "c1.py"}),
    ]
    answered = [message for message in conversation.messages if message.answers]
    assert [message.result(0) for message in answered] == [
        "the file of c0: x = 1",
        "the file of c1: x = 1",
    ]
    (image,) = [file for message in conversation.messages for file in message.attachments]
    assert (image.kind.removesuffix("_url"), image.media_type, image.size_bytes) == ("image", "image/png", 9)


def _meeting_users(chat: dict[str, Any]) -> int:
    roles = [message["role"] for message in chat["messages"]]
    return sum(a == b == "user" for a, b in pairwise(roles))
