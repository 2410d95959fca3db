"""What is remembered of notes made ahead, and for how long."""

from dataclasses import dataclass, field

import pytest
from prometheus_client import CollectorRegistry

from proxy.ahead_fates import MOST_REMEMBERED, Fates
from proxy.core.messages import Conversation, Message, Role, Turn
from proxy.core.rewrite import Rewrite
from proxy.metrics import Metrics

NOTED = Rewrite(seen=4, replaced=2, block="b", notes="n", compacted_at=4)


@dataclass(slots=True)
class Told:
    """Fates with a clock of their own."""

    now: float = 0.0
    metrics: Metrics = field(default_factory=lambda: Metrics(CollectorRegistry()))
    fates: Fates = field(init=False)

    def __post_init__(self) -> None:
        self.fates = Fates(self.metrics, lambda: self.now)

    def made(self, history: bytes) -> None:
        self.fates.made(history, NOTED, conversation="c", model="m")

    def counted(self, outcome: str) -> float | None:
        labels = {"model": "m", "outcome": outcome}
        return self.metrics.registry.get_sample_value("context_notes_ahead_total", labels)


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.mark.parametrize(
    ("later_seconds", "digests", "shown", "unused"),
    [
        pytest.param(60, (b"h",), None, None, id="soon, and nothing else in use"),
        pytest.param(3601, (), None, 1, id="an hour later"),
        pytest.param(60, (b"h",), Rewrite(seen=6, replaced=4, compacted_at=6), 1, id="overtaken"),
        pytest.param(60, (b"x",), Rewrite(seen=6, replaced=4, compacted_at=6), None, id="another history"),
        pytest.param(60, (b"h",), Rewrite(seen=2, replaced=1, compacted_at=2), None, id="made after it"),
    ],
)
def test_notes_are_wasted_once_nobody_will_use_them(
    told: Told, later_seconds: float, digests: tuple[bytes, ...], shown: Rewrite | None, unused: float | None
) -> None:
    told.made(b"h")
    told.now += later_seconds
    told.fates.forget(digests, shown)
    told.fates.forget(digests, shown)
    assert told.counted("unused") == unused


def test_notes_that_were_used_are_not_wasted(told: Told) -> None:
    told.made(b"h")
    told.fates.used(b"h", "m")
    told.now += 7200
    told.fates.forget((b"h",), None)
    assert told.counted("used") == 1
    assert not told.counted("unused")


def test_so_many_are_remembered_and_the_oldest_go_first(told: Told) -> None:
    for number in range(MOST_REMEMBERED + 5):
        told.made(str(number).encode())
    told.fates.forget((), None)
    assert told.counted("unused") == 5


def test_aborts_are_remembered_for_so_many_histories(told: Told) -> None:
    conversation = talk(turns=1)
    told.fates.aborted(b"1", conversation="c", model="m")
    assert told.fates.rests(conversation, (b"seed", b"0", b"1"))
    for number in range(MOST_REMEMBERED):
        told.fates.aborted(f"other {number}".encode(), conversation="c", model="m")
    assert not told.fates.rests(conversation, (b"seed", b"0", b"1"))
    assert told.counted("aborted") == MOST_REMEMBERED + 1


@pytest.mark.parametrize(
    ("turns", "rests"),
    [(1, True), (2, True), (3, True), (4, False)],
    ids=["itself", "1", "2", "3 turns later"],
)
def test_an_attempt_rests_for_three_turns_after_one_that_was_aborted(
    told: Told, turns: int, rests: bool
) -> None:
    told.fates.aborted(b"1", conversation="c", model="m")
    digests = (b"seed", *(str(i).encode() for i in range(1 + turns)))
    assert told.fates.rests(talk(turns), digests) is rests


def talk(turns: int) -> Conversation:
    """A brief of one message, then turns of one."""
    messages = (Message(role=Role.USER), *(Message(role=Role.ASSISTANT) for _ in range(turns)))
    return Conversation(
        messages=messages,
        brief_end=1,
        turns=tuple(Turn(start=i, end=i + 1) for i in range(1, 1 + turns)),
    )
