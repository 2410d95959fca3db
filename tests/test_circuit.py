"""An upstream that cannot be connected to is told at once, and found again by the next request."""

import asyncio
import contextlib
import json
import logging
import socket
from collections.abc import AsyncIterator

import pytest

from proxy.circuit import FAILURES_TO_OPEN, Circuit
from proxy.errors import UpstreamDown
from tests.support import wire_bytes
from tests.support.formats import FORMATS, Format
from tests.support.fronted import BODY, BOTH, CHAT, OTHER, STREAMED, fronted, playing, sample
from tests.support.gate import Gate
from tests.support.raw_client import RawRequest, ask
from tests.support.raw_upstream import Close, Reset, Send, Stall, Step

WHERE = "http://127.0.0.1:9"


class Connecting:
    """Attempts that end when they are told to."""

    def __init__(self) -> None:
        self.count = 0
        self.gate = Gate()
        self.error: Exception | None = ConnectionRefusedError(111, "Connection refused")

    async def __call__(self) -> None:
        self.count += 1
        await self.gate.wait()
        if self.error is not None:
            raise self.error


def opened(connecting: Connecting, **settings: float) -> Circuit:
    circuit = Circuit(WHERE, connecting, now=lambda: 0.0, **settings)  # type: ignore[arg-type]
    for _ in range(FAILURES_TO_OPEN):
        circuit.failed("connection refused")
    assert circuit.is_open
    return circuit


# The state by itself


def test_it_takes_several_failures_in_a_row() -> None:
    circuit = Circuit(WHERE, Connecting(), now=lambda: 0.0)
    for _ in range(FAILURES_TO_OPEN - 1):
        circuit.failed("x")
    circuit.reached()
    for _ in range(FAILURES_TO_OPEN - 1):
        circuit.failed("x")
    assert not circuit.is_open


def test_an_upstream_that_is_answering_is_there() -> None:
    circuit = Circuit(WHERE, Connecting(), now=lambda: 0.0)
    circuit.under_way = 1
    for _ in range(3 * FAILURES_TO_OPEN):
        circuit.failed("no answer")
    assert not circuit.is_open


async def test_a_request_sees_the_result_of_an_attempt_of_its_own_time() -> None:
    connecting = Connecting()
    connecting.gate.open()
    circuit = opened(connecting)
    with pytest.raises(UpstreamDown):
        await circuit.pass_through()
    connecting.error = None
    await circuit.pass_through()
    assert (connecting.count, circuit.is_open) == (2, False)


async def test_requests_that_come_at_once_look_once() -> None:
    connecting = Connecting()
    circuit = opened(connecting, patience_seconds=60)
    waiting = [asyncio.ensure_future(circuit.pass_through()) for _ in range(20)]
    while not connecting.count:
        await asyncio.sleep(0)
    waiting[0].cancel()
    connecting.error = None
    connecting.gate.open()
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert connecting.count == 1
    assert [type(result).__name__ for result in results] == ["CancelledError", *["NoneType"] * 19]


async def test_an_attempt_that_takes_long_goes_on_behind_the_answers() -> None:
    connecting = Connecting()
    circuit = opened(connecting, patience_seconds=0)
    for _ in range(3):
        with pytest.raises(UpstreamDown):
            await circuit.pass_through()
    connecting.error = None
    connecting.gate.open()
    while circuit.is_open:
        await asyncio.sleep(0)
    assert connecting.count == 1


async def test_an_attempt_ends_with_the_proxy() -> None:
    before = asyncio.all_tasks()
    circuit = opened(Connecting(), patience_seconds=0)
    with pytest.raises(UpstreamDown):
        await circuit.pass_through()
    await circuit.close()
    assert asyncio.all_tasks() == before


def test_a_change_is_told_once() -> None:
    changes: list[bool] = []
    circuit = Circuit(WHERE, Connecting(), now=lambda: 0.0, on_change=changes.append)
    for _ in range(9):
        circuit.failed("x")
    for _ in range(9):
        circuit.reached()
    assert changes == [True, False]


# Over sockets


async def open_it(url: str) -> None:
    """Have it fail as often as it takes."""
    for _ in range(FAILURES_TO_OPEN):
        answer, _ = await ask(url, OTHER, body=BODY)
        assert answer.status == 502


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
async def test_an_open_circuit_is_a_503_in_the_format_of_the_endpoint(form: Format) -> None:
    closed = wire_bytes.closed_port()
    async with fronted(closed) as url:
        await open_it(url)
        answer, raw = await ask(url, form.path, body=BODY)
        is_open = await sample(url, "upstream_circuit_open")
        refused = await sample(url, 'proxy_refused_total{code="upstream_down"}')
    assert (answer.status, answer.header("retry-after"), is_open, refused) == (503, "1", 1, 1)
    said = (
        f"there is still no connection to the upstream at {closed} (connection refused); "
        "is it running, and is `upstream.url` right? Requests go through as soon as it accepts one"
    )
    assert json.loads(raw) == json.loads(form.dialect.error(503, "upstream_down", said))


@contextlib.asynccontextmanager
async def a_port() -> AsyncIterator[int]:
    """One that nobody listens on, and nobody else is given."""
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


@BOTH
async def test_the_first_request_after_it_is_back_goes_through(path: str) -> None:
    async with a_port() as port, fronted(f"http://127.0.0.1:{port}") as url:
        await open_it(url)
        assert (await ask(url, path, body=BODY))[0].status == 503

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(asyncio.IncompleteReadError):
                await reader.readuntil(b"\r\n\r\n")
                writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 4\r\n\r\nback")
            writer.close()

        async with await asyncio.start_server(answer, "127.0.0.1", port, reuse_address=True):
            got, body = await ask(url, path, body=BODY)
            assert (got.status, body) == (200, b"back")
            assert await sample(url, "upstream_circuit_open") == 0


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param([Reset()], id="reset"),
        pytest.param([Close()], id="closed"),
        pytest.param([Send(b"SSH-2.0\r\n\r\n"), Close()], id="no HTTP"),
        pytest.param([Send(wire_bytes.status(500))], id="500"),
        pytest.param([Send(wire_bytes.status(503, retry_after="7"))], id="503"),
        pytest.param([Stall()], id="silent"),
    ],
)
async def test_an_upstream_that_accepts_connections_is_asked_every_time(steps: list[Step]) -> None:
    n = 2 * FAILURES_TO_OPEN
    async with (
        playing(lambda _: steps).running() as upstream,
        fronted(upstream.url, reach={"idle_timeout_seconds": 0.05}) as url,
    ):
        for _ in range(n):
            await ask(url, OTHER, body=BODY)
        assert await sample(url, "upstream_circuit_open") == 0
    assert len([r for r in upstream.requests if r.path == OTHER]) >= n


async def test_an_answer_under_way_keeps_it_closed() -> None:
    """A server that takes no more connections is busy, not gone."""
    gate = Gate()

    async def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(wire_bytes.stream_head())
        await gate.wait()
        writer.close()

    busy = await asyncio.start_server(begin, "127.0.0.1", 0)
    async with fronted(f"http://127.0.0.1:{busy.sockets[0].getsockname()[1]}") as url:
        async with RawRequest(url, OTHER, body=STREAMED) as request:
            await request.answer()
            busy.close()
            await open_it(url)
            assert await sample(url, "upstream_circuit_open") == 0
        gate.open()
        while await sample(url, "proxy_in_flight_requests"):
            pass
        await open_it(url)
        assert await sample(url, "upstream_circuit_open") == 1


@pytest.mark.parametrize("status", [429, 503])
@BOTH
async def test_what_the_upstream_says_of_waiting_is_relayed_as_it_is(path: str, status: int) -> None:
    whole = wire_bytes.status(status, retry_after="17")
    async with playing(lambda _: [Send(whole)]).running() as upstream, fronted(upstream.url) as url:
        answer, body = await ask(url, path, body=BODY)
    assert (answer.status, answer.header("retry-after")) == (status, "17")
    assert body == whole.partition(b"\r\n\r\n")[2]
    assert len([r for r in upstream.requests if r.path == path]) == 1


async def test_it_is_logged_when_it_goes_and_when_it_comes(caplog: pytest.LogCaptureFixture) -> None:
    async with a_port() as port, fronted(f"http://127.0.0.1:{port}") as url:
        with caplog.at_level(logging.INFO, "proxy"):
            await open_it(url)
            back = await asyncio.start_server(lambda _, w: w.close(), "127.0.0.1", port, reuse_address=True)
            async with back:
                await ask(url, CHAT, body=BODY)
    said = [record for record in caplog.records if record.getMessage().startswith("upstream.")]
    assert [record.getMessage() for record in said] == ["upstream.down", "upstream.up"]
    assert said[0].__dict__["fields"] == {"attempts": FAILURES_TO_OPEN, "why": "connection refused"}


async def test_readiness_says_so() -> None:
    async with fronted(wire_bytes.closed_port()) as url:
        await open_it(url)
        answer, raw = await ask(url, "/readyz", method="GET")
    assert answer.status == 503
    said: str = json.loads(raw)["upstream"]
    assert said.endswith("; requests are answered with 503 until it accepts a connection")
