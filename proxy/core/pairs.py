"""
Find the result of each call.

Ids are no help by themselves: models repeat them, within a conversation and even within
one message. So pairs are found by position, as `messages.find_turns` does.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from proxy.core.messages import Call, Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """
    A call and what came back.

    Attributes:
        call: The call.
        message_index: Index of the message that made it.
        result: The text of its result, or None where none came.
        answer: Index of the message that brought it, and which of its answers it is; None where none came.
    """

    call: Call
    message_index: int
    result: str | None = None
    answer: tuple[int, int] | None = None


def pair(messages: Sequence[Message]) -> tuple[Pair, ...]:
    """
    Every call of *messages* in order, with its result.

    A result answers the nearest message before it that has an unanswered call of its id,
    and there the first such call: parallel results come in the order of their calls.
    A result without a call is left out.
    """
    pairs: list[Pair] = []
    unanswered: dict[str, list[list[int]]] = {}
    for index, message in enumerate(messages):
        asked: dict[str, list[int]] = {}
        for call in message.calls:
            asked.setdefault(call.id, []).append(len(pairs))
            pairs.append(Pair(call=call, message_index=index))
        for answer, answered in enumerate(message.answers):
            batches = unanswered.get(answered)
            if not batches:
                continue
            place = batches[-1].pop(0)
            if not batches[-1]:
                batches.pop()
            made = pairs[place]
            pairs[place] = Pair(
                call=made.call,
                message_index=made.message_index,
                result=message.result(answer),
                answer=(index, answer),
            )
        for call_id, places in asked.items():
            unanswered.setdefault(call_id, []).append(places)
    return tuple(pairs)
