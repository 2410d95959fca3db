"""
May a page in somebody's browser use the proxy?

A browser sends requests to 127.0.0.1 for any page that asks it to, and a page whose own name
was made to lead there (DNS rebinding) may even read the answers. What gives them away: the
page's origin, the name in Host, and what the browser says of where a request comes from.
Where clients need keys no page has one, and only the answers to browsers are decided here.
"""

import ipaddress
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from proxy.config import ServerConfig
from proxy.config_exposure import is_loopback
from proxy.errors import ForeignHost, ForeignOrigin

Raw = tuple[bytes, bytes]

# What a preflight may be kept for; Chromium's own limit is 2 hours.
_PREFLIGHT_SECONDS = 600
_CORS = b"access-control-"
_ELSEWHERE = (b"cross-site", b"same-site")
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{0,5})?")
# Nearly every request is for one of these; all names of loopback count, but are slower to tell.
_USUAL = ("127.0.0.1", "localhost", "::1")
_PORTS = {"http": ":80", "https": ":443"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """
    The page that a request comes from, which may see the answer.

    Attributes:
        origin: As its browser sends it.
        preflight: What it asks for before the request itself, as headers of the answer; None where
            this is the request itself.
    """

    origin: bytes
    preflight: tuple[Raw, ...] | None = None

    def allowed(self, headers: Iterable[Raw]) -> list[Raw]:
        """The headers of an answer, telling the browser that this page may read it, and no other."""
        kept = [(name, value) for name, value in headers if not name.lower().startswith(_CORS)]
        return [
            *kept,
            (b"access-control-allow-origin", self.origin),
            (b"access-control-expose-headers", b"*"),
            (b"vary", b"Origin"),
        ]


class Origins:
    """Hosts and pages that are let in, by the table `[server]`."""

    def __init__(self, config: ServerConfig) -> None:
        self._is_asked = not config.keys
        self._is_wide = not is_loopback(config.host)
        self._hosts = frozenset(_bare(host) for host in (*_USUAL, config.host, *config.allowed_hosts))
        self._origins = frozenset(origin.lower() for origin in config.allowed_origins)

    def page_of(self, method: str, headers: Sequence[Raw]) -> Page | None:
        """
        The page that may see the answer; None where no page asks, or it is our own.

        Raises:
            ForeignHost: If the request is for a name that is not ours.
            ForeignOrigin: If it comes from a page that is not allowed.
        """
        host = origin = site = mode = b""
        for name, value in headers:
            if name == b"host":
                # Of several none is to be believed.
                host = host + b", " + value if host else value
            elif name == b"origin":
                origin = origin + b", " + value if origin else value
            elif name == b"sec-fetch-site":
                site = value
            elif name == b"sec-fetch-mode":
                mode = value
        if self._is_asked and not self._is_ours(host):
            raise ForeignHost(
                f"the name {_shown(host)} is none of this proxy's; ask for it as localhost or by its "
                "address, or add the name to server.allowed_hosts of the proxy"
            )
        if not origin:
            # An image or a script; a link that somebody follows shows them our own page.
            is_link = method == "GET" and mode == b"navigate"
            if self._is_asked and site in _ELSEWHERE and not is_link:
                raise ForeignOrigin(
                    "a page of another site may not use this proxy; add its origin to server.allowed_origins "
                    "of the proxy, and ask with CORS"
                )
            return None
        if self._is_allowed(origin):
            return Page(origin=origin, preflight=_preflight(method, headers))
        if self._is_asked and not _is_same(origin, host):
            raise ForeignOrigin(
                f"pages of {_shown(origin)} may not use this proxy; add that origin to "
                "server.allowed_origins of the proxy if they are meant to"
            )
        return None

    def _is_allowed(self, origin: bytes) -> bool:
        return "*" in self._origins or origin.decode("latin-1").lower() in self._origins

    def _is_ours(self, said: bytes) -> bool:
        # Every browser sends one; HTTP/1.0 may do without.
        if not said or "*" in self._hosts:
            return True
        named = _HOST.fullmatch(said.decode("latin-1"))
        if not named:
            return False
        host = _bare(named[1])
        if host in self._hosts or is_loopback(host) or host.endswith(".localhost"):
            return True
        # A page cannot have a name without a dot, nor one that is an address.
        return self._is_wide and ("." not in host or _is_address(host))


def _preflight(method: str, headers: Sequence[Raw]) -> tuple[Raw, ...] | None:
    asked = dict(headers)
    if method != "OPTIONS" or b"access-control-request-method" not in asked:
        return None
    told = [
        (b"access-control-allow-methods", asked[b"access-control-request-method"]),
        (b"access-control-max-age", str(_PREFLIGHT_SECONDS).encode()),
    ]
    if wanted := asked.get(b"access-control-request-headers"):
        told.append((b"access-control-allow-headers", wanted))
    if asked.get(b"access-control-request-private-network"):
        told.append((b"access-control-allow-private-network", b"true"))
    return tuple(told)


def _is_same(origin: bytes, host: bytes) -> bool:
    """Whether it is a page of ours; which scheme it came by is known only to what stands before us."""
    scheme, _, place = origin.decode("latin-1").lower().partition("://")
    if scheme not in _PORTS or not place:
        return False
    default = _PORTS[scheme]
    return place.removesuffix(default) == host.decode("latin-1").lower().removesuffix(default)


def _bare(host: str) -> str:
    return host.strip("[]").lower().rstrip(".")


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _shown(said: bytes) -> str:
    """What a stranger sent, on one short line."""
    text = said.decode("latin-1")
    return repr(text if len(text) <= 100 else text[:97] + "...")
