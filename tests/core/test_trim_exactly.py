"""
A trim to the token, over histories of many shapes.

The same history must be trimmed alike by every version and every process: whoever trims it
otherwise sends another prompt. Where one of these has to change, running conversations pay for it once.
"""

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from proxy.core.messages import Conversation, Kind, Message, Role, Text, find_turns
from proxy.core.trim import Trim, trim
from tests.core.sessions import asks, tokens, user
from tests.core.test_trim import measure

_KEPT = Path(__file__).parent / "trims.json"
_SEEDS = range(60)


def history(chance: Random, turns: int) -> list[Message]:
    """A task, then turns of calls, results, thoughts and users, short and long."""
    messages = [user("task " * chance.choice((1, 40)))]
    for number in range(turns):
        calls = chance.choice((0, 1, 1, 2, 3))
        content = "w" * chance.choice((10, 10, 10, 900))
        made = asks(
            *(("write", {"path": f"{number}-{i}.py", "content": content}) for i in range(calls)),
            ids=tuple(f"c{number}-{i}" for i in range(calls)),
        )
        said = Text(Kind.SAID, "s" * chance.choice((5, 5, 700)))
        thought = Text(Kind.REASONING, "r" * chance.choice((5, 5, 1_200)))
        messages.append(Message(role=Role.ASSISTANT, texts=(*made.texts, said, thought), calls=made.calls))
        for i in range(calls):
            result = f"{number % 10}" * chance.choice((20, 60, 400, 3_000))
            beside = (Text(Kind.SAID, "u" * 300),) if chance.random() < 0.1 else ()
            messages.append(
                Message(
                    role=Role.TOOL, texts=(Text(Kind.RESULT, result), *beside), answers=(f"c{number}-{i}",)
                )
            )
        if chance.random() < 0.15:
            messages.append(user("u" * chance.choice((30, 800))))
    return messages


def trimmed(seed: int) -> list[Any]:
    """What two trims of one history come to, the second after it has grown."""
    chance = Random(seed)
    messages = history(chance, chance.choice((1, 2, 5, 12, 30)))
    limit = chance.choice((150, 400, 900, 2_000))
    share = chance.choice((0.4, 0.75, 0.95))
    seen: list[Any] = []
    made: Trim | None = None
    for _ in range(2):
        brief_end, turns = find_turns(messages)
        conversation = Conversation(messages=tuple(messages), brief_end=brief_end, turns=turns)
        before = made.rewrite if made else None
        made = trim(
            conversation,
            before,
            measure(conversation, before),
            aim=int(share * limit),
            limit=limit,
            keep_chars=100,
            count=tokens,
            block=lambda replaced: "B" * (40 + replaced),
        )
        if made is None:
            seen.append(None)
        else:
            cuts = [[cut.at, cut.text, len(cut.put)] for cut in made.rewrite.cuts]
            seen.append([made.what, made.messages, made.size, made.rewrite.replaced, made.rewrite.seen, cuts])
        messages = [*messages, *history(chance, 3)[1:]]
    return seen


def test_it_cuts_what_it_always_cut() -> None:
    kept = json.loads(_KEPT.read_text(encoding="utf-8"))
    for seed in _SEEDS:
        assert json.loads(json.dumps(trimmed(seed))) == kept[seed], f"seed {seed}"


@pytest.mark.parametrize("what", ["results", "texts", "turns", "newest"])
def test_the_histories_meet_every_way_of_cutting(what: str) -> None:
    kept = json.loads(_KEPT.read_text(encoding="utf-8"))
    assert sum(what in trim_[0] for pair in kept for trim_ in pair if trim_) >= 5
