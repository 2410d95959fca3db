"""
Make values unreadable, and the digests that they stand under unknowable, without a key.

The key comes from a person as text; the store's own secret is its salt, so that the same text
gives another key for another file. It needs the package `cryptography`, which is an extra.
"""

import hashlib
import secrets
from importlib.util import find_spec

from proxy.errors import ConfigError
from proxy.stores.base import Shelf

# The values of a store are JSON, which begins otherwise; another number is another way of sealing.
_MARK = b"\x01"
_NONCE_BYTES = 12
_DIGEST_BYTES = 16
# About 50 ms and 16 MB, once when a file is opened: it is what guessing a weak key costs, each time.
_SCRYPT = {"n": 2**14, "r": 8, "p": 1, "maxmem": 64 * 1024 * 1024}


class Seal:
    """
    One key. Made by `seals`.

    Args:
        text: As a person wrote it.
        salt: The secret of the store.
    """

    def __init__(self, text: str, salt: bytes) -> None:
        # It is an extra, and slow to load.
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415

        made = hashlib.scrypt(
            text.encode("utf-8", "surrogateescape"), salt=b"sealing 1" + salt, dklen=64, **_SCRYPT
        )
        self._cipher = AESGCM(made[:32])
        self._places = made[32:]

    def place(self, digest: bytes) -> bytes:
        """What stands for *digest* in the file: without the key no conversation can be looked for."""
        return hashlib.blake2b(digest, key=self._places, digest_size=_DIGEST_BYTES).digest()

    def closed(self, shelf: Shelf, place: bytes, value: bytes) -> bytes:
        """*value*, readable by this key alone, and at this very place alone."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return _MARK + nonce + self._cipher.encrypt(nonce, value, _where(shelf, place))

    def opened(self, shelf: Shelf, place: bytes, sealed: bytes) -> bytes | None:
        """What was closed; None where it was not by this key, or not there, or has changed since."""
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 (as above)

        start = len(_MARK) + _NONCE_BYTES
        if not is_sealed(sealed) or len(sealed) < start:
            return None
        try:
            return self._cipher.decrypt(sealed[len(_MARK) : start], sealed[start:], _where(shelf, place))
        except InvalidTag:
            return None


def is_sealed(value: bytes) -> bool:
    """Whether a stored value was sealed, by whatever key."""
    return value.startswith(_MARK)


def check_installed() -> None:
    """
    Raises:
        ConfigError: If what this needs is not installed.
    """
    if find_spec("cryptography") is None:
        raise ConfigError(
            "store.encrypt_with_env needs the package cryptography, which is not installed; "
            "pip install 'compaction-proxy[encryption]', or leave encrypt_with_env out"
        )


def _where(shelf: Shelf, place: bytes) -> bytes:
    return shelf.value.encode() + b"\0" + place
