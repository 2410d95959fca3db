"""
By which HTTP proxy is the upstream reached, if by any?

A server on this machine or in this network is reached directly, whatever the environment
says: a company's proxy knows neither. A remote one is reached as other programs reach it, by
`https_proxy`, `http_proxy`, `all_proxy` and `no_proxy`, in small letters or capitals.
"""

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit

# Names that only a network of one's own answers to.
_LOCAL_ENDINGS = (".localhost", ".local", ".lan", ".internal", ".home.arpa")


def proxy_for(url: str, environ: Mapping[str, str]) -> str | None:
    """
    The URL of the proxy that stands between us and *url*; None to reach it directly.

    A proxy that speaks no HTTP (SOCKS) is left out: so it was before this looked at all.
    """
    try:
        parts = urlsplit(url.strip())
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return None
    if is_local(host):
        return None
    if _is_left_out(host, port, _named(environ, "no_proxy")):
        return None
    way = _named(environ, f"{parts.scheme}_proxy") or _named(environ, "all_proxy")
    if way and "://" not in way:
        way = f"http://{way}"
    return way if way.startswith(("http://", "https://")) else None


def is_local(host: str) -> bool:
    """Whether *host* is on this machine or in a network of one's own."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        name = host.lower().rstrip(".")
        return "." not in name or name.endswith(_LOCAL_ENDINGS)
    return address.is_private or address.is_loopback or address.is_link_local


def _is_left_out(host: str, port: int | None, no_proxy: str) -> bool:
    """Whether a domain of *host* is listed, with its port or without one; a star stands for all."""
    for entry in no_proxy.lower().split(","):
        domain = entry.strip().removeprefix("*").removeprefix(".")
        if not entry.strip():
            continue
        if not domain or any(f".{name}".endswith(f".{domain}") for name in (host, f"{host}:{port}")):
            return True
    return False


def _named(environ: Mapping[str, str], name: str) -> str:
    # Small letters win, as with curl; HTTP_PROXY in capitals may be a client's header in a CGI.
    return (environ.get(name) or environ.get(name.upper()) or "").strip()
