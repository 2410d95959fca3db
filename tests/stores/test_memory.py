"""What the memory store forgets, and what it never does."""

from proxy.stores.base import Shelf
from proxy.stores.memory import ENTRY_OVERHEAD_BYTES, MemoryStore

ENTRY = ENTRY_OVERHEAD_BYTES + 1 + 1000


async def filled(*digests: bytes, room_for: int) -> MemoryStore:
    store = MemoryStore(max_bytes=room_for * ENTRY)
    for digest in digests:
        await store.add(Shelf.SEEN, digest, b"x" * 1000)
    return store


async def test_it_holds_no_more_bytes_than_its_bound() -> None:
    store = await filled(*(bytes([n]) for n in range(100)), room_for=3)
    assert await store.size() == (3, 3 * ENTRY)


async def test_the_entry_unused_for_longest_goes_first() -> None:
    store = await filled(b"a", b"b", b"c", room_for=3)
    await store.longest(Shelf.SEEN, [b"a"])
    await store.add(Shelf.SEEN, b"d", b"x" * 1000)
    assert store.keys() == ((Shelf.SEEN, b"c"), (Shelf.SEEN, b"a"), (Shelf.SEEN, b"d"))


async def test_adding_what_is_there_counts_as_use() -> None:
    store = await filled(b"a", b"b", b"a", room_for=2)
    await store.add(Shelf.SEEN, b"c", b"x" * 1000)
    assert await store.longest(Shelf.SEEN, [b"a"]) is not None


async def test_the_newest_entry_stays_even_if_it_alone_is_too_large() -> None:
    store = await filled(b"a", b"b", room_for=2)
    await store.add(Shelf.SEEN, b"c", b"y" * 10_000)
    assert await store.longest(Shelf.SEEN, [b"a", b"b", b"c"]) == (2, b"y" * 10_000)
    assert (await store.size())[0] == 1


async def test_put_takes_the_place_of_another_value() -> None:
    store = await filled(b"a", room_for=2)
    store.put((Shelf.SEEN, b"a"), b"other")
    assert await store.longest(Shelf.SEEN, [b"a"]) == (0, b"other")
    assert await store.size() == (1, ENTRY_OVERHEAD_BYTES + 1 + len(b"other"))


def test_a_secret_can_be_given() -> None:
    assert MemoryStore(b"s" * 32).secret == b"s" * 32
