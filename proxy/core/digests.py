"""
Know a conversation by its content: a digest after every message.

The chain is keyed by a scope (caller, dialect), so that equal histories of two callers
have nothing in common. What has no meaning is left out by the dialect's normal form;
ids of calls become ordinals here, so that swapped results differ.
"""

import hashlib
import hmac
import json
from base64 import urlsafe_b64decode
from collections.abc import Sequence
from functools import lru_cache

from proxy.core.messages import Conversation, Message, Role

SIZE_BYTES = 16
# Looking a member up in its class takes longer than all the rest of a step.
_SYSTEM = Role.SYSTEM

# Part of every digest: a change of the normal form must not match what an older one
# stored.
_VERSION = b"1"


def scope(secret: bytes, dialect: str, credentials: Sequence[str]) -> bytes:
    """
    What a chain begins with.

    Of a token that is a JWT only issuer and subject count: it is refreshed in mid-run.
    The credential itself cannot be found from the result without *secret*.
    """
    return _scope(secret, dialect, tuple(credentials))


def caller(credentials: Sequence[str]) -> bytes:
    """Tells one caller from another; not to be stored, since it may be the credentials themselves."""
    return _caller(tuple(credentials))


# The same few callers come with every request.
@lru_cache(maxsize=256)
def _scope(secret: bytes, dialect: str, credentials: tuple[str, ...]) -> bytes:
    said = b"\0".join((_VERSION, dialect.encode(), _caller(credentials)))
    return hmac.new(secret, said, hashlib.sha256).digest()[:SIZE_BYTES]


@lru_cache(maxsize=256)
def _caller(credentials: tuple[str, ...]) -> bytes:
    return "\n".join(_identity(c) for c in credentials).encode("utf-8", "surrogatepass")


def chain(seed: bytes, conversation: Conversation) -> tuple[bytes, ...]:
    """
    Digests of every prefix: entry `i` stands for the first `i` messages.

    The brief's system messages are not digested: clients put the date there.
    """
    digests = [seed]
    calls: dict[str, list[int]] = {}
    ordinal = 0
    now = seed
    for i, message in enumerate(conversation.messages):
        if not message.normal or (message.role is _SYSTEM and i < conversation.brief_end):
            digests.append(now)
            continue
        answers = message.answers
        # Nearly all have one answer or none.
        if len(answers) == 1:
            answered: tuple[int, ...] = (_ordinal(calls, answers[0]),)
        else:
            answered = tuple([_ordinal(calls, answer) for answer in answers])
        for call in message.calls:
            calls.setdefault(call.id, []).append(ordinal)
            ordinal += 1
        known = message.memo.digest
        if known is None or known[0] != now or known[1] != answered:
            known = message.memo.digest = (now, answered, _next(now, message, answered))
        now = known[2]
        digests.append(now)
    return tuple(digests)


def _next(before: bytes, message: Message, answered: Sequence[int]) -> bytes:
    said = before + ",".join(map(str, answered)).encode() + b"\0" + message.normal
    return hashlib.blake2b(said, digest_size=SIZE_BYTES).digest()


def _ordinal(calls: dict[str, list[int]], answer: str) -> int:
    open_calls = calls.get(answer)
    return open_calls.pop() if open_calls else -1


def _identity(credential: str) -> str:
    """Issuer and subject of a JWT, else the credential itself."""
    token = credential.rpartition(" ")[2]
    parts = token.split(".")
    if len(parts) != 3:
        return credential
    try:
        # More padding than is needed is not minded.
        claims = json.loads(urlsafe_b64decode(parts[1] + "=="))
        issuer, subject = claims["iss"], claims["sub"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return credential
    return json.dumps(["jwt", issuer, subject])
