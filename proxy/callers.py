"""
Whose request is it, and may they make it?

Of each key only a hash is kept, and what a client presents is compared with all of them in
constant time. A key that opened the proxy is taken out of the request: it is ours, and no
other host's.
"""

import hashlib
import hmac
from base64 import b64decode
from collections.abc import Iterable, Iterator, Sequence

from proxy.config import ServerConfig
from proxy.errors import BadKey

Raw = tuple[bytes, bytes]

_NAMED = "key:"


class Keyring:
    """
    Keys of one kind. Empty, it is no ring at all: it is false.

    Args:
        keys: As they are configured.
    """

    def __init__(self, keys: Iterable[str]) -> None:
        self._hashes = tuple(_hash(key.encode()) for key in keys)

    def __bool__(self) -> bool:
        return bool(self._hashes)

    def owner(self, presented: Iterable[bytes]) -> str:
        """A name for whoever holds one of the *presented* keys, which does not tell it; empty for none."""
        found = b""
        for key in presented:
            said = _hash(key)
            for known in self._hashes:
                # All of them every time: how long it takes tells nothing of where they differ.
                if hmac.compare_digest(known, said):
                    found = known
        return _NAMED + found.hex() if found else ""


class Access:
    """
    Who may do what, by the table `[server]`.

    What is the proxy's own (status, metrics) is opened by `admin_keys`; by `keys` where there are
    none of those, and to everybody where there are none at all.
    """

    def __init__(self, config: ServerConfig) -> None:
        self._clients = Keyring(config.keys)
        self._admins = Keyring(config.admin_keys)

    def client(self, headers: Sequence[Raw]) -> str:
        """
        The name of the client that sends *headers*; empty where no keys are asked for.

        Raises:
            BadKey: If it sends none of the keys.
        """
        if not self._clients:
            return ""
        presented = list(_presented(headers))
        owner = self._clients.owner(presented)
        if not owner:
            raise _bad(
                presented,
                "this proxy asks for a key; set the API key of your client to one of its server.keys "
                "(Authorization: Bearer KEY, or x-api-key: KEY)",
            )
        return owner

    def is_admin(self, headers: Sequence[Raw]) -> bool:
        """Whether `admin` lets them."""
        try:
            self.admin(headers)
        except BadKey:
            return False
        return True

    def admin(self, headers: Sequence[Raw]) -> str:
        """
        The name of whoever may see what is the proxy's own; empty where no key is asked for.

        Raises:
            BadKey: If *headers* hold no key for it.
        """
        ring = self._admins or self._clients
        if not ring:
            return ""
        presented = [*_presented(headers), *_passwords(headers)]
        owner = ring.owner(presented)
        if not owner:
            named = "server.admin_keys" if self._admins else "server.keys"
            raise _bad(
                presented,
                f"this page asks for a key; send one of the proxy's {named} (Authorization: Bearer KEY), in "
                "a browser as the password",
                for_people=True,
            )
        return owner


def _bad(presented: Sequence[bytes], remedy: str, *, for_people: bool = False) -> BadKey:
    said = "the key that was sent is none that it knows: " if presented else ""
    return BadKey(said + remedy, for_people=for_people)


def _presented(headers: Iterable[Raw]) -> Iterator[bytes]:
    for name, value in headers:
        if name == b"authorization":
            scheme, _, key = value.partition(b" ")
            if scheme.lower() == b"bearer" and key.strip():
                yield key.strip()
        elif name == b"x-api-key" and value:
            yield value


def _passwords(headers: Iterable[Raw]) -> Iterator[bytes]:
    """Of HTTP Basic authentication, whatever the user's name: browsers can ask for that."""
    for name, value in headers:
        scheme, _, coded = value.partition(b" ")
        if name == b"authorization" and scheme.lower() == b"basic":
            try:
                _, _, password = b64decode(coded.strip(), validate=True).partition(b":")
            except ValueError:
                continue
            if password:
                yield password


def _hash(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
