"""
Which headers pass through a proxy.

Names are compared in lower case; values are never changed.
"""

from collections.abc import Iterable

Raw = tuple[bytes, bytes]
_NONE: frozenset[bytes] = frozenset()

# RFC 9110, section 7.6.1, with what browsers and old proxies add.
_HOP_BY_HOP = frozenset(
    (
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    )
)
# The transport states these itself, for the body and the host that it really sends to.
_RESTATED = frozenset((b"host", b"content-length", b"expect"))
# Said to the proxy, not to the upstream.
OFF_SWITCH = b"x-compaction"
_FOR_US = frozenset((OFF_SWITCH,))
_NOT_FOR_UPSTREAM = _HOP_BY_HOP | _RESTATED | _FOR_US
# By these a caller is told from others.
CREDENTIALS = (b"authorization", b"x-api-key", b"api-key")
# They hold for the very bytes of a body, and no longer for one that was changed.
OF_THE_BYTES = frozenset((b"content-encoding", b"content-md5", b"content-digest", b"digest", b"repr-digest"))
# They describe a body, or what the client can read.
_OF_A_BODY = OF_THE_BYTES | {b"content-type", b"accept-encoding", b"accept"}


def for_upstream(headers: Iterable[Raw], *, drop: Iterable[bytes] = ()) -> list[tuple[str, str]]:
    """A request's end-to-end headers."""
    pairs = [(name.lower(), value) for name, value in headers]
    gone = _NOT_FOR_UPSTREAM.union(_named_by_connection(pairs), drop)
    return [(n.decode("latin-1"), _text(v)) for n, v in pairs if n not in gone]


def for_own_request(headers: Iterable[Raw]) -> tuple[tuple[str, str], ...]:
    """Headers for a request of our own on a client's behalf: who it is, not what it sent."""
    return tuple(for_upstream(headers, drop=_OF_A_BODY))


def for_client(headers: Iterable[Raw]) -> list[Raw]:
    """A response's end-to-end headers; Content-Length stays, since the body's bytes do."""
    pairs = [(name.lower(), value) for name, value in headers]
    gone = _HOP_BY_HOP | _named_by_connection(pairs)
    return [(n, v) for n, v in pairs if n not in gone]


def credentials(headers: Iterable[Raw]) -> tuple[str, ...]:
    """What tells this caller from others, in a fixed order."""
    found = {name.lower(): value.decode("latin-1") for name, value in headers}
    return tuple(found.get(name, "") for name in CREDENTIALS)


def value_of(headers: Iterable[Raw], name: bytes) -> str:
    """The value of a header, several joined by commas; empty where it is absent."""
    return ", ".join([v.decode("latin-1") for n, v in headers if n.lower() == name])


def _text(value: bytes) -> str:
    """The transport writes UTF-8, so that what is UTF-8 keeps its bytes."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def _named_by_connection(pairs: Iterable[Raw]) -> frozenset[bytes]:
    named = [v for n, v in pairs if n == b"connection"]
    if not named:
        return _NONE
    return frozenset(part.strip().lower() for value in named for part in value.split(b","))
