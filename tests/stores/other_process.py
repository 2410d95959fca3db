"""
A second process on the store's file: `other_process.py COMMAND PATH [ARGUMENT]`.

Prints one line when it has come to the point that the test waits for.
"""

import asyncio
import hashlib
import resource
import sqlite3
import sys

from proxy.errors import StoreError
from proxy.stores.base import Shelf
from proxy.stores.sqlite import SqliteStore


async def add(path: str, value: str) -> None:
    """Wait for a line, add *value* under one digest, print what is stored and the secret."""
    print("ready", flush=True)
    sys.stdin.readline()
    store = await SqliteStore.open(path)
    print((await store.add(Shelf.SEEN, b"digest", value.encode())).decode(), store.secret.hex(), flush=True)
    await store.close()


async def hammer(path: str, first: str) -> None:
    """Add entries for ever; print the number of each that is committed."""
    store = await SqliteStore.open(path)
    number = int(first)
    while True:
        await store.add(Shelf.SEEN, number.to_bytes(4, "big"), value_of(number))
        print(number, flush=True)
        number += 1


async def lock(path: str, _: str) -> None:
    """Hold the write lock until a line comes."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN EXCLUSIVE")
    print("locked", flush=True)
    sys.stdin.readline()
    connection.execute("ROLLBACK")
    connection.close()
    print("free", flush=True)


async def fill(path: str, most_bytes: str) -> None:
    """Add entries while no file may grow over *most_bytes*; print the error, and what can still be read."""
    store = await SqliteStore.open(path)
    await store.add(Shelf.SEEN, b"first", b"kept")
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(most_bytes), int(most_bytes)))
    try:
        for number in range(10_000):
            await store.add(Shelf.SEEN, number.to_bytes(4, "big"), value_of(number))
    except StoreError as error:
        print(error)
    print(await store.longest(Shelf.SEEN, [b"first"]))
    await store.close()


def value_of(number: int) -> bytes:
    """About 20 KB that only this number has."""
    return hashlib.sha256(str(number).encode()).digest() * 640


if __name__ == "__main__":
    command, path, argument = [*sys.argv[1:], ""][:3]
    asyncio.run({"add": add, "hammer": hammer, "lock": lock, "fill": fill}[command](path, argument))
