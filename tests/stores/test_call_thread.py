"""That calls run in order on one thread, and what becomes of one that is given up."""

import asyncio
import threading

import pytest

from proxy.stores.call_thread import CallThread


async def test_calls_run_in_order_on_one_thread_that_is_not_ours() -> None:
    thread = CallThread("test")
    seen: list[int] = []
    names = await asyncio.gather(
        *(thread.run(lambda n=n: (seen.append(n), threading.get_ident())) for n in range(9))
    )
    assert seen == list(range(9))
    assert len({ident for _, ident in names}) == 1
    assert names[0][1] != threading.get_ident()
    thread.stop(lambda: None)


async def test_an_error_reaches_the_caller_and_the_thread_goes_on() -> None:
    thread = CallThread("test")
    with pytest.raises(ZeroDivisionError):
        await thread.run(lambda: 1 // 0)
    assert await thread.run(lambda: 1) == 1
    thread.stop(lambda: None)


@pytest.mark.parametrize(
    "finish", [pytest.param(True, id="to be finished"), pytest.param(False, id="dropped")]
)
async def test_a_call_given_up_before_it_began(finish: bool) -> None:
    thread = CallThread("test")
    gate = threading.Event()
    done: list[str] = []
    first = asyncio.create_task(thread.run(gate.wait))
    second = asyncio.create_task(thread.run(lambda: done.append("second"), finish=finish))
    await asyncio.sleep(0)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    gate.set()
    await first
    await thread.run(lambda: None)
    assert done == (["second"] if finish else [])
    thread.stop(lambda: None)


async def test_stopping_waits_for_nothing_and_loses_nothing() -> None:
    thread = CallThread("test")
    gate, ended = threading.Event(), threading.Event()
    first = asyncio.create_task(thread.run(gate.wait))
    await asyncio.sleep(0)
    thread.stop(ended.set)
    gate.set()
    assert await first
    assert await asyncio.to_thread(ended.wait, 10)
