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


def told(made: Trim) -> list[Any]:
    """A trim, without the texts."""
    cuts = [[cut.at, cut.text, len(cut.put)] for cut in made.rewrite.cuts]
    return [made.what, made.messages, made.size, made.rewrite.replaced, made.rewrite.seen, cuts]


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
        seen.append(made and told(made))
        messages = [*messages, *history(chance, 3)[1:]]
    return seen


# Where a size just reaches a limit, or misses it by one: found by changing single signs of the code.
_EDGES = Path(__file__).parent / "trims_at_limits.json"


def coarse(text: str) -> int:
    """A token in forty characters, so that sizes meet limits often."""
    return (len(text) + 39) // 40


def small_history(chance: Random, turns: int) -> list[Message]:
    """A task and few turns, some of them empty."""
    messages = [user("t" * 40 * chance.choice((1, 1, 3, 8)))]
    for number in range(turns):
        calls = chance.choice((0, 1, 1, 2))
        made = asks(
            *(("w", {"p": f"{number}{i}", "c": "w" * chance.choice((5, 5, 300))}) for i in range(calls)),
            ids=tuple(f"c{number}-{i}" for i in range(calls)),
        )
        said = Text(Kind.SAID, "s" * chance.choice((0, 0, 5, 200, 400)))
        thought = (Text(Kind.REASONING, "r" * chance.choice((5, 300))),) if chance.random() < 0.3 else ()
        messages.append(Message(role=Role.ASSISTANT, texts=(*made.texts, said, *thought), calls=made.calls))
        for i in range(calls):
            beside = (Text(Kind.SAID, "u" * chance.choice((40, 400))),) if chance.random() < 0.15 else ()
            result = Text(Kind.RESULT, f"{number % 10}" * chance.choice((10, 80, 200, 600, 2_000)))
            messages.append(Message(role=Role.TOOL, texts=(result, *beside), answers=(f"c{number}-{i}",)))
        if chance.random() < 0.2:
            messages.append(user("u" * chance.choice((40, 400, 900))))
    return messages


def trimmed_at_a_limit(seed: int) -> list[Any]:
    """What two trims of a small history come to, the second after it has grown."""
    chance = Random(seed)
    messages = small_history(chance, chance.choice((0, 1, 1, 2, 3, 6, 9)))
    limit = chance.randrange(3, 60)
    aim = chance.randrange(0, limit + 1)
    block, grows = chance.choice((1, 2, 4, 10, 30)), chance.choice((0, 0, 1, 1, -1, -2))
    seen: list[Any] = []
    made: Trim | None = None
    for _ in range(2):
        brief_end, turns = find_turns(messages)
        conversation = Conversation(messages=tuple(messages), brief_end=brief_end, turns=turns)
        before = made.rewrite if made else None
        made = trim(
            conversation,
            before,
            measure(conversation, before, coarse),
            aim=aim,
            limit=limit,
            keep_chars=100,
            count=coarse,
            block=lambda replaced: "B" * max(40, 40 * block + grows * 40 * replaced),
        )
        seen.append(made and told(made))
        messages = [*messages, *small_history(chance, chance.choice((1, 2)))[1:]]
    return seen


def test_it_cuts_what_it_always_cut_at_limits() -> None:
    kept = json.loads(_EDGES.read_text(encoding="utf-8"))
    assert len(kept) == 13
    for seed, expected in kept.items():
        assert json.loads(json.dumps(trimmed_at_a_limit(int(seed)))) == expected, f"seed {seed}"


def test_it_cuts_what_it_always_cut() -> None:
    kept = json.loads(_KEPT.read_text(encoding="utf-8"))
    for seed in _SEEDS:
        assert json.loads(json.dumps(trimmed(seed))) == kept[seed], f"seed {seed}"


@pytest.mark.parametrize("what", ["results", "texts", "turns", "newest"])
def test_the_histories_meet_every_way_of_cutting(what: str) -> None:
    kept = json.loads(_KEPT.read_text(encoding="utf-8"))
    assert sum(what in trim_[0] for pair in kept for trim_ in pair if trim_) >= 5
