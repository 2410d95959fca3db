"""
Which store does this run use, and who is told of what is wrong with it?
"""

import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from proxy.config import StoreConfig
from proxy.errors import StoreError
from proxy.events import emit
from proxy.stores.base import Store
from proxy.stores.encrypted import EncryptedStore
from proxy.stores.guarded import GuardedStore
from proxy.stores.memory import MemoryStore
from proxy.stores.sealing import check_installed
from proxy.stores.sqlite import SqliteStore
from proxy.stores.sqlite_sealing import fits

_NO_KEY = (
    "some of the newest entries are encrypted, and no key is given; they count as not there, and what is "
    "stored from now on can be read in the file: give the key, by the variable of store.encrypt_with_env"
)


def store_for(
    config: StoreConfig, environ: Mapping[str, str], on_error: Callable[[StoreError], None]
) -> Store:
    """
    The store that *config* describes. It raises nothing; *on_error* is told instead.

    Raises:
        ConfigError: If it is to encrypt, and what that needs is not installed.
    """
    fallback = MemoryStore(max_bytes=config.max_bytes)
    if config.kind == "memory":
        return fallback
    keys = config.encryption_keys(environ)
    if keys:
        check_installed()

    async def open_file() -> Store:
        store = await SqliteStore.open(
            config.file(environ),
            max_age_days=config.max_age_days,
            max_bytes=config.max_bytes,
            # A file that can only be made later then takes what this run stores meanwhile.
            new_secret=fallback.secret,
            on_set_aside=_tell_set_aside,
        )
        if keys:
            return await EncryptedStore.open(store, keys, _tell_unreadable)
        try:
            if not await store.do("reading", lambda connection: fits(connection, lambda *_: None)):
                _tell_unreadable(_NO_KEY)
        except BaseException:
            await store.close()
            raise
        return store

    return GuardedStore(open_file, fallback, on_error, time.monotonic)


def _tell_set_aside(aside: Path, damage: str) -> None:
    emit("store.set_aside", level=logging.WARNING, path=str(aside), why=damage)


def _tell_unreadable(why: str) -> None:
    emit("store.unreadable", level=logging.WARNING, why=why)
