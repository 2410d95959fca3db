"""What a server processes for a session behind the proxy, as counts that are the same on every machine."""

import asyncio

import pytest

from benchmarks.economy import simulated
from benchmarks.economy_bounds import Prefixes
from benchmarks.economy_cost import Asked, Cost, row, users_shown
from benchmarks.economy_sessions import OWN, sessions

WINDOW = 8192


def cost_of(name: str) -> Cost:
    found = [session for session in sessions() if session.name == name]
    if not found:
        pytest.skip("the recorded sessions (../shared/trajectories) are not here")
    return asyncio.run(simulated(found[0], WINDOW))


@pytest.mark.parametrize(
    ("name", "over_history"),
    [
        # Of some 300 tokens a turn, four windows long: notes as long as they may be are a tenth of it.
        pytest.param(OWN, 1.35, id="our own, four windows long"),
        pytest.param("airline", 1.25, id="half of the budget is tools and brief"),
        pytest.param("issue", 1.25, id="turns of a third of the window"),
    ],
)
def test_a_session_costs_little_more_than_reading_it_once(name: str, over_history: float) -> None:
    cost = cost_of(name)
    assert cost.refused == 0
    assert cost.users_kept == 1
    assert cost.compactions >= 2
    assert cost.over_history <= over_history
    assert cost.over_views <= 1.03
    assert cost.fill >= 0.4
    assert cost.notes_cached is not None
    assert cost.notes_cached >= 0.97


def test_a_prompt_costs_what_no_prompt_before_it_began_with() -> None:
    seen = Prefixes()
    assert seen.add("abcd") == 4
    assert seen.add("abcd") == 0
    assert seen.add("abx") == 1
    assert seen.add("abcdef") == 2, "what came in between changes nothing"
    assert seen.add("bcd") == 3
    assert seen.add("") == 0


def test_the_figures_of_a_cost() -> None:
    cost = Cost(session="s", window=100, history=60, requests=2, users=[1.0, 0.5])
    cost.asked = [
        Asked(view="a" * 40, prompt=40, cached=0, is_notes=False),
        Asked(view="a" * 40, prompt=50, cached=40, is_notes=True),
        Asked(view="a" * 20 + "b" * 30, prompt=50, cached=10, is_notes=False),
    ]
    assert cost.processed == 90
    assert cost.over_history == 1.5
    assert cost.over_views == 90 / 70
    assert cost.fill == 0.45
    assert cost.notes_cached == 0.8
    assert cost.users_kept == 0.75
    assert row(cost) == "| s | 100 | 2 | 0 | 60 | 90 | 1.50 | 1.286 | 45% | 75% | 0 | 0 | 80.0% |"


def test_user_messages_count_only_word_for_word() -> None:
    sent = {"messages": [{"role": "user", "content": "one"}, {"role": "user", "content": "and two"}]}
    assert (
        users_shown(sent, b'{"messages": [{"role": "user", "content": "one, <record>and two</record>"}]}')
        == 1
    )
    assert users_shown(sent, b'{"messages": [{"role": "user", "content": "one and  two"}]}') == 0.5
    assert users_shown({"messages": []}, b'{"messages": []}') == 1


def test_an_unknown_session_is_named_with_those_that_are_here() -> None:
    with pytest.raises(ValueError, match=f"no session nonsense here; there are {OWN}"):
        sessions(["nonsense"])
