"""
Say what of a configuration would let in someone who does not belong there.

Who can reach a loopback address is on this machine already; whoever can reach another one
needs a key, unless it is said on purpose that everybody may come.
"""

import ipaddress
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

# Below this a person has made up a word, which can be guessed.
LEAST_KEY_CHARS = 16


class Server(Protocol):
    """What is asked of the table `[server]`."""

    @property
    def listen(self) -> str: ...
    @property
    def host(self) -> str: ...
    @property
    def keys(self) -> Sequence[str]: ...
    @property
    def admin_keys(self) -> Sequence[str]: ...
    @property
    def open(self) -> bool: ...


def is_loopback(host: str) -> bool:
    """Whether *host*, a name or an address without brackets, is reached from this machine alone."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        # What a name leads to is decided elsewhere, and may change.
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def exposures(server: Server, *, shows_content: bool, where: Callable[..., str]) -> Iterator[str]:
    """
    What must not be started so, a sentence each.

    Args:
        server: Where it listens, and for whom.
        shows_content: Whether the status page has words of conversations.
        where: For a table and its keys the place that they were set at.
    """
    if server.open and server.keys:
        yield (
            f"{where('server', 'open', 'keys')}: server.open is true and there are server.keys, expected one "
            "of them; leave out `open` to ask every client for its key"
        )
    if not (is_loopback(server.host) or server.keys or server.open):
        yield (
            f"{where('server', 'listen')}: server.listen is {server.listen}, which other machines may reach, "
            "and everybody could use the upstream through it, expected a loopback address such as "
            "127.0.0.1:8400, or keys: set server.keys (COMPACTION_PROXY_SERVER_KEYS), one or several, that "
            "clients send as their API key; or server.open = true (COMPACTION_PROXY_SERVER_OPEN=true) where "
            "something else decides who may reach it, as a container's published port does"
        )
    only_this_machine = is_loopback(server.host) and not server.keys
    if shows_content and not server.admin_keys and not only_this_machine:
        yield (
            f"{where('status', 'show_content')}: status.show_content is true, which shows the words of every "
            "conversation to all who may see the status page, expected server.admin_keys beside it; set "
            "them, or leave show_content out"
        )


def keys_in(text: str) -> tuple[str, ...]:
    """The keys in a variable, once each; several are parted by commas."""
    return tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def weak_encryption(variable: str, environ: Mapping[str, str], where: Callable[..., str]) -> Iterator[str]:
    """What keeps the key in *variable* from keeping a secret; nothing where none is named."""
    if not variable:
        return
    keys = keys_in(environ.get(variable, ""))
    # Some keys are made of letters and digits only, and end up here instead of their name.
    named = variable if variable.isupper() else "a variable"
    if not keys:
        yield (
            f"{where('store', 'encrypt_with_env')}: store.encrypt_with_env names {named}, which is not set; "
            "set it in the environment, or leave encrypt_with_env out to keep conversations readable"
        )
    elif any(len(key) < LEAST_KEY_CHARS for key in keys):
        yield (
            f"{where('store', 'encrypt_with_env')}: store.encrypt_with_env names {named}, which holds a key "
            f"of fewer than {LEAST_KEY_CHARS} characters, expected one that nobody guesses; make one with: "
            "openssl rand -hex 32"
        )
