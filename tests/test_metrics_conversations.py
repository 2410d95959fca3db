"""What is followed from one request to the next."""

import pytest

from proxy.core.rewrite import Rewrite
from proxy.metrics_conversations import ACTIVE_SECONDS, Cause, Conversations

ONE, OTHER = ("model", "one"), ("model", "other")
COMPACTED = Rewrite(seen=8, replaced=4, block="notes", notes="notes", compacted_at=8)
TRIMMED = Rewrite(seen=8, is_trim=True)
MASKED = Rewrite(seen=8, is_trim=True, is_mask=True, compacted_at=8)


@pytest.fixture
def clock() -> list[float]:
    return [1000.0]


@pytest.fixture
def conversations(clock: list[float]) -> Conversations:
    return Conversations(lambda: clock[0], most=3)


@pytest.mark.parametrize(
    ("prefixes", "rewrite", "cause"),
    [
        pytest.param((b"0", b"1", b"2", b"3"), None, None, id="goes on where the last one ended"),
        pytest.param((b"0", b"1", b"2"), None, None, id="the same again"),
        pytest.param((b"0", b"1"), None, Cause.CLIENT, id="goes back"),
        pytest.param((b"x", b"y", b"z"), None, Cause.CLIENT, id="another beginning"),
        pytest.param((b"0", b"n"), COMPACTED, Cause.COMPACTION, id="notes for the first turns"),
        pytest.param((b"0", b"t"), TRIMMED, Cause.TRIM, id="shorter texts"),
        pytest.param((b"0", b"m"), MASKED, Cause.MASK, id="a line for each old result"),
        pytest.param((b"0", b"1", b"2", b"3"), TRIMMED, None, id="cut behind the last one"),
    ],
)
def test_why_a_prompt_does_not_extend_the_last(
    conversations: Conversations, prefixes: tuple[bytes, ...], rewrite: Rewrite | None, cause: Cause | None
) -> None:
    assert conversations.sent(ONE, (b"0", b"1", b"2"), None) is None
    assert conversations.sent(ONE, prefixes, rewrite) is cause


def test_a_rewrite_that_was_sent_before_is_not_the_cause(conversations: Conversations) -> None:
    conversations.sent(ONE, (b"0", b"n"), COMPACTED)
    assert conversations.sent(ONE, (b"x", b"z"), COMPACTED) is Cause.CLIENT


def test_conversations_are_apart(conversations: Conversations) -> None:
    conversations.sent(ONE, (b"0", b"1"), None)
    assert conversations.sent(OTHER, (b"x",), None) is None


def test_a_run_is_saved_once(conversations: Conversations) -> None:
    assert [conversations.saved(ONE), conversations.saved(ONE), conversations.saved(OTHER)] == [
        True,
        False,
        True,
    ]


def test_an_hour_of_silence_is_the_end(conversations: Conversations, clock: list[float]) -> None:
    conversations.sent(ONE, (b"0", b"1"), None)
    clock[0] += ACTIVE_SECONDS - 1
    conversations.sent(OTHER, (b"x",), None)
    assert conversations.count() == 2
    clock[0] += 2
    assert conversations.count() == 1
    assert conversations.sent(ONE, (b"x",), None) is None


def test_the_longest_silent_makes_room(conversations: Conversations) -> None:
    for i in range(4):
        conversations.sent(("model", str(i)), (b"0",), None)
    assert conversations.count() == 3
    assert conversations.sent(("model", "0"), (b"x",), None) is None
    assert conversations.sent(("model", "3"), (b"x",), None) is Cause.CLIENT
