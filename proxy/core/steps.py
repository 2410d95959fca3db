"""
Read a range's calls once, for everything that is made of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from proxy.core.messages import Message
from proxy.core.outcomes import Outcome, read_outcome
from proxy.core.pairs import pair
from proxy.core.tools import Deed, read_call


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """
    A call with all that code knows of it.

    Attributes:
        number: From 1 for the first call of the range.
        message_index: Index of the message that made it.
        raw: Its arguments as they came.
        deed: What it does.
        outcome: How it ended.
        result: The text of its result; empty without one.
        answer: Index of the message that brought it, and which of its answers it is; None without one.
    """

    number: int
    message_index: int
    raw: str
    deed: Deed
    outcome: Outcome
    result: str
    answer: tuple[int, int] | None = None


def read_steps(messages: Sequence[Message]) -> tuple[Step, ...]:
    """Every call of *messages*, understood, in order."""
    steps = []
    for number, made in enumerate(pair(messages), 1):
        deed = read_call(made.call)
        steps.append(
            Step(
                number=number,
                message_index=made.message_index,
                raw=made.call.arguments,
                deed=deed,
                outcome=read_outcome(deed.act, made.result),
                result=made.result or "",
                answer=made.answer,
            )
        )
    return tuple(steps)
