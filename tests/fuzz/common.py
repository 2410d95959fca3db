"""
What bodies of the three formats have in common: names, arguments, limits, and how a conversation runs.

It is written as an agent would, turn after turn; where the dice strike, results stand without their
call, calls without their result, messages in any order.
"""

import json
from collections.abc import Callable

from tests.fuzz.values import Dice, Make, array, members, odd, rarely, sample, some

Turn = Callable[[Dice], list[str]]

ARGUMENTS = [
    json.dumps(written)
    for written in (
        *('{"path":"src/app.py"}', '{ "path" : "src/app.py" }', '{"command":"pytest -x","timeout":5}') * 6,
        '{"file_path":"a.py","old_string":"a","new_string":"' + "b" * 900 + '"}',
        '{"todos":[{"content":"one","status":"pending"},{"content":7,"status":null}]}',
        "",
        "{",
        "[]",
        "null",
        '"text"',
        '{"a":1e400}',
        '{"a":' * 500,
        '{"path":"\\ud800"}',
        '{"path":{"path":["path"]}}',
        "é" * 500,
    )
]
OBJECTS = (
    '{"path":"src/app.py"}',
    '{"path":"b.py"}',
    '{"command":["bash","-lc","ls"]}',
    "{}",
    '{"a":[[[{}]]]}',
    '{"todos":"none"}',
    '{"todos":[{"content":"one","status":"pending"}]}',
    '{"query":"x"}',
)
_IDS = ("c1", "c2", "c3", "toolu_01", "call_7", "c1\n", "")
_NAMES = ["read", "edit", "bash", "grep", "todo_write"] * 4 + ["", "x" * 300, "<record>", "größe", "a\nb"]

names: Make = rarely(sample([json.dumps(name) for name in _NAMES]))
limits: Make = sample(("16", "256", "256", "4096", "0", "-1", "100000000", "1.5", '"256"', "null", "true"))
flags: Make = sample(("true", "true", "false", "null", '"true"', "1"))
_models: Make = rarely(sample(('"m"', '"org/model:tag"', f'"{"m" * 400}"', r'"\ud800"', r'"a\nb"')))
_choices: Make = rarely(sample(('"auto"', '"none"', '"required"', '{"type":"tool","name":"read"}')))
_schema: Make = rarely(
    sample(('{"type":"object","properties":{"path":{"type":"string"}}}', '{"type":"object"}'))
)
_function: Make = members({"name": names, "parameters": _schema}, {"description": odd, "strict": odd})
_tool: Make = rarely(
    members(
        {
            "type": rarely(sample(('"function"', '"custom"', '"web_search"', '"namespace"'))),
            "function": _function,
            "name": names,
        },
        {"input_schema": _schema, "tools": odd, "defer_loading": odd, "cache_control": odd},
    )
)

BESIDE: dict[str, Make] = {
    "model": _models,
    "stream": flags,
    "tools": rarely(some(_tool)),
    "max_tokens": limits,
    "max_completion_tokens": limits,
    "n_predict": limits,
    "max_output_tokens": limits,
    "tool_choice": _choices,
    "functions": odd,
    "function_call": odd,
    "stream_options": odd,
    "temperature": odd,
    "response_format": odd,
    "stop": odd,
    "n": odd,
    "logprobs": odd,
    "chat_template_kwargs": odd,
    "é": odd,
    "system": odd,
    "metadata": odd,
    "user": odd,
}
"""Fields beside the messages: any body may have those of another format too."""


def called(dice: Dice) -> list[str]:
    """Ids of the calls of one turn; mostly different ones."""
    ids = dice.sample(_IDS[:5], dice.choice((0, 1, 1, 1, 2, 3)))
    return [dice.choice(_IDS) for _ in ids] if dice.strikes() else ids


def answered(dice: Dice, calls: list[str]) -> list[str]:
    """Which of *calls* get a result: each, in order, where nothing strikes."""
    if not dice.strikes(4):
        return calls
    return dice.choice(
        (calls[::-1], calls[:-1], calls * 2, [], [dice.choice(_IDS) for _ in range(dice.randrange(4))])
    )


def conversation(plain: Make, turn: Turn, *, longest: int = 14) -> Make:
    """An array of messages: *plain* ones, then turns, with somebody speaking between some of them."""

    def make(dice: Dice) -> str:
        messages = [plain(dice) for _ in range(dice.choice((1, 1, 2, 2, 3)))]
        for _ in range(dice.choice((0, 1, 2, 3, 5, 8, longest))):
            messages += turn(dice)
            if dice.random() < 0.15:
                messages.append(plain(dice))
        if dice.strikes(4):
            messages.insert(dice.randint(0, len(messages)), odd(dice))
        if dice.strikes(2):
            dice.shuffle(messages)
        if dice.strikes(2):
            messages = messages[dice.randrange(len(messages)) :]
        return array(messages)

    return make
