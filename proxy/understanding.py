"""
Read a request for a completion, or say why it is forwarded untouched.

What is not understood is left to the upstream to judge; only a body that contradicts its own
Content-Encoding is refused here, or one that becomes larger than any body may be.
"""

from enum import StrEnum

from proxy import headers as hd
from proxy.asked import Asked
from proxy.client import Client
from proxy.config import Config
from proxy.core.digests import caller
from proxy.dialects.base import Dialect
from proxy.dialects.known import Items
from proxy.encodings import decoded, is_known
from proxy.errors import HeldByServer, NotUnderstood

# In memory; in a body it may have two.
_BYTES_OF_A_VALUE = 64
# What a short body becomes is not worth the counting.
_SHORT_BYTES = 1024 * 1024


class Untouched(StrEnum):
    """Why a request goes through as it came; label values."""

    SWITCHED_OFF = "switched_off"
    UNKNOWN_CODING = "unknown_coding"
    HELD_BY_SERVER = "held_by_server"
    NOT_UNDERSTOOD = "not_understood"
    TOO_LARGE = "too_large"
    TOO_MANY_MESSAGES = "too_many_messages"


def understand(
    raw: bytes, url: str, client: Client, dialect: Dialect, config: Config, *, items: Items
) -> Asked | Untouched:
    """
    The request in the proxy's words.

    Args:
        raw: The body as it came.
        url: Where upstream it goes.
        client: For its headers.
        dialect: Of the endpoint.
        config: For what is looked into, and what a body may become.
        items: What was read before.

    Raises:
        BadEncoding: If the body is not what its Content-Encoding says.
        BodyTooLarge: If it becomes larger than any body may be once that is undone.
    """
    if client.header(hd.OFF_SWITCH).strip().lower() == "off":
        return Untouched.SWITCHED_OFF
    coding = client.header(b"content-encoding")
    if coding and not is_known(coding):
        return Untouched.UNKNOWN_CODING
    limits, credentials = config.limits, client.credentials
    body = decoded(raw, coding, config.server.max_body_bytes) if coding else raw
    try:
        if len(body) > limits.understood_bytes or _may_hold_more_values(body, limits.understood_values):
            return Untouched.TOO_LARGE
        parsed = dialect.parse(body, items.of((dialect.name, caller(credentials))))
    except HeldByServer:
        return Untouched.HELD_BY_SERVER
    except NotUnderstood:
        return Untouched.NOT_UNDERSTOOD
    if len(parsed.conversation.messages) > limits.understood_messages:
        return Untouched.TOO_MANY_MESSAGES
    return Asked(
        dialect=dialect,
        parsed=parsed,
        url=url,
        plain=body if coding else None,
        headers=hd.for_own_request(client.headers),
        credentials=credentials,
    )


def memory_of(body: bytes) -> int:
    """About how many bytes a body takes while it is worked on: of a long one its values as well."""
    return len(body) + (_BYTES_OF_A_VALUE * _values(body) if len(body) > _SHORT_BYTES else 0)


def _may_hold_more_values(body: bytes, most: int) -> bool:
    # A value takes two bytes at least.
    return len(body) > 2 * most and _values(body) > most


def _values(body: bytes) -> int:
    """About how many values the JSON holds; more are counted where texts hold commas."""
    return body.count(b",") + body.count(b"[") + body.count(b"{")
