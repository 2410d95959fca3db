"""
What is known of a model's window, since when, and who waits for it.

The server is a function here: what it takes to answer is a gate, and the clock is a number.
"""

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

from proxy.core.overflow import Overflow
from proxy.discovery import Found, ServerKind
from proxy.errors import UpstreamUnreachable
from proxy.upstream import Answer, Headers
from proxy.windows import ABSENT_SECONDS, FRESH_SECONDS, RETRY_SECONDS, Windows


@dataclass
class Server:
    """
    A llama.cpp that may be silent.

    Attributes:
        window: None where it does not say.
        silent: Whether it answers nothing.
        absent: Whether nobody listens.
        asked: How often it was asked for its properties.
        clock: Seconds.
    """

    window: int | None = 8192
    silent: bool = False
    absent: bool = False
    asked: int = 0
    clock: float = 0.0
    told: list[tuple[str, int]] = field(default_factory=list)

    async def ask(
        self,
        method: str,
        path: str,
        *,
        headers: Headers = (),
        body: bytes = b"",
        timeout_seconds: float = 5.0,
    ) -> Answer:
        self.asked += path == "/props"
        if self.absent:
            raise UpstreamUnreachable("nobody listens")
        if self.silent:
            await asyncio.Event().wait()
        props: dict[str, Any] = {"default_generation_settings": {}, "total_slots": 1}
        if self.window:
            props["default_generation_settings"]["n_ctx"] = self.window
        known = path == "/props"
        return Answer(
            status=200 if known else 404, headers=(), body=json.dumps(props).encode() if known else b"{}"
        )

    def windows(self, *, configured: int | None = None) -> Windows:
        return Windows(
            self.ask,
            configured=configured,
            now=lambda: self.clock,
            on_window=lambda model, window: self.told.append((model, window)),
            longest_seconds=0.05,
        )


async def settled() -> None:
    """Let what runs behind requests come to its end."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    await asyncio.wait(
        [t for t in tasks if "_discover" in repr(t)] or [asyncio.ensure_future(asyncio.sleep(0))]
    )


async def test_requests_that_come_at_once_ask_once() -> None:
    server = Server()
    windows = server.windows()
    found = await asyncio.gather(*(windows.of("m", ()) for _ in range(5)))
    assert {f.window for f in found} == {8192}
    assert server.asked == 1
    assert server.told == [("m", 8192)]


async def test_a_client_that_leaves_does_not_take_the_answer_from_the_others() -> None:
    server = Server()
    windows = server.windows()
    first = asyncio.create_task(windows.of("m", ()))
    second = asyncio.create_task(windows.of("m", ()))
    await asyncio.sleep(0)
    first.cancel()
    assert (await second).window == 8192


async def test_a_silent_server_holds_up_one_request_and_not_for_long() -> None:
    server = Server(silent=True)
    windows = server.windows()
    assert await windows.of("m", ()) == Found(kind=ServerKind.OTHER, answered=False)
    server.clock += 10 * RETRY_SECONDS
    for _ in range(5):
        # Would wait here for ever, or for the whole time again, if it waited at all.
        assert await asyncio.wait_for(windows.of("m", ()), 0.04) == Found(
            kind=ServerKind.OTHER, answered=False
        )
    assert server.asked == 2, "one question behind the back of all five"
    server.silent = False
    await settled()
    server.clock += RETRY_SECONDS
    await windows.of("m", ())
    await settled()
    assert (await windows.of("m", ())).window == 8192


async def test_a_restarted_server_is_noticed_behind_a_request() -> None:
    server = Server()
    windows = server.windows()
    await windows.of("m", ())
    server.window = 4096
    server.clock += FRESH_SECONDS - 1
    await windows.of("m", ())
    assert server.asked == 1
    server.clock += 1
    assert (await windows.of("m", ())).window == 8192
    await settled()
    assert (await windows.of("m", ())).window == 4096
    assert server.told == [("m", 8192), ("m", 4096)]


async def test_a_server_that_was_not_there_is_asked_again_soon() -> None:
    server = Server(absent=True)
    windows = server.windows()
    assert (await windows.of("m", ())).window is None
    server.absent = False
    server.clock += ABSENT_SECONDS
    await windows.of("m", ())
    await settled()
    assert (await windows.of("m", ())).window == 8192


async def test_a_server_that_falls_silent_keeps_the_window_it_had() -> None:
    server = Server()
    windows = server.windows()
    await windows.of("m", ())
    server.silent = True
    server.clock += FRESH_SECONDS
    await windows.of("m", ())
    await settled()
    assert (await windows.of("m", ())).window == 8192
    assert (await windows.learn("m", Overflow(), (), None)).window == 8192


async def test_an_overflow_asks_again_and_believes_the_smaller() -> None:
    server = Server()
    windows = server.windows()
    await windows.of("m", ())
    server.window = 4096
    assert (await windows.learn("m", Overflow(window=16384), (), None)).window == 4096
    assert (await windows.learn("m", Overflow(window=2048), (), None)).window == 2048
    assert (await windows.of("m", ())).window == 2048
    server.window = 32768
    assert (await windows.learn("m", Overflow(), (), None)).window == 32768, "restarted with another size"


async def test_what_worked_is_more_than_what_an_error_says() -> None:
    server = Server(window=None)
    windows = server.windows()
    await windows.of("m", ())
    windows.worked("m", 3000)
    assert (await windows.learn("m", Overflow(window=2048), (), None)).window is None
    assert (await windows.learn("m", Overflow(window=4096), (), None)).window == 4096


async def test_a_configured_window_holds_until_an_overflow_tells_a_smaller_one() -> None:
    server = Server()
    windows = server.windows(configured=16384)
    assert (await windows.of("m", ())).window == 16384
    assert (await windows.learn("m", Overflow(window=32768), (), None)).window == 16384
    windows.guess("m", 9000)
    assert (await windows.of("m", ())).window == 16384
    assert (await windows.learn("m", Overflow(window=8192), (), None)).window == 8192


async def test_where_nobody_says_what_would_fit_it_is_guessed_from_what_did_not() -> None:
    server = Server(window=None)
    windows = server.windows()
    await windows.of("m", ())
    windows.worked("m", 3000)
    windows.guess("m", 9000)
    assert (await windows.of("m", ())).window == 9000
    windows.guess("m", 12000)
    assert (await windows.of("m", ())).window == 9000, "only ever lower"
    windows.guess("m", 2000)
    assert (await windows.of("m", ())).window == 3001, "but never below what worked"


async def test_what_the_server_says_is_never_guessed_over() -> None:
    server = Server()
    windows = server.windows()
    await windows.of("m", ())
    windows.guess("m", 2000)
    assert (await windows.of("m", ())).window == 8192


async def test_each_model_is_asked_for_by_itself_and_few_are_kept() -> None:
    server = Server()
    windows = server.windows()
    for i in range(300):
        assert (await windows.of(f"m{i}", ())).window == 8192
    assert server.asked == 300
    await windows.of("m299", ())
    assert server.asked == 300
    await windows.of("m0", ())
    assert server.asked == 301
