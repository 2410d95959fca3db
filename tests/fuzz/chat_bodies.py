"""Bodies for `/v1/chat/completions`."""

import json

from tests.fuzz.common import ARGUMENTS, BESIDE, answered, called, conversation, names
from tests.fuzz.values import Dice, Make, array, constant, members, odd, one_of, rarely, sample, some, words

_image = '{"url":"data:image/png;base64,AA=="}'
_part = one_of(
    members({"type": constant('"text"'), "text": words}, {"cache_control": odd}),
    members({"type": constant('"image_url"'), "image_url": rarely(constant(_image))}),
    members({"type": constant('"refusal"'), "refusal": words}),
)
_content: Make = rarely(one_of(words, words, words, some(rarely(_part)), constant("null")))
_roles: Make = rarely(
    sample(('"system"', '"developer"', '"user"')), sample(('"critic"', '"function"', '"tool"', '"USER"', "1"))
)
_user = members({"role": constant('"user"'), "content": _content}, {"name": odd})
_plain = one_of(_user, _user, members({"role": _roles, "content": _content}))
_more = {
    "reasoning_content": words, "reasoning": words, "refusal": odd, "function_call": odd, "audio": odd,
    "annotations": odd, "prefix": odd, "name": odd,
}  # fmt: skip


def _turn(dice: Dice) -> list[str]:
    calls = called(dice)
    said: dict[str, Make] = {"role": constant('"assistant"'), "content": _content}
    if calls:
        said["tool_calls"] = rarely(constant(array([_call(dice, i) for i in calls])))
    turn = [members(said, _more)(dice)]
    for i in answered(dice, calls):
        result = {"role": constant('"tool"'), "tool_call_id": constant(json.dumps(i)), "content": _content}
        turn.append(members(result, {"name": names})(dice))
    return turn


def _call(dice: Dice, call_id: str) -> str:
    function = rarely(members({"name": names, "arguments": rarely(sample(ARGUMENTS))}))
    call = {"id": rarely(constant(json.dumps(call_id))), "type": constant('"function"'), "function": function}
    return members(call, {"index": odd, "extra_content": odd})(dice)


chat_bodies: Make = members(
    {"messages": rarely(conversation(_plain, _turn))}, BESIDE | {"input": odd, "instructions": odd}
)
