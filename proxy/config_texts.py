"""
Say what keeps a text from being an address, a name or a path.

Each function gives the remedy for a text that does not serve, and None for one that
does. They follow what a person is likely to have meant.
"""

import ipaddress
import re
from urllib.parse import urlsplit


def url_problem(text: str) -> str | None:
    """What keeps a text from being the address of an upstream. Empty is allowed: none is set."""
    if not text:
        return None
    if not text.isascii() or not text.isprintable() or " " in text:
        return "write it in ASCII, without spaces"
    if "://" not in text:
        return f"begin it with http:// or https://, as in http://{text.lstrip('/')}"
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        return "the port goes from 1 to 65535, and an IPv6 address stands in brackets"
    if parts.scheme not in ("http", "https"):
        return "begin it with http:// or https://"
    if parts.username is not None or parts.password is not None:
        return "no user or password here: put the key into a variable and name that in upstream.key_env"
    if not host or port == 0:
        return "a host is needed, and a port other than 0, as in http://127.0.0.1:8080"
    if parts.query or parts.fragment or "?" in text or "#" in text:
        return "end it before the ? or #"
    return None


def listen_problem(text: str) -> str | None:
    """What keeps a text from being an address to listen on."""
    if "://" in text:
        return "leave out http://"
    host, colon, port = text.rpartition(":")
    if not colon or not host:
        return "write both, as in 127.0.0.1:8400; 0.0.0.0 listens on every interface"
    if not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > 65535:
        return "the port goes from 0 (any free one) to 65535"
    if host.startswith("[") or ":" in host:
        bare = host.removeprefix("[").removesuffix("]")
        try:
            ipaddress.IPv6Address(bare)
        except ValueError:
            return "an IPv6 address stands in brackets, as in [::1]:8400"
        return None if host == f"[{bare}]" else f"write [{bare}]:{port}"
    return None if re.fullmatch(r"[A-Za-z0-9._-]+", host) else "the host is a name or an address"


def variable_problem(text: str) -> str | None:
    """What keeps a text from being the name of an environment variable. Empty is allowed: none is set."""
    if not text or re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", text):
        return None
    return "not the key itself: put it into a variable, and the variable's name here"


def key_problem(text: str) -> str | None:
    """What keeps a text from being a key that a client sends in a header."""
    if not text:
        return "an empty key would let in everybody: leave it out"
    # A comma parts keys in the environment, and would part them differently here.
    if not re.fullmatch(r"[!-+\--~]+", text):
        return (
            "a key is of visible ASCII characters, without spaces and commas, as from: openssl rand -hex 32"
        )
    return None


def host_problem(text: str) -> str | None:
    """What keeps a text from being a name under which the proxy is reached; * is any."""
    if text == "*":
        return None
    if "://" in text or "/" in text:
        return "a name or address alone, as in proxy.example.org"
    if re.fullmatch(r"\[?[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*\]?", text):
        try:
            ipaddress.IPv6Address(text.strip("[]"))
        except ValueError:
            return "an IPv6 address has no port here, as in ::1"
        return None
    return None if re.fullmatch(r"[A-Za-z0-9._-]+", text) else "leave out the port: every port will do"


def origin_problem(text: str) -> str | None:
    """What keeps a text from being the origin of a web page; * is any."""
    if text == "*" or re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*://[A-Za-z0-9._~\[\]:-]+", text):
        return None
    return "scheme, host and port as a browser sends them, as in http://localhost:3000, without a path"


def path_problem(text: str) -> str | None:
    """What keeps a text from being the path of a file."""
    if not text.strip() or "\0" in text or text.endswith(("/", "\\")):
        return 'name a file, or write "auto"'
    return None


def instruction_problem(text: str) -> str | None:
    """What keeps a text from asking for notes."""
    return None if text.strip() else "say what the notes are to hold; compact_at = 0 switches compaction off"
