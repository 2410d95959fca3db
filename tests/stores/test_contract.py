"""What every store keeps to, whatever it is made of."""

import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxy.errors import StoreError
from proxy.stores.base import Shelf, Store
from proxy.stores.encrypted import EncryptedStore
from proxy.stores.guarded import GuardedStore
from proxy.stores.memory import MemoryStore
from proxy.stores.sqlite import SqliteStore

Opener = Callable[[], contextlib.AbstractAsyncContextManager[Store]]


def never(error: StoreError) -> None:
    raise AssertionError(f"no failure was expected: {error}")


def untold(what: str) -> None:
    raise AssertionError(f"nothing was to be told: {what}")


@pytest.fixture(params=["memory", "sqlite", "encrypted sqlite", "guarded sqlite"])
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    """Opens an empty store of each kind."""
    number = iter(range(10**6))

    async def make() -> Store:
        path = tmp_path / str(next(number)) / "store.db"
        if request.param == "memory":
            return MemoryStore()
        if request.param == "sqlite":
            return await SqliteStore.open(path)
        if request.param == "encrypted sqlite":
            # The second is an older one, which is asked as well.
            return await EncryptedStore.open(await SqliteStore.open(path), ("new key", "old key"), untold)
        guarded = GuardedStore(lambda: SqliteStore.open(path), MemoryStore(), never)
        await guarded.open()
        assert guarded.healthy
        return guarded

    @contextlib.asynccontextmanager
    async def opened() -> AsyncIterator[Store]:
        store = await make()
        try:
            yield store
        finally:
            await store.close()

    return opened


async def test_an_unknown_digest_has_no_value(opener: Opener) -> None:
    async with opener() as store:
        assert await store.longest(Shelf.SEEN, [b"a", b"b"]) is None
        assert await store.longest(Shelf.SEEN, []) is None


async def test_the_first_value_wins_and_add_says_which(opener: Opener) -> None:
    async with opener() as store:
        assert await store.add(Shelf.SEEN, b"a", b"first") == b"first"
        assert await store.add(Shelf.SEEN, b"a", b"second") == b"first"
        assert await store.longest(Shelf.SEEN, [b"a"]) == (0, b"first")


async def test_the_last_digest_with_a_value_is_found(opener: Opener) -> None:
    async with opener() as store:
        await store.add(Shelf.SEEN, b"a", b"short")
        await store.add(Shelf.SEEN, b"c", b"long")
        assert await store.longest(Shelf.SEEN, [b"a", b"b", b"c", b"d"]) == (2, b"long")
        assert await store.longest(Shelf.SEEN, [b"c", b"x", b"c"]) == (2, b"long")
        assert await store.longest(Shelf.SEEN, [b"a", b"b"]) == (0, b"short")


async def test_several_shelves_are_asked_at_once(opener: Opener) -> None:
    async with opener() as store:
        await store.add(Shelf.SEEN, b"a", b"short")
        await store.add(Shelf.SEEN, b"b", b"long")
        await store.add(Shelf.FAILED, b"a", b"failed")
        await store.add(Shelf.RANGE, b"x", b"of another history")
        found = await store.longest_on((Shelf.SEEN, Shelf.RANGE, Shelf.FAILED), [b"a", b"b", b"c"])
        assert found == {Shelf.SEEN: (1, b"long"), Shelf.FAILED: (0, b"failed")}


async def test_what_is_certainly_not_there_is_not_there(opener: Opener) -> None:
    """It may say no at any time, so that somebody is asked."""
    async with opener() as store:
        for digest in (b"a", b"b"):
            await store.longest_on((Shelf.SEEN, Shelf.RANGE), [digest])
            await store.add(Shelf.SEEN, digest, b"value")
            assert not store.has_none((Shelf.RANGE, Shelf.SEEN), [b"x", digest])


async def test_shelves_are_apart(opener: Opener) -> None:
    async with opener() as store:
        for shelf in Shelf:
            assert await store.longest(shelf, [b"a"]) is None
            assert await store.add(shelf, b"a", shelf.value.encode()) == shelf.value.encode()
        for shelf in Shelf:
            assert await store.longest(shelf, [b"a"]) == (0, shelf.value.encode())


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(b"", id="empty"),
        pytest.param(bytes(range(256)), id="every byte"),
        pytest.param(b"x" * 200_000, id="200 KB"),
        pytest.param("北京 \ud83d".encode("utf-8", "surrogatepass"), id="no valid utf-8"),
    ],
)
async def test_values_come_back_byte_for_byte(opener: Opener, value: bytes) -> None:
    async with opener() as store:
        await store.add(Shelf.RANGE, b"\x00'\xff", value)
        assert await store.longest(Shelf.RANGE, [b"\x00'\xff"]) == (0, value)


async def test_thousands_of_digests_are_one_question(opener: Opener) -> None:
    digests = [number.to_bytes(32, "big") for number in range(5000)]
    async with opener() as store:
        assert await store.longest(Shelf.SEEN, digests) is None
        for index in (0, 4499, 4500, 4999):  # both sides of where a question may be split
            await store.add(Shelf.SEEN, digests[index], str(index).encode())
            assert await store.longest(Shelf.SEEN, digests) == (index, str(index).encode())
        assert await store.longest(Shelf.SEEN, digests[:4500]) == (4499, b"4499")


async def test_size_grows_with_what_is_added(opener: Opener) -> None:
    async with opener() as store:
        assert await store.size() == (0, 0)
        await store.add(Shelf.SEEN, b"a", b"x" * 1000)
        await store.add(Shelf.SEEN, b"a", b"x" * 5000)
        entries, taken = await store.size()
        assert entries == 1
        assert 1000 < taken < 2000


async def test_the_secret_is_32_random_bytes_and_stays(opener: Opener) -> None:
    async with opener() as one, opener() as other:
        assert len(one.secret) == 32
        assert one.secret == one.secret != other.secret


async def test_closing_twice_does_nothing(opener: Opener) -> None:
    async with opener() as store:
        await store.close()
        await store.close()


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(Shelf), st.integers(0, 5), st.binary(max_size=3) | st.none()), max_size=20
    )
)
async def test_it_behaves_like_a_dictionary_that_keeps_the_first(
    opener: Opener, steps: list[tuple[Shelf, int, bytes | None]]
) -> None:
    digests = [bytes([number]) for number in range(6)]
    model: dict[tuple[Shelf, bytes], bytes] = {}
    async with opener() as store:
        for shelf, number, value in steps:
            if value is not None:
                digest = digests[number]
                assert await store.add(shelf, digest, value) == model.setdefault((shelf, digest), value)
            known = [i for i in range(number + 1) if (shelf, digests[i]) in model]
            expected = (known[-1], model[shelf, digests[known[-1]]]) if known else None
            assert await store.longest(shelf, digests[: number + 1]) == expected
        assert (await store.size())[0] == len(model)
