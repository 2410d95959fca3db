"""Who is let in at once, who waits, and who is sent away."""

import asyncio

import pytest

from proxy.admission import Places, Room
from proxy.errors import Overloaded, Stopping


class Guest:
    """Takes a place, stays until told to leave, and can be asked whether it is inside."""

    def __init__(self, places: Places) -> None:
        self.inside = False
        self.leave = asyncio.Event()
        self.task = asyncio.ensure_future(self._stay(places))

    async def _stay(self, places: Places) -> None:
        async with places.one():
            self.inside = True
            await self.leave.wait()
        self.inside = False


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def guests(places: Places, count: int) -> list[Guest]:
    came = [Guest(places) for _ in range(count)]
    await settle()
    return came


def inside(came: list[Guest]) -> list[bool]:
    return [guest.inside for guest in came]


async def all_gone(came: list[Guest]) -> None:
    for guest in came:
        guest.leave.set()
    await asyncio.gather(*(guest.task for guest in came), return_exceptions=True)


async def test_who_finds_no_place_waits_its_turn() -> None:
    places = Places(2, 9)
    came = await guests(places, 4)
    assert (inside(came), places.taken, places.waiting) == ([True, True, False, False], 2, 2)
    came[1].leave.set()
    await settle()
    assert inside(came) == [True, False, True, False]
    await all_gone(came)
    assert (places.taken, places.waiting) == (0, 0)


async def test_who_finds_the_line_full_is_sent_away_with_the_remedy() -> None:
    places = Places(1, 1)
    came = await guests(places, 3)
    with pytest.raises(Overloaded) as error:
        await came[2].task
    assert str(error.value) == (
        "1 requests are under way and 1 wait for their turn; try again soon, or raise "
        "`limits.requests_at_once` or `limits.requests_waiting` of the proxy"
    )
    assert (error.value.status, error.value.retry_after_seconds) == (503, 2)
    await all_gone(came)
    assert places.taken == 0


@pytest.mark.parametrize("handed_over", [False, True], ids=["in line", "just given the place"])
async def test_one_who_leaves_the_line_holds_up_nobody(handed_over: bool) -> None:
    places = Places(1)
    came = await guests(places, 3)
    if handed_over:
        came[0].leave.set()
        await asyncio.sleep(0)
    came[1].task.cancel()
    await settle()
    came[0].leave.set()
    await settle()
    assert inside(came) == [False, False, True]
    await all_gone(came)
    assert (places.taken, places.waiting) == (0, 0)


async def test_whoever_left_takes_no_room_in_the_line() -> None:
    places = Places(1, 2)
    came = await guests(places, 3)
    came[2].task.cancel()
    await settle()
    came += await guests(places, 1)
    assert not came[3].task.done()
    await all_gone(came)


async def test_more_places_let_more_in_with_the_next_who_comes() -> None:
    places = Places(1)
    came = await guests(places, 3)
    places.most = 3
    came += await guests(places, 1)
    assert inside(came) == [True, True, True, False]
    await all_gone(came)


async def test_fewer_places_let_nobody_out() -> None:
    places = Places(2)
    came = await guests(places, 2)
    places.most = 1
    came += await guests(places, 1)
    came[0].leave.set()
    await settle()
    assert inside(came) == [False, True, False]
    await all_gone(came)


async def test_at_the_end_nobody_waits() -> None:
    places = Places(1)
    came = await guests(places, 2)
    places.close()
    came += await guests(places, 1)
    for guest in came[1:]:
        with pytest.raises(Stopping):
            await guest.task
    assert came[0].inside
    await all_gone(came)
    with pytest.raises(Stopping):
        async with places.one():
            pass


def test_bodies_that_fit_no_more_are_sent_away() -> None:
    room = Room(100)
    room.take(60)
    with pytest.raises(Overloaded, match=r"`limits\.bodies_at_once_bytes`"):
        room.take(41)
    room.take(40)
    room.give_back(100)
    # A single one has to be let in: it would never find more room.
    room.take(1000)
    room.take(1000, own=1000)
    assert room.taken == 2000
