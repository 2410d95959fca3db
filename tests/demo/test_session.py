"""The recorded session is what an agent would send, and long enough to be worth compacting."""

import json
from itertools import pairwise

import pytest

from proxy.demo.session import Session, is_enough, load_session
from tests.support.llama import Llama
from tests.support.prompts import STRICT, refusal

SESSION = load_session()


def test_every_request_passes_a_strict_template() -> None:
    for turn in range(1, len(SESSION.turns) + 1):
        assert refusal(SESSION.before(turn), STRICT) is None


def test_every_call_names_a_tool_and_has_one_result_right_after_it() -> None:
    names = {tool["function"]["name"] for tool in SESSION.tools}
    for i in SESSION.turns:
        calls = SESSION.messages[i].get("tool_calls", [])
        assert {call["function"]["name"] for call in calls} <= names
        assert all(isinstance(json.loads(call["function"]["arguments"]), dict) for call in calls)
        results = SESSION.messages[i + 1 : i + 1 + len(calls)]
        assert [r.get("tool_call_id") for r in results] == [call["id"] for call in calls]


def test_has_what_a_real_session_has() -> None:
    assert len(SESSION.turns) > 50
    assert sum(m["role"] == "user" for m in SESSION.messages) >= 4
    calls = [m["tool_calls"] for m in SESSION.messages if m.get("tool_calls")]
    assert any(len(batch) > 1 for batch in calls)
    used = {call["function"]["name"] for batch in calls for call in batch}
    assert used == {tool["function"]["name"] for tool in SESSION.tools}
    assert any("1 failed" in str(m["content"]) for m in SESSION.messages if m["role"] == "tool")


def test_names_no_place_of_the_machine_it_was_made_on() -> None:
    written = json.dumps([SESSION.messages, SESSION.tools])
    assert "/tmp/tmp" not in written and "site-packages" not in written and "/root" not in written


@pytest.mark.parametrize(
    ("whole", "asked", "enough"),
    [
        pytest.param([], None, False, id="nothing yet"),
        pytest.param([50, 399], None, False, id="under four windows"),
        pytest.param([50, 400], None, True, id="four windows"),
        pytest.param([50, 400], 3, False, id="fewer turns than asked for"),
        pytest.param([50, 60], 2, True, id="as many turns as asked for"),
    ],
)
def test_is_enough(whole: list[int], asked: int | None, enough: bool) -> None:
    assert is_enough(whole, window=100, asked=asked) is enough


def test_before_a_turn_stands_everything_up_to_its_assistant_message() -> None:
    user, assistant = {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}
    session = Session(messages=(user, assistant, user, assistant), tools=())
    assert session.before(1) == [user] and session.before(2) == [user, assistant, user]


@pytest.mark.long
@pytest.mark.slow
def test_is_four_windows_of_8192_long_in_turns_that_fit_a_small_window(llama_4096: Llama) -> None:
    tools = list(SESSION.tools)
    whole = [
        llama_4096.count({"messages": SESSION.before(turn), "tools": tools})
        for turn in range(1, len(SESSION.turns) + 1)
    ]
    assert whole[-1] >= 4 * 8192
    assert whole[0] < 1000
    assert max(b - a for a, b in pairwise(whole)) < 800
    longest = max((m for m in SESSION.messages if m["role"] == "tool"), key=lambda m: len(m["content"]))
    assert llama_4096.count({"messages": [{"role": "user", "content": longest["content"]}]}) < 700


@pytest.mark.slow
def test_every_turn_extends_the_prompt_of_the_one_before(llama_4096: Llama) -> None:
    opened, before = "<start_of_turn>assistant\n", ""
    for turn in range(1, len(SESSION.turns) + 1):
        body = {"messages": SESSION.before(turn), "tools": list(SESSION.tools)}
        _, answer = llama_4096.post("/apply-template", body)
        assert answer["prompt"].startswith(before)
        before = answer["prompt"].removesuffix(opened)
