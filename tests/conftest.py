"""Run every async test on asyncio, the loop that the proxy is served with; share one model server."""

import signal
import threading
from collections.abc import Iterator
from inspect import iscoroutinefunction

import pytest

from tests.support.llama import Llama, llama

# Started in the background, a shell has its children ignore Ctrl-C, and theirs after them: what is
# tested of it would never end.
if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    and threading.current_thread() is threading.main_thread()
):
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """What anyio's pytest plugin runs async tests and fixtures on."""
    return "asyncio"


# Before anyio's own hook, which looks for the mark.
@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector: pytest.Module | pytest.Class, name: str, obj: object) -> None:
    """Mark every async test, so that no file has to."""
    if collector.istestfunction(obj, name) and iscoroutinefunction(_without_hypothesis(obj)):
        pytest.mark.anyio(obj)


def _without_hypothesis(obj: object) -> object:
    return obj.hypothesis.inner_test if hasattr(obj, "hypothesis") else obj


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the real llama.cpp last: what is quick to fail is quick to be seen."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is not None)


@pytest.fixture(scope="session")
def llama_4096() -> Iterator[Llama]:
    """llama.cpp with a window of 4096 and one slot, shared by every test of the run: leave it running."""
    with llama() as running:
        yield running
