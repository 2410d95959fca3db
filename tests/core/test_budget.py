"""How much is too much."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.budget import Budget, reserve_for
from proxy.errors import ConfigError

BUDGET = Budget(window=1_100, reserve=100, compact_at=0.6)


@pytest.mark.parametrize(
    ("prompt", "over", "pressing", "fits"),
    [
        pytest.param(600, False, False, True, id="at compact_at: left alone"),
        pytest.param(601, True, False, True, id="past compact_at"),
        pytest.param(950, True, False, True, id="at nineteen twentieths"),
        pytest.param(951, True, True, True, id="past nineteen twentieths"),
        pytest.param(1_000, True, True, True, id="just full"),
        pytest.param(1_001, True, True, False, id="one too many"),
    ],
)
def test_what_a_prompt_is_to_a_budget(prompt: int, over: bool, pressing: bool, fits: bool) -> None:
    assert (BUDGET.is_over(prompt), BUDGET.is_pressing(prompt), BUDGET.fits(prompt)) == (over, pressing, fits)


def test_compaction_that_is_switched_off_is_never_due() -> None:
    budget = Budget(window=1_100, reserve=100, compact_at=0)
    assert not budget.is_over(10_000)
    assert not budget.is_pressing(10_000)
    assert not budget.fits(1_001)


def test_pressing_is_never_before_compact_at() -> None:
    assert not Budget(window=1_100, reserve=100, compact_at=0.98).is_pressing(970)


@pytest.mark.parametrize("prompt", [540, 600, 660, 900, 1_000, 1_100])
def test_near_a_limit(prompt: int) -> None:
    assert BUDGET.is_near_a_limit(prompt)


@pytest.mark.parametrize("prompt", [0, 539, 661, 899, 1_101])
def test_far_from_every_limit(prompt: int) -> None:
    assert not BUDGET.is_near_a_limit(prompt)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        pytest.param({"window": 100, "reserve": 100}, "leaves nothing after a reserve of 100", id="no room"),
        pytest.param({"window": 0, "reserve": 0}, "a window of 0 leaves nothing", id="no window"),
        pytest.param({"compact_at": 0.2}, "need 0 < compact_to < compact_at <= 1", id="compact_to above"),
        pytest.param({"compact_at": 1.5}, "got 0.25 and 1.5", id="more than all"),
        pytest.param({"compact_at": 0.25}, "got 0.25 and 0.25", id="no gap between them"),
        pytest.param({"compact_to": 0.0}, "leave both out for 0.25 and 0.6", id="compact_to of nothing"),
    ],
)
def test_what_cannot_work_is_an_error_with_its_remedy(settings: dict[str, float], says: str) -> None:
    with pytest.raises(ConfigError, match=says.replace("(", r"\(")):
        Budget(**({"window": 1_000, "reserve": 100} | settings))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("window", "output_limit", "configured", "enforced", "reserve"),
    [
        pytest.param(8_192, None, None, False, 1_024, id="auto: an eighth"),
        pytest.param(4_096, None, None, False, 1_024, id="auto: at least 1024"),
        pytest.param(131_072, None, None, False, 8_192, id="auto: at most 8192"),
        pytest.param(2_048, None, None, False, 512, id="auto: never more than a quarter"),
        pytest.param(65_537, None, None, False, 8_192, id="auto: whole tokens of what is at most"),
        pytest.param(8_201, None, None, False, 1_025, id="auto: whole tokens of an eighth"),
        pytest.param(2_051, None, None, False, 512, id="auto: whole tokens of a quarter"),
        pytest.param(8_192, None, 300, False, 300, id="configured"),
        pytest.param(8_192, 500, 300, False, 500, id="the request's own limit wins"),
        pytest.param(8_192, 32_000, None, False, 2_048, id="a huge limit is believed up to a quarter"),
        pytest.param(8_192, 7_000, None, True, 7_000, id="an enforced limit is believed"),
        pytest.param(8_192, 0, None, False, 0, id="a limit of nothing"),
    ],
)
def test_reserve(
    window: int, output_limit: int | None, configured: int | None, enforced: bool, reserve: int
) -> None:
    found = reserve_for(window, output_limit, configured, enforced=enforced)
    assert (found, type(found)) == (reserve, int)


@given(st.integers(4, 2_000_000), st.none() | st.integers(0, 2_000_000))
def test_a_budget_remains_wherever_the_upstream_does_not_enforce_the_limit(
    window: int, output_limit: int | None
) -> None:
    reserve = reserve_for(window, output_limit, None, enforced=False)
    assert Budget(window=window, reserve=reserve).limit >= window * 3 // 4


def test_a_prompt_may_be_compacted_only_when_it_is_full() -> None:
    assert not Budget(window=1_100, reserve=100, compact_at=1).is_over(1_000)


@pytest.mark.parametrize(("prompt", "rests"), [(0, True), (425, True), (426, False), (600, False)])
def test_what_is_below_the_middle_of_both_shares_will_rest(prompt: int, rests: bool) -> None:
    assert BUDGET.will_rest(prompt) is rests


def test_a_budget_of_one_token_is_one() -> None:
    assert Budget(window=101, reserve=100).limit == 1


@pytest.mark.parametrize(
    ("window", "reserve", "fixed", "left"),
    [
        pytest.param(4_096, 1_024, 0, 1_024, id="nothing but turns"),
        pytest.param(4_096, 1_024, 1_844, 1_024, id="two fifths are left for turns"),
        pytest.param(4_096, 1_024, 1_845, 1_023, id="one token less"),
        pytest.param(4_096, 1_024, 2_500, 368, id="most of the reserve gives way"),
        pytest.param(4_096, 1_024, 2_612, 256, id="a sixteenth of the window is left"),
        pytest.param(4_096, 1_024, 2_613, 256, id="and stays"),
        pytest.param(4_100, 1_024, 3_000, 256, id="in whole tokens"),
        pytest.param(4_096, 1_024, 3_072, 256, id="tools and brief fill it all"),
        pytest.param(4_096, 1_024, 3_073, 1_024, id="more than all: the upstream's to judge"),
        pytest.param(32_768, 4_096, 24_576, 4_096, id="enough for turns in a large window"),
        pytest.param(32_768, 4_096, 24_577, 4_095, id="one token less there"),
        pytest.param(32_768, 4_096, 28_672, 2_048, id="a sixteenth of a large window"),
        pytest.param(4_096, 256, 3_800, 256, id="no more than a sixteenth was kept free"),
        pytest.param(4_096, 200, 3_800, 200, id="an answer that needs less"),
    ],
)
def test_the_reserve_gives_way_to_turns_beside_large_tools(
    window: int, reserve: int, fixed: int, left: int
) -> None:
    before = Budget(window=window, reserve=reserve, compact_at=0.7, compact_to=0.2)
    budget = before.with_room_for_turns(fixed)
    assert (budget.window, budget.reserve) == (window, left)
    assert (budget.compact_at, budget.compact_to) == (0.7, 0.2)
