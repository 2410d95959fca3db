"""
Say where upstream a client's path leads.

Clients are configured with and without `/v1`, and so are upstreams; some upstreams
have an API base of their own (`/api/paas/v4`, `/v1beta/openai`).
"""

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from proxy.errors import ConfigError

# The endpoints that are compacted; they exist under /v1 everywhere, so that a client
# whose base_url has no /v1 is sent there. Others differ with and without it on
# llama.cpp (`/completions`, `/embeddings`) and stay as they came.
COMPACTED = ("/chat/completions", "/responses", "/messages")
# It asks for the size of what a compacted endpoint would be sent.
COUNTED = "/messages/count_tokens"

# First path segments that stand under the API base of OpenAI-like servers. With an
# upstream URL that ends in /v1 a client may leave that part out; what is not listed
# (/props, /health, /metrics, /api/...) stands at the root.
_API_SEGMENTS = frozenset(
    (
        "assistants", "audio", "batches", "chat", "completions", "containers", "conversations", "embeddings",
        "evals", "files", "fine_tuning", "images", "messages", "models", "moderations", "realtime", "rerank",
        "responses", "threads", "uploads", "vector_stores", "videos",
    )
)  # fmt: skip
# Last path segments of requests that wait for a slot of llama.cpp, or for the model elsewhere.
_AT_WORK = frozenset(
    (
        "completion", "completions", "embedding", "embeddings", "infill", "messages", "rerank", "reranking",
        "responses",
    )
)  # fmt: skip
_SLASHES = re.compile(r"/{2,}")
# A segment ends at what servers take for a slash, and at what some cut off before they look.
_CLIMBS = re.compile(r"(?i)(?:/|\\|%2f|%5c)(?:\.|%2e){2}(?=/|\\|;|%2f|%5c|%3b|%00|$)")
_VERSION = re.compile(r"/v\d+[a-z0-9]*(?=/|$)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """
    An upstream's URL, taken apart.

    Attributes:
        root: Without a trailing `/v1` and without trailing slashes.
        has_v1: Whether the URL ended in `/v1`.
        is_complete: Whether it is an API base of its own, to which endpoints are
            appended without `/v1`.
    """

    root: str
    has_v1: bool
    is_complete: bool

    @classmethod
    def of(cls, url: str) -> "Target":
        """
        Raises:
            ConfigError: If *url* is no http or https URL with a host.
        """
        try:
            parts = urlsplit(url.strip())
            usable = parts.scheme in ("http", "https") and bool(parts.hostname)
            _ = parts.port
        except ValueError:
            usable = False
        if not usable:
            raise ConfigError(
                f"upstream.url: {url!r} is not a URL of a server; expected http://host:port or "
                "https://host/v1"
            )
        base = url.strip().split("#")[0].split("?")[0].rstrip("/")
        if base.endswith("/v1"):
            return cls(root=base[: -len("/v1")].rstrip("/"), has_v1=True, is_complete=False)
        complete = _VERSION.search(urlsplit(base).path) is not None
        return cls(root=base, has_v1=False, is_complete=complete)

    def url(self, path: str, query: str = "") -> str:
        """Where *path* (as `normal_path` gives it, percent-encoded) leads."""
        bare = path.removeprefix("/v1") if path.startswith("/v1/") else path
        first = bare.split("/")[1] if bare.startswith("/") else ""
        if self.is_complete:
            path = bare
        elif not path.startswith("/v1/") and (
            bare in (*COMPACTED, COUNTED) or (self.has_v1 and first in _API_SEGMENTS)
        ):
            path = f"/v1{bare}"
        return f"{self.root}{path}{'?' + query if query else ''}"


def normal_path(raw: str) -> str:
    """
    A request path without doubled slashes.

    A trailing slash goes only where the rest is an endpoint that is compacted: other
    paths may mean it.
    """
    path = _SLASHES.sub("/", raw) or "/"
    bare = path.rstrip("/").removeprefix("/v1")
    return path.rstrip("/") if bare in (*COMPACTED, COUNTED) else path


def climbs(raw: str) -> bool:
    """
    Whether a path has a segment `..`, in any of the ways in which some server reads one.

    It leads out of the base of the upstream's URL, with the upstream's key, or past what decides by
    the beginning of a path.
    """
    return _CLIMBS.search(raw) is not None


def takes_slot(path: str) -> bool:
    """Whether a POST to *path* has a model at work, on the servers that are known."""
    return path.rstrip("/").rpartition("/")[2] in _AT_WORK


def is_count(path: str) -> bool:
    """Whether *path* asks how large a request to a compacted endpoint would be."""
    return path.removeprefix("/v1") == COUNTED


def endpoint(path: str) -> str:
    """The compacted endpoint that *path* names, or an empty string."""
    bare = path.removeprefix("/v1")
    return bare if bare in COMPACTED else ""
