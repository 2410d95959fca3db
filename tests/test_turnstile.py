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


# Work that nobody waits for


class Background(Walker):
    """Passes behind others, and leaves when it is told to step aside."""

    def __init__(self, turnstile: Turnstile, places: int = 1, *, obeys: bool = True) -> None:
        self.places = places
        self.obeys = obeys
        self.called = 0
        self.turnstile = turnstile
        super().__init__(turnstile, alone=False)

    def step_aside(self) -> None:
        self.called += 1
        if self.obeys:
            self.task.cancel()

    async def _walk(self) -> None:
        async with self.turnstile.behind_others(self.places, self.step_aside):
            self.inside.set()
            await self.leave.wait()


@pytest.mark.parametrize("alone", [True, False], ids=["alone", "beside others"])
async def test_who_comes_has_work_that_nobody_waits_for_step_aside_at_once(alone: bool) -> None:
    turnstile = Turnstile()
    background = Background(turnstile)
    await background.inside.wait()
    walker = Walker(turnstile, alone=alone)
    await walker.inside.wait()
    assert background.task.cancelled()
    walker.leave.set()
    await walker.task


@pytest.mark.parametrize("alone", [True, False], ids=["alone", "beside others"])
async def test_it_waits_until_everybody_has_left(alone: bool) -> None:
    turnstile = Turnstile()
    walker = Walker(turnstile, alone=alone)
    await walker.inside.wait()
    background = Background(turnstile)
    await settle()
    assert not background.inside.is_set()
    assert not background.called
    walker.leave.set()
    await background.inside.wait()
    background.leave.set()
    await background.task


async def test_with_one_slot_who_comes_waits_until_it_has_left() -> None:
    turnstile = Turnstile()
    background = Background(turnstile, obeys=False)
    await background.inside.wait()
    walker = Walker(turnstile, alone=False)
    await settle()
    assert background.called == 1
    assert not walker.inside.is_set()
    background.leave.set()
    await walker.inside.wait()
    walker.leave.set()
    await asyncio.gather(walker.task, background.task)


async def test_with_more_slots_it_steps_aside_only_for_the_one_too_many() -> None:
    turnstile = Turnstile()
    background = Background(turnstile, places=2, obeys=False)
    await background.inside.wait()
    first = Walker(turnstile, alone=False)
    await first.inside.wait()
    assert not background.called
    second = Walker(turnstile, alone=False)
    await second.inside.wait()
    assert background.called == 1
    for walker in (first, second, background):
        walker.leave.set()
        await walker.task


async def test_it_makes_way_for_one_who_does_not_pass() -> None:
    turnstile = Turnstile()
    background = Background(turnstile)
    await background.inside.wait()
    turnstile.make_way()
    with pytest.raises(asyncio.CancelledError):
        await background.task


async def test_it_does_not_pass_before_those_who_wait() -> None:
    turnstile = Turnstile()
    first, second = Walker(turnstile, alone=True), Walker(turnstile, alone=True)
    await first.inside.wait()
    background = Background(turnstile)
    await settle()
    first.leave.set()
    await second.inside.wait()
    assert not background.inside.is_set()
    second.leave.set()
    await background.inside.wait()
    background.leave.set()
    await asyncio.gather(first.task, second.task, background.task)


async def test_it_does_not_pass_where_its_wait_took_too_long() -> None:
    turnstile = Turnstile(longest_wait_seconds=0.01)
    walker = Walker(turnstile, alone=False)
    await walker.inside.wait()
    with pytest.raises(TimeoutError):
        await Background(turnstile).task
    walker.leave.set()
    await walker.task
