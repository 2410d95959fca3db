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


class BadEncoding(ProxyError):
    """A request body does not decode by its own Content-Encoding."""

    status = 400
    code = "bad_content_encoding"


class NoSuchMethod(ProxyError):
    """CONNECT asks for a tunnel; this is a proxy for one server only."""

    status = 405
    code = "method_not_allowed"


class UpstreamUnreachable(ProxyError):
    """No connection to the upstream, or it went away before it answered."""

    status = 502
    code = "upstream_unreachable"


class UpstreamStalled(ProxyError):
    """The upstream was silent for longer than `upstream.idle_timeout_seconds`."""

    status = 504
    code = "upstream_stalled"


class StoreError(ProxyError):
    """The store cannot be read or written; the request goes on without it."""

    code = "store"
class UpstreamDown(UpstreamUnreachable):
    """The last attempts found no connection to the upstream, and neither did one just now."""

    status = 503
    code = "upstream_down"
    retry_after_seconds = 1


