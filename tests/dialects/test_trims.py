"""What a trim may cut of messages that hold more than one kind of text."""

import json

from proxy.core.messages import Conversation, Kind, Message, Role
from proxy.core.plan import Sizes
from proxy.core.trim import Trim, trim
from proxy.dialects.anthropic_messages import ANTHROPIC_MESSAGES
from tests.dialects.conversations import body_of, calls, formats, loop, result, user
from tests.support.formats import Format

LONG = "long " * 400


def tokens(text: str) -> int:
    return (len(text) + 3) // 4


def trimmed(conversation: Conversation, limit: int) -> Trim | None:
    """The conversation cut down to *limit*, as if nothing had been rewritten before."""

    def size(message: Message) -> int:
        return sum(tokens(text.text) for text in message.texts)

    whole = tuple(map(size, conversation.messages[conversation.brief_end :]))
    fixed = sum(map(size, conversation.messages[: conversation.brief_end]))
    return trim(
        conversation,
        None,
        Sizes(fixed=fixed, block=0, shown=whole, whole=whole),
        aim=limit,
        limit=limit,
        keep_chars=100,
        count=tokens,
        block=lambda replaced: f"{replaced} messages are left out",
    )


@formats
def test_signed_thinking_is_never_cut_not_even_in_the_newest_turn(format_: Format) -> None:
    messages = [user("go"), *loop(2), calls("z", reasoning_content=LONG, signed="c2ln"), result("z", LONG)]
    conversation = format_.dialect.parse(format_.wire(body_of(messages))).conversation
    sealed = {
        (at, i)
        for at, message in enumerate(conversation.messages[conversation.brief_end :])
        for i, text in enumerate(message.texts)
        if text.kind is Kind.SEALED
    }
    assert bool(sealed) is (format_.name != "chat")
    made = trimmed(conversation, 600)
    assert made is not None
    assert made.rewrite.cuts
    assert not sealed & {(cut.at, cut.text) for cut in made.rewrite.cuts}
    # Where that alone is too long, there is no trim that would help.
    assert (trimmed(conversation, 300) is None) is bool(sealed)


def test_what_a_user_says_beside_a_result_is_not_cut_like_a_result() -> None:
    blocks = [
        {"type": "tool_result", "tool_use_id": "a", "content": LONG},
        {"type": "text", "text": "Mind: " + LONG},
    ]
    use = {"type": "tool_use", "id": "a", "name": "f", "input": {}}
    turn = [{"role": "assistant", "content": [use]}, {"role": "user", "content": blocks}]
    messages = [{"role": "user", "content": "go"}, *turn, *turn, *turn]
    conversation = ANTHROPIC_MESSAGES.parse(json.dumps({"messages": messages}).encode()).conversation
    assert conversation.messages[2].role is Role.TOOL
    for limit in (2700, 2200, 1800, 1300):
        made = trimmed(conversation, limit)
        assert made is not None
        newest = conversation.turns[-1].start - conversation.brief_end
        for cut in made.rewrite.cuts:
            kind = conversation.messages[conversation.brief_end + cut.at].texts[cut.text].kind
            assert cut.at >= newest or kind is not Kind.SAID
