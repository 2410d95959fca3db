"""Bodies for `/v1/responses`."""

import json

from tests.fuzz.common import ARGUMENTS, BESIDE, OBJECTS, answered, called, conversation, flags, names
from tests.fuzz.values import Dice, Make, constant, members, odd, one_of, rarely, sample, some, words

_part = one_of(
    members({"type": constant('"input_text"'), "text": words}),
    members({"type": constant('"output_text"'), "text": words}, {"annotations": odd, "logprobs": odd}),
    members(
        {"type": constant('"input_image"'), "image_url": rarely(constant('"data:image/png;base64,AA=="'))}
    ),
    members({"type": constant('"input_file"')}, {"file_data": odd, "filename": odd, "file_id": odd}),
)
_content: Make = rarely(one_of(words, words, some(rarely(_part))))
_roles: Make = rarely(sample(('"developer"', '"system"', '"user"')), sample(('"critic"', '"tool"', "{}")))
_user = members({"role": constant('"user"'), "content": _content}, {"type": constant('"message"'), "id": odd})
_plain = one_of(
    _user,
    _user,
    members({"type": constant('"message"'), "role": _roles, "content": _content}, {"status": odd}),
)
_KINDS = ("function_call",) * 12 + (
    "custom_tool_call",
    "local_shell_call",
    "web_search_call",
    "mcp_call",
    "shell_call",
    "computer_call",
    "apply_patch_call",
    "code_interpreter_call",
    "image_generation_call",
    "x_call",
    "_call",
)
_OTHERS = (
    '"item_reference"',
    '"compaction"',
    '"mcp_list_tools"',
    '"tool_search_output"',
    '"mcp_approval_response"',
    '"mcp_approval_request"',
    '"_output"',
    '""',
    '"unheard_of"',
)


def _turn(dice: Dice) -> list[str]:
    turn = []
    if dice.random() < 0.3:
        sealed = {"encrypted_content": words, "id": odd, "content": odd}
        turn.append(members({"type": constant('"reasoning"'), "summary": _content}, sealed)(dice))
    if dice.random() < 0.4:
        said = {"type": constant('"message"'), "role": constant('"assistant"'), "content": _content}
        turn.append(members(said, {"phase": odd, "id": odd})(dice))
    calls = called(dice)
    kind = dice.choice(_KINDS)
    field, value = {
        "function_call": ("arguments", sample(ARGUMENTS)),
        "custom_tool_call": ("input", words),
    }.get(kind, (dice.choice(("action", "code", "query", "queries", "operation")), sample(OBJECTS)))
    for i in calls:
        call = {
            "type": constant(f'"{kind}"'),
            "call_id": constant(json.dumps(i)),
            "name": names,
            field: rarely(value),
        }
        turn.append(
            members(call, {"status": odd, "id": odd, "output": odd, "results": odd, "error": odd})(dice)
        )
    for i in answered(dice, calls):
        result = {
            "type": constant(f'"{kind}_output"'),
            "call_id": constant(json.dumps(i)),
            "output": _content,
        }
        turn.append(members(result, {"status": odd, "max_output_length": odd})(dice))
    if dice.random() < 0.1:
        other = {"id": odd, "tools": odd, "approve": odd, "output": odd, "encrypted_content": words}
        turn.append(members({"type": sample(_OTHERS)}, other)(dice))
    return turn


_more = BESIDE | {
    "instructions": rarely(words),
    "store": flags,
    "include": odd,
    "text": odd,
    "reasoning": odd,
    "truncation": odd,
    "client_metadata": odd,
    "previous_response_id": rarely(constant("null")),
    "messages": odd,
    "conversation": rarely(constant("null")),
    "prompt": odd,
    "context_management": odd,
}

responses_bodies: Make = members({"input": rarely(conversation(_plain, _turn), one_of(words, odd))}, _more)
