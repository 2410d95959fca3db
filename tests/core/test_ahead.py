"""How large the next prompt is expected to be at least."""

import json
from typing import Any

import pytest

from proxy.core.ahead import expect_prompt
from proxy.core.plan import Sizes
from proxy.dialects.chat_completions import CHAT_COMPLETIONS

BRIEF = [{"role": "user", "content": "task"}]


def turn(number: int, results: int = 1) -> list[dict[str, Any]]:
    calls = [
        {"id": f"c{number}-{i}", "type": "function", "function": {"name": "read", "arguments": "{}"}}
        for i in range(results)
    ]
    answers = [{"role": "tool", "tool_call_id": call["id"], "content": "result"} for call in calls]
    return [{"role": "assistant", "content": "I read.", "tool_calls": calls}, *answers]


@pytest.mark.parametrize(
    ("turns", "whole", "expected"),
    [
        pytest.param([], (), 100 + 10, id="no turn: the answer alone"),
        pytest.param([1], (5, 40), 145 + 10 + 40, id="one turn: as much again"),
        pytest.param([1, 1, 1], (5, 40, 5, 20, 5, 30), 205 + 10 + 20, id="the least of three"),
        pytest.param([1, 1, 1, 1], (5, 1, 5, 40, 5, 20, 5, 30), 211 + 10 + 20, id="older turns do not count"),
        pytest.param([2], (5, 40, 7), 152 + 10 + 47, id="all results of a turn"),
    ],
)
def test_the_next_prompt_brings_the_answer_and_the_least_that_tools_said_lately(
    turns: list[int], whole: tuple[int, ...], expected: int
) -> None:
    messages = BRIEF + [message for i, results in enumerate(turns) for message in turn(i, results)]
    conversation = CHAT_COMPLETIONS.parse(json.dumps({"messages": messages}).encode()).conversation
    sizes = Sizes(fixed=100, block=0, shown=whole, whole=whole)
    assert expect_prompt(conversation, sizes, 10) == expected
