"""
Play the recorded session through the proxy, as its agent would, and keep what each request cost.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from proxy.config import NOTES_INSTRUCTION
from proxy.demo.session import Session, load_session
from tests.support.llama import SAMPLING
from tests.support.passing import Passed, Passing
from tests.support.proxied import wire
from tests.support.watched import Got, Watched

SESSION = load_session()
# Of what the short agent says and reads, and of each argument of its calls.
_TEXT_CHARS, _ARGUMENT_CHARS = 300, 80
# The base model writes to its limit and has no thoughts; a short instruction is soon processed. A
# heartbeat would begin an answer before its headers are known.
QUICK_NOTES: dict[str, Any] = {
    "notes_instruction": f"{NOTES_INSTRUCTION.splitlines()[0]}\nWrite a short record of it in {{language}}.",
    "notes_reasoning_tokens": 0,
    "notes_max_tokens": 96,
    "keepalive_seconds": 600.0,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """
    One request of the agent.

    Attributes:
        messages: As the agent sent them.
        got: What it got.
        notes: Requests for notes that went to the server for it.
        sent: The request that was answered.
    """

    messages: list[dict[str, Any]]
    got: Got
    notes: tuple[Passed, ...]
    sent: Passed

    @property
    def is_ordinary(self) -> bool:
        """Whether nothing was rewritten for it."""
        return self.got.outcome in ("none", "reused")


@dataclass(slots=True)
class Played:
    """A session that was played, turn by turn."""

    turns: list[Turn] = field(default_factory=list)

    @property
    def processed(self) -> int:
        """Tokens that the server processed in all, notes included."""
        return sum(p.processed for turn in self.turns for p in (*turn.notes, turn.sent))

    def added(self) -> Iterator[tuple[Turn, int]]:
        """Each ordinary turn but the first, with the tokens that were added since the request before."""
        for before, turn in pairwise(self.turns):
            if turn.is_ordinary:
                yield turn, turn.sent.prompt - before.sent.prompt


def body_of(messages: list[dict[str, Any]], **members: Any) -> dict[str, Any]:
    """A request for the next turn of the recorded agent, answered with a word."""
    tools = list(SESSION.tools)
    return {"messages": messages, "model": "gemma", "tools": tools, "max_tokens": 1, **SAMPLING, **members}


def requests(session: Session, upto: int) -> list[list[dict[str, Any]]]:
    """The messages of each request up to turn *upto*, counted from 1."""
    return [session.before(turn) for turn in range(1, upto + 1)]


async def play(
    proxy: Watched, relay: Passing, histories: list[list[dict[str, Any]]], played: Played, **members: Any
) -> None:
    """Ask for one turn after the other; what came of it is added to *played*."""
    for messages in histories:
        before = len(relay.passed)
        got = await proxy.send(wire(body_of(messages, **members)))
        arrived = [passed for passed in relay.passed[before:] if passed.is_completion]
        assert got.status == 200, got.body
        turn = Turn(
            messages=messages,
            got=got,
            notes=tuple(passed for passed in arrived if passed.is_notes),
            sent=arrived[-1],
        )
        assert not turn.sent.is_notes
        played.turns.append(turn)


def brief_and_last_turn(messages: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """What stands before the first assistant message, and what begins with the last one."""
    at = [i for i, message in enumerate(messages) if message["role"] == "assistant"]
    return (messages[: at[0]], messages[at[-1] :]) if at else (messages, [])


class ShortAgent:
    """
    The recorded session with its texts cut short, for windows of a thousand tokens.

    In words that a person wrote the model goes on in lines and sentences, which is what notes must have.

    Attributes:
        messages: The history so far; ends as a request would.
    """

    def __init__(self, name: str) -> None:
        rules, task = SESSION.messages[0]["content"], SESSION.messages[1]["content"]
        self.messages: list[dict[str, Any]] = [
            {"role": "system", "content": rules.split("\n")[0]},
            {"role": "user", "content": f"I am {name}. {task[:_TEXT_CHARS]}"},
        ]
        self._turns = 0

    def body(self, **members: Any) -> dict[str, Any]:
        """The request for the next turn."""
        return {"messages": list(self.messages), "model": "gemma", "max_tokens": 1, **SAMPLING, **members}

    def step(self, turns: int = 1) -> "ShortAgent":
        """The recorded model answered and its calls were carried out, so many times."""
        for _ in range(turns):
            self.messages += [_cut(message) for message in _SHORT_TURNS[self._turns]]
            self._turns += 1
        return self


def _short_turns() -> list[tuple[dict[str, Any], ...]]:
    """The recorded turns of one call, which are of about the same length when cut."""
    turns = [SESSION.messages[start:end] for start, end in pairwise(SESSION.turns)]
    return [turn for turn in turns if len(turn) == 2 and len(turn[1]["content"]) >= _TEXT_CHARS / 3]


def _cut(message: dict[str, Any]) -> dict[str, Any]:
    short = message | {"content": (message.get("content") or "")[:_TEXT_CHARS]}
    if message.get("tool_calls"):
        short["tool_calls"] = [
            call
            | {"function": call["function"] | {"arguments": _cut_arguments(call["function"]["arguments"])}}
            for call in message["tool_calls"]
        ]
    return short


def _cut_arguments(arguments: str) -> str:
    values = {
        name: value[:_ARGUMENT_CHARS]
        for name, value in json.loads(arguments).items()
        if isinstance(value, str)
    }
    return json.dumps(values)


_SHORT_TURNS = _short_turns()
