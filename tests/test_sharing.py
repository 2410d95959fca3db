"""Work is done once for all who wait for it, and ends with the last of them."""

import asyncio

import pytest

from proxy.sharing import Shared


class Work:
    """Counts how often it was begun, and whether it was cancelled; goes on when told."""

    def __init__(self) -> None:
        self.begun = 0
        self.cancelled = 0
        self.go = asyncio.Event()

    async def __call__(self) -> str:
        self.begun += 1
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return "done"


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_all_who_wait_get_the_one_result() -> None:
    shared, work = Shared[str](), Work()
    waiting = [asyncio.create_task(shared.run("key", work)) for _ in range(3)]
    await settle()
    work.go.set()
    assert await asyncio.gather(*waiting) == ["done"] * 3
    assert (work.begun, len(shared)) == (1, 0)


async def test_one_who_leaves_takes_nothing_from_the_others() -> None:
    shared, work = Shared[str](), Work()
    leaver, stayer = (asyncio.create_task(shared.run("key", work)) for _ in range(2))
    await settle()
    leaver.cancel()
    await settle()
    work.go.set()
    assert await stayer == "done"
    assert (work.begun, work.cancelled) == (1, 0)


async def test_the_last_who_leaves_ends_the_work() -> None:
    shared, work = Shared[str](), Work()
    waiting = [asyncio.create_task(shared.run("key", work)) for _ in range(2)]
    await settle()
    for waiter in waiting:
        waiter.cancel()
    await settle()
    assert (work.cancelled, len(shared)) == (1, 0)


async def test_who_comes_while_work_is_being_cancelled_begins_anew() -> None:
    shared, work = Shared[str](), Work()
    first = asyncio.create_task(shared.run("key", work))
    await settle()
    first.cancel()
    await asyncio.sleep(0)
    second = asyncio.create_task(shared.run("key", work))
    await settle()
    third = asyncio.create_task(shared.run("key", work))
    await settle()
    work.go.set()
    assert await asyncio.gather(second, third) == ["done", "done"]
    assert work.begun == 2


async def test_other_keys_are_other_work() -> None:
    shared, work = Shared[str](), Work()
    work.go.set()
    assert await asyncio.gather(shared.run(1, work), shared.run(2, work)) == ["done", "done"]
    assert work.begun == 2


async def test_a_failure_is_everybodys_and_is_forgotten() -> None:
    async def fail() -> str:
        raise ValueError("no")

    shared = Shared[str]()
    results = await asyncio.gather(shared.run(1, fail), shared.run(1, fail), return_exceptions=True)
    assert [type(result) for result in results] == [ValueError, ValueError]
    with pytest.raises(ValueError):
        await shared.run(1, fail)
    assert len(shared) == 0
