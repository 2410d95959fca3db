"""What the upstream said of a prompt is exact; what comes after it is estimated."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.counting import FACTOR_RANGE, LEAST_SAMPLE, MOST_ATTACHMENT_TOKENS, Counts, measure
from proxy.tokenizer import ATTACHMENT_TOKENS

MODEL = "qwen"


def test_the_longest_prompt_that_was_counted_is_known() -> None:
    counts = Counts()
    counts.remember(MODEL, b"one", 100)
    counts.remember(MODEL, b"three", 300)
    assert counts.known(MODEL, [b"zero", b"one", b"two", b"three", b"four"]) == (3, 300)
    assert counts.known(MODEL, [b"zero", b"one", b"two"]) == (1, 100)
    assert counts.known(MODEL, [b"zero"]) is None
    assert counts.known(MODEL, []) is None


def test_a_count_is_one_models_own() -> None:
    counts = Counts()
    counts.remember(MODEL, b"one", 100)
    assert counts.known("llama", [b"one"]) is None


def test_the_newest_count_of_a_prompt_is_kept() -> None:
    counts = Counts()
    counts.remember(MODEL, b"one", 100)
    counts.remember(MODEL, b"one", 101)
    assert counts.known(MODEL, [b"one"]) == (0, 101)


@pytest.mark.parametrize(
    "tokens",
    [pytest.param(0, id="not counted"), pytest.param(-5, id="negative"), pytest.param(10**400, id="huge")],
)
def test_nonsense_is_not_remembered(tokens: int) -> None:
    counts = Counts()
    counts.remember(MODEL, b"one", tokens)
    assert counts.known(MODEL, [b"one"]) is None


def test_prompts_in_use_stay_and_old_ones_go() -> None:
    counts = Counts(prompts=3)
    for key in (b"a", b"b", b"c", b"d", b"e"):
        counts.remember(MODEL, key, 10)
        assert counts.known(MODEL, [b"a"]) == (0, 10)
    assert counts.known(MODEL, [b"b"]) is None
    assert counts.known(MODEL, [b"e"]) == (0, 10)


def test_models_without_an_answer_are_taken_as_estimated() -> None:
    counts = Counts()
    assert counts.factor(MODEL) == 1.0
    assert 0 < counts.estimate_error(MODEL) < 1


def test_the_first_answer_counts_fully() -> None:
    counts = Counts()
    counts.learn(MODEL, 1000, 1300)
    assert counts.factor(MODEL) == pytest.approx(1.3)
    assert counts.factor("llama") == 1.0


def test_later_answers_count_gradually() -> None:
    counts = Counts()
    counts.learn(MODEL, 1000, 1000)
    counts.learn(MODEL, 1000, 2000)
    assert 1.0 < counts.factor(MODEL) < 1.5, "one odd answer moves little"
    for _ in range(20):
        counts.learn(MODEL, 1000, 2000)
    assert counts.factor(MODEL) == pytest.approx(2.0, rel=0.02), "a lasting change is followed"


@pytest.mark.parametrize(
    ("estimated", "actual"),
    [
        pytest.param(LEAST_SAMPLE - 1, 900, id="estimate too small"),
        pytest.param(900, LEAST_SAMPLE - 1, id="answer too small"),
        pytest.param(900, 10**400, id="huge answer"),
        pytest.param(0, 0, id="nothing"),
        pytest.param(-9000, 9000, id="negative estimate"),
        pytest.param(9000, -9000, id="negative answer"),
    ],
)
def test_small_prompts_and_nonsense_teach_nothing(estimated: int, actual: int) -> None:
    counts = Counts()
    counts.learn(MODEL, estimated, actual)
    assert counts.factor(MODEL) == 1.0


@given(st.lists(st.tuples(st.integers(), st.integers()), max_size=20))
def test_whatever_is_reported_the_factor_stays_within_reason(samples: list[tuple[int, int]]) -> None:
    counts = Counts()
    for estimated, actual in samples:
        counts.learn(MODEL, estimated, actual)
        assert FACTOR_RANGE[0] <= counts.factor(MODEL) <= FACTOR_RANGE[1]
        assert 0 <= counts.estimate_error(MODEL) <= 1


def test_the_error_falls_with_steady_answers_and_rises_with_odd_ones() -> None:
    counts = Counts()
    unseen = counts.estimate_error(MODEL)
    for _ in range(10):
        counts.learn(MODEL, 1000, 1500)
    steady = counts.estimate_error(MODEL)
    assert steady < unseen
    counts.learn(MODEL, 1000, 3000)
    assert counts.estimate_error(MODEL) > steady


def test_there_is_a_limit_to_models() -> None:
    counts = Counts(models=2)
    for model in ("a", "b", "a", "c"):
        counts.learn(model, 1000, 2000)
    assert [counts.factor(model) for model in ("a", "b", "c")] == [2.0, 1.0, 2.0]


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        pytest.param(None, 1200, id="nothing known: all estimated, fixed part too"),
        pytest.param((0, 350), 350 + 900, id="the fixed part known"),
        pytest.param((2, 777), 777 + 450, id="estimates only for what comes after"),
        pytest.param((3, 999), 999, id="all known: exact"),
        pytest.param((9, 999), 999, id="more known than there is"),
    ],
)
def test_measure(known: tuple[int, int] | None, expected: int) -> None:
    assert measure([100, 200, 300], fixed=200, factor=1.5, known=known) == expected


def test_a_tool_result_after_the_last_answer_is_not_forgotten() -> None:
    assert measure([500, 100, 30_000], known=(2, 60_000)) == 90_000


def test_a_measure_is_a_whole_number_rounded_up() -> None:
    assert measure([1, 1, 1], factor=1.1) == 4
    assert measure([]) == 0


# Pictures


def test_what_a_picture_costs_is_learned_and_leaves_the_factor_alone() -> None:
    counts = Counts()
    counts.learn("m", 1000, 1200)
    counts.learn("m", 1000 + 2 * ATTACHMENT_TOKENS, 1200 + 2 * 9000, attachments=2)
    assert (counts.factor("m"), counts.attachment("m")) == (1.2, 9000)


def test_a_first_prompt_with_pictures_tells_of_tokens_only_where_that_is_plausible() -> None:
    counts = Counts()
    counts.learn("dear", 500 + ATTACHMENT_TOKENS, 500 + 9000, attachments=1)
    counts.learn("usual", 5000 + ATTACHMENT_TOKENS, 7000, attachments=1)
    assert [counts.has_learned(model) for model in ("dear", "usual")] == [False, True]
    assert (counts.factor("dear"), counts.attachment("dear")) == (1.0, 9000)


@pytest.mark.parametrize(
    ("actual", "cost"),
    [
        pytest.param(300, 0, id="a server that leaves them out"),
        pytest.param(90_000_000, MOST_ATTACHMENT_TOKENS, id="nonsense"),
    ],
)
def test_a_picture_costs_no_less_than_nothing_and_not_beyond_reason(actual: int, cost: int) -> None:
    counts = Counts()
    counts.learn("m", 400 + ATTACHMENT_TOKENS, actual, attachments=1)
    assert counts.attachment("m") == cost


def test_of_a_model_that_was_never_seen_a_picture_costs_what_is_usual() -> None:
    assert Counts().attachment("m") == ATTACHMENT_TOKENS
