"""
Say what went wrong, and what to do about it.

One class per reaction of a caller. An error that reaches a client carries its HTTP
status and code; the dialect puts it into the wire format of the endpoint.
"""


class ProxyError(Exception):
    """
    The root of everything this package raises on purpose.

    Attributes:
        status: HTTP status for a client that has to be told.
        code: Short machine-readable name, as in OpenAI's `error.code`.
        retry_after_seconds: For the header Retry-After; 0 where none is sent.
        closes: Whether the client's connection cannot be used after it.
        challenge: For the header WWW-Authenticate; empty where none is sent.
    """

    status = 500
    code = "proxy_error"
    retry_after_seconds = 0
    closes = False
    challenge = ""


class ConfigError(ProxyError):
    """The configuration cannot work; nothing was started."""

    code = "config"


class NotUnderstood(ProxyError):
    """A body is not of the dialect: it is forwarded untouched and the upstream judges it."""

    status = 400
    code = "not_understood"


class HeldByServer(NotUnderstood):
    """The history is not in the request: only the upstream knows it."""

    code = "held_by_server"


class BodyTooLarge(ProxyError):
    """A request body is over `server.max_body_bytes`, before or after decompression."""

    status = 413
    code = "body_too_large"


class RequestTooSlow(ProxyError):
    """The client fell silent in the middle of its request, or sends next to nothing."""

    status = 408
    code = "request_timeout"
    # What may still come of its body is waited for no longer.
    closes = True


class BadPath(ProxyError):
    """A path that leads out of the upstream's own, in the eyes of some servers."""

    status = 400
    code = "bad_path"


class Overloaded(ProxyError):
    """There is no place for one more request now."""

    status = 503
    code = "overloaded"
    retry_after_seconds = 2


class Stopping(ProxyError):
    """The proxy ends: what was not begun is not begun any more."""

    status = 503
    code = "stopping"
    # A restart takes about as long.
    retry_after_seconds = 5
    closes = True

    def __init__(self) -> None:
        super().__init__("the proxy is stopping and takes no more requests; try again once it is back")


class BadEncoding(ProxyError):
    """A request body does not decode by its own Content-Encoding."""

    status = 400
    code = "bad_content_encoding"


class BadKey(ProxyError):
    """
    The client sends none of the keys that are asked for.

    Args:
        why: With the remedy.
        for_people: Whether it is about a page that is looked at in a browser, which can ask for a key.
    """

    status = 401
    code = "invalid_api_key"
    # A stranger's body is not read to its end.
    closes = True

    def __init__(self, why: str, *, for_people: bool = False) -> None:
        super().__init__(why)
        self.challenge = 'Basic realm="compaction-proxy", charset="UTF-8"' if for_people else "Bearer"


class ForeignHost(ProxyError):
    """The request asks for a name that is not the proxy's: a page made its own name lead here."""

    status = 403
    code = "foreign_host"
    closes = True


class ForeignOrigin(ProxyError):
    """The request comes from a page in a browser that is not allowed to use the proxy."""

    status = 403
    code = "foreign_origin"
    closes = True


class NoSuchMethod(ProxyError):
    """CONNECT asks for a tunnel; this is a proxy for one server only."""

    status = 405
    code = "method_not_allowed"


class UpstreamUnreachable(ProxyError):
    """No connection to the upstream, or it went away before it answered."""

    status = 502
    code = "upstream_unreachable"


class UpstreamDown(UpstreamUnreachable):
    """The last attempts found no connection to the upstream, and neither did one just now."""

    status = 503
    code = "upstream_down"
    retry_after_seconds = 1


class UpstreamStalled(ProxyError):
    """The upstream was silent for longer than `upstream.idle_timeout_seconds`."""

    status = 504
    code = "upstream_stalled"


class StoreError(ProxyError):
    """The store cannot be read or written; the request goes on without it."""

    code = "store"


TOLD: tuple[type[ProxyError], ...] = (
    ProxyError,
    BadEncoding,
    BadKey,
    BadPath,
    BodyTooLarge,
    ForeignHost,
    ForeignOrigin,
    NoSuchMethod,
    Overloaded,
    RequestTooSlow,
    Stopping,
    UpstreamDown,
    UpstreamStalled,
    UpstreamUnreachable,
)
"""Those that a client gets for an answer."""
