"""
Read a request for a completion, or say why it is forwarded untouched.

What is not understood is left to the upstream to judge; only a body that contradicts its own
Content-Encoding, or grows beyond the limit, is refused here.
"""

from enum import StrEnum

from proxy import headers as hd
from proxy.asked import Asked
from proxy.client import Client
from proxy.dialects.base import Dialect
from proxy.encodings import decoded, is_known
from proxy.errors import HeldByServer, NotUnderstood


class Untouched(StrEnum):
    """Why a request goes through as it came; label values."""

    SWITCHED_OFF = "switched_off"
    UNKNOWN_CODING = "unknown_coding"
    HELD_BY_SERVER = "held_by_server"
    NOT_UNDERSTOOD = "not_understood"


def understand(raw: bytes, url: str, client: Client, dialect: Dialect, limit: int) -> Asked | Untouched:
    """
    The request in the proxy's words.

    Args:
        raw: The body as it came.
        url: Where upstream it goes.
        client: For its headers.
        dialect: Of the endpoint.
        limit: Most bytes of the body once its coding is undone.

    Raises:
        BadEncoding: If the body is not what its Content-Encoding says.
        BodyTooLarge: If it grows beyond *limit*.
    """
    if client.header(hd.OFF_SWITCH).strip().lower() == "off":
        return Untouched.SWITCHED_OFF
    coding = client.header(b"content-encoding")
    if coding and not is_known(coding):
        return Untouched.UNKNOWN_CODING
    try:
        parsed = dialect.parse(decoded(raw, coding, limit) if coding else raw)
    except HeldByServer:
        return Untouched.HELD_BY_SERVER
    except NotUnderstood:
        return Untouched.NOT_UNDERSTOOD
    return Asked(
        dialect=dialect,
        parsed=parsed,
        url=url,
        headers=hd.for_own_request(client.headers),
        credentials=hd.credentials(client.headers),
    )
