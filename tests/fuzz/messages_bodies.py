"""Bodies for `/v1/messages`."""

import json

from tests.fuzz.common import BESIDE, OBJECTS, answered, called, conversation, flags, limits, names
from tests.fuzz.values import Dice, Make, array, constant, members, odd, one_of, rarely, sample, some, words

_marker = rarely(sample(('{"type":"ephemeral"}', '{"type":"ephemeral","ttl":"1h"}')))
_text = members({"type": constant('"text"'), "text": words}, {"cache_control": _marker, "citations": odd})
_png = '{"type":"base64","media_type":"image/png","data":"AA=="}'
_block = one_of(
    _text,
    _text,
    members({"type": constant('"image"'), "source": rarely(constant(_png))}, {"cache_control": _marker}),
    members({"type": constant('"document"'), "source": odd}, {"title": odd, "context": odd}),
    members(
        {"type": sample(('"search_result"', '"web_search_tool_result"', '"container_upload"', '""', "7"))}
    ),
)
_content: Make = rarely(one_of(words, words, some(rarely(_block))))
_user = members({"role": constant('"user"'), "content": _content})
_plain = one_of(
    _user,
    _user,
    _user,
    members({"role": rarely(sample(('"system"', '"user"')), sample(('"human"', "[]"))), "content": _content}),
)
_USES = ("tool_use",) * 8 + ("server_tool_use", "mcp_tool_use", "x_tool_use")


def _turn(dice: Dice) -> list[str]:
    blocks = []
    if dice.random() < 0.3:
        kind = dice.choice(("thinking", "redacted_thinking"))
        blocks.append(
            members({"type": constant(f'"{kind}"'), "thinking": words}, {"signature": words, "data": words})(
                dice
            )
        )
    if dice.random() < 0.5:
        blocks.append(rarely(_block)(dice))
    calls = called(dice)
    kind = dice.choice(_USES)
    for i in calls:
        use = {
            "type": constant(f'"{kind}"'),
            "id": constant(json.dumps(i)),
            "name": names,
            "input": rarely(sample(OBJECTS)),
        }
        blocks.append(members(use, {"cache_control": _marker, "caller": odd})(dice))
    content = constant(array(blocks)) if blocks else words
    turn = [members({"role": constant('"assistant"'), "content": rarely(content)})(dice)]
    results = []
    for i in answered(dice, calls):
        result = {
            "type": constant('"tool_result"'),
            "tool_use_id": constant(json.dumps(i)),
            "content": _content,
        }
        results.append(members(result, {"is_error": flags, "cache_control": _marker})(dice))
    if results:
        results += [_block(dice)] if dice.random() < 0.2 else []
        if dice.strikes(3):
            dice.shuffle(results)
        turn.append(members({"role": constant('"user"'), "content": constant(array(results))})(dice))
    return turn


_more = BESIDE | {
    "system": rarely(one_of(words, some(rarely(_text)))), "thinking": odd, "stop_sequences": odd,
    "output_config": odd, "context_management": odd, "mcp_servers": odd, "output_format": odd,
}  # fmt: skip

messages_bodies: Make = members(
    {"messages": rarely(conversation(_plain, _turn)), "max_tokens": limits}, _more
)
