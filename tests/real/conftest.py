"""Servers that the tests on the real llama.cpp share; starting one takes longer than some of them."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from tests.support.llama import Llama, LlamaSettings, llama

Serve = Callable[..., Awaitable[Llama]]


@pytest.fixture(scope="session")
def llama_8192() -> Iterator[Llama]:
    """llama.cpp with a window of 8192 and one slot: leave it running."""
    with llama(window=8192) as running:
        yield running


@pytest.fixture(scope="session")
def restartable() -> Iterator[Llama]:
    """llama.cpp for tests that restart it; ask `served` for it."""
    with llama(window=1024) as running:
        yield running


@pytest.fixture
def served(restartable: Llama) -> Serve:
    """The server with the settings that a test asks for, restarted only where it has others."""

    async def serve(**settings: Any) -> Llama:
        if restartable.settings != LlamaSettings(**settings):
            changes = {name: getattr(LlamaSettings(**settings), name) for name in LlamaSettings.__slots__}
            await asyncio.to_thread(lambda: restartable.restart(**changes))
        return restartable

    return serve
