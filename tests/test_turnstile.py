"""Who may pass beside whom."""

import asyncio

import pytest

from proxy.turnstile import Turnstile


class Walker:
    """Passes, stays inside until told to leave, and can be asked whether it is inside."""

    def __init__(self, turnstile: Turnstile, *, alone: bool) -> None:
        self.inside = asyncio.Event()
        self.leave = asyncio.Event()
        self._gate = turnstile.alone if alone else turnstile.beside_others
        self.task = asyncio.create_task(self._walk())

    async def _walk(self) -> None:
        async with self._gate():
            self.inside.set()
            await self.leave.wait()


async def settle() -> None:
    """Let everybody who can go on go on."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_others_pass_side_by_side() -> None:
    turnstile = Turnstile()
    walkers = [Walker(turnstile, alone=False) for _ in range(5)]
    for walker in walkers:
        await walker.inside.wait()
        walker.leave.set()
    await asyncio.gather(*(walker.task for walker in walkers))


@pytest.mark.parametrize("first_alone", [True, False])
async def test_nobody_is_beside_one_who_is_alone(first_alone: bool) -> None:
    turnstile = Turnstile()
    first = Walker(turnstile, alone=first_alone)
    await first.inside.wait()
    second = Walker(turnstile, alone=not first_alone)
    await settle()
    assert not second.inside.is_set()
    first.leave.set()
    await second.inside.wait()
    second.leave.set()
    await asyncio.gather(first.task, second.task)


async def test_two_alone_pass_one_after_the_other() -> None:
    turnstile = Turnstile()
    first, second = Walker(turnstile, alone=True), Walker(turnstile, alone=True)
    await first.inside.wait()
    await settle()
    assert not second.inside.is_set()
    first.leave.set()
    await second.inside.wait()
    second.leave.set()
    await asyncio.gather(first.task, second.task)


async def test_one_who_waits_to_be_alone_is_not_overtaken() -> None:
    turnstile = Turnstile()
    first = Walker(turnstile, alone=False)
    await first.inside.wait()
    alone = Walker(turnstile, alone=True)
    await settle()
    late = Walker(turnstile, alone=False)
    await settle()
    assert not late.inside.is_set()
    first.leave.set()
    await alone.inside.wait()
    assert not late.inside.is_set()
    alone.leave.set()
    await late.inside.wait()
    late.leave.set()
    await asyncio.gather(first.task, alone.task, late.task)


async def test_one_who_gives_up_waiting_holds_up_nobody() -> None:
    turnstile = Turnstile()
    first = Walker(turnstile, alone=False)
    await first.inside.wait()
    alone = Walker(turnstile, alone=True)
    await settle()
    late = Walker(turnstile, alone=False)
    await settle()
    alone.task.cancel()
    await late.inside.wait()
    first.leave.set()
    late.leave.set()
    await asyncio.gather(first.task, late.task)


async def test_a_wait_ends_by_itself() -> None:
    turnstile = Turnstile(longest_wait_seconds=0.01)
    first = Walker(turnstile, alone=False)
    await first.inside.wait()
    # The first never leaves, and the others pass all the same.
    for alone in (True, False):
        walker = Walker(turnstile, alone=alone)
        await walker.inside.wait()
        walker.leave.set()
        await walker.task
    first.leave.set()
    await first.task


async def test_one_who_fails_inside_has_left() -> None:
    turnstile = Turnstile()
    with pytest.raises(ValueError):
        async with turnstile.alone():
            raise ValueError
    async with turnstile.beside_others():
        pass
    async with turnstile.alone():
        pass
