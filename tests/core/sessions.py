"""Small conversations, made directly of the core's messages."""

import json
from typing import Any

from proxy.core.messages import Call, Kind, Message, Role, Text


def tokens(text: str) -> int:
    """A stand-in for a tokenizer: a token in four characters."""
    return len(text) // 4 + 1


def user(*texts: str) -> Message:
    return Message(role=Role.USER, texts=tuple(Text(Kind.SAID, text) for text in texts))


def system(text: str) -> Message:
    return Message(role=Role.SYSTEM, texts=(Text(Kind.SAID, text),))


def asks(*calls: tuple[str, Any], ids: tuple[str, ...] = ()) -> Message:
    """An assistant message with *calls* as (tool, arguments); without *ids* they are c0, c1 …"""
    made = tuple(
        Call(
            id=ids[i] if ids else f"c{i}",
            name=name,
            arguments=arguments if isinstance(arguments, str) else json.dumps(arguments),
        )
        for i, (name, arguments) in enumerate(calls)
    )
    return Message(
        role=Role.ASSISTANT,
        texts=tuple(Text(Kind.ARGUMENTS, call.arguments, of=i) for i, call in enumerate(made)),
        calls=made,
    )


def answers(result: str, call_id: str = "c0", said: str = "") -> Message:
    """The result of a call, with what the user said beside it."""
    texts = (Text(Kind.RESULT, result), *((Text(Kind.SAID, said),) if said else ()))
    return Message(role=Role.TOOL, texts=texts, answers=(call_id,))


def does(name: str, arguments: Any, result: str | None = "ok") -> list[Message]:
    """One call and its result; None for none."""
    called = asks((name, arguments))
    return [called] if result is None else [called, answers(result)]


def run(*steps: list[Message]) -> list[Message]:
    return [message for step in steps for message in step]
