"""
Answer with exact bytes, and break connections at exact places.

What an HTTP server library will not do (reset in the middle of a body, lie about a
length, cut an event at every byte) is played here as a list of steps on a plain socket.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from typing import assert_never
from urllib.parse import urlsplit

from tests.support.gate import Gate
from tests.support.raw_client import reset
from tests.support.recorded import Changes, Recorded


@dataclass(frozen=True, slots=True)
class Send:
    """Send these bytes, and have them leave before the next step."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Wait:
    """Go on when the gate is open. A peer that leaves meanwhile ends the play."""

    gate: Gate


@dataclass(frozen=True, slots=True)
class Stall:
    """Send nothing more; the play ends when the peer leaves, or with the server."""


@dataclass(frozen=True, slots=True)
class Reset:
    """Close with an RST."""


@dataclass(frozen=True, slots=True)
class Close:
    """Close with a FIN."""


Step = Send | Wait | Stall | Reset | Close


@dataclass(slots=True, kw_only=True)
class RawUpstream:
    """
    A server that plays steps.

    After the last step the connection is kept for another request, unless a step closed it.

    Attributes:
        script: The steps for a request; None hands it to `behind`.
        behind: Base URL of the server that answers what the script does not.
        port: Of 127.0.0.1; 0 for any free one. It stays the same where it runs again.
        requests: Everything that arrived, in order. `is_cancelled` says that the peer left
            before the last step was played.
        url: Base URL while it runs.
    """

    script: Callable[[Recorded], Iterable[Step] | None]
    behind: str = ""
    port: int = 0
    requests: list[Recorded] = field(default_factory=list)
    url: str = ""
    _changes: "Changes[RawUpstream] | None" = None

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["RawUpstream"]:
        """Serve in the current loop."""
        self._changes = Changes(self)
        talks: set[asyncio.Task[None]] = set()

        def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            talk = asyncio.create_task(self._talk(reader, writer))
            talks.add(talk)
            talk.add_done_callback(talks.discard)

        server = await asyncio.start_server(meet, "127.0.0.1", self.port)
        self.port = server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        try:
            yield self
        finally:
            server.close()
            for talk in list(talks):
                talk.cancel()
            await asyncio.gather(*talks, return_exceptions=True)
            await server.wait_closed()

    async def until(self, holds: Callable[["RawUpstream"], bool]) -> None:
        """Wait until *holds* is true of this server; it is asked again at every change."""
        assert self._changes is not None
        await self._changes.until(holds)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert self._changes is not None
        try:
            while (request := await read_request(reader)) is not None:
                self.requests.append(request)
                await self._changes.tell()
                steps = self.script(request)
                if steps is None:
                    await self._hand_on(request, writer)
                    goes_on = False
                else:
                    goes_on = await _play(request, steps, reader, writer)
                request.is_done = True
                await self._changes.tell()
                if not goes_on:
                    return
        except (ConnectionError, asyncio.IncompleteReadError):
            return
        finally:
            writer.close()

    async def _hand_on(self, request: Recorded, writer: asyncio.StreamWriter) -> None:
        """Send the request to `behind`, and its answer back, on a connection of its own."""
        to = urlsplit(self.behind)
        there, back = await asyncio.open_connection(to.hostname, to.port)
        dropped = {"connection", "transfer-encoding", "content-length"}
        lines = [f"{request.method} {request.path} HTTP/1.1"]
        lines += [f"{n}: {v}" for n, v in request.headers if n.lower() not in dropped]
        lines += ["Connection: close", f"Content-Length: {len(request.body)}"]
        back.write("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + request.body)
        try:
            while piece := await there.read(65536):
                writer.write(piece)
                await writer.drain()
        finally:
            back.close()


async def read_request(reader: asyncio.StreamReader) -> Recorded | None:
    """One request, names of headers as sent; None where the peer closed instead."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    except asyncio.IncompleteReadError:
        return None
    method, path, _ = head[0].split(" ", 2)
    request = Recorded(
        method=method,
        path=path,
        headers=[(n, v.strip()) for n, _, v in (line.partition(":") for line in head[1:] if line)],
        body=b"",
    )
    if (request.header("transfer-encoding") or "").lower() == "chunked":
        while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
            request.body += await reader.readexactly(size)
            await reader.readexactly(2)
        await reader.readuntil(b"\r\n")
    else:
        request.body = await reader.readexactly(int(request.header("content-length") or 0))
    with contextlib.suppress(ValueError, RecursionError):
        request.json = json.loads(request.body)
    return request


async def _play(
    request: Recorded, steps: Iterable[Step], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> bool:
    """Whether the connection is still good for another request."""
    for step in steps:
        match step:
            case Send(data):
                writer.write(data)
                await writer.drain()
                # One turn of the loop, so that two sends are not one packet.
                await asyncio.sleep(0)
            case Wait(gate):
                if not await _is_let_through(gate, reader):
                    request.is_cancelled = True
                    return False
            case Stall():
                await _is_let_through(Gate(), reader)
                request.is_cancelled = True
                return False
            case Reset():
                reset(writer)
                return False
            case Close():
                return False
            case _:
                assert_never(step)
    return True


async def _is_let_through(gate: Gate, reader: asyncio.StreamReader) -> bool:
    """Wait for the gate; False where the peer left first."""
    opened = asyncio.create_task(gate.wait())
    # Nothing more is due from the peer before its answer: any read is its farewell.
    left = asyncio.create_task(reader.read(1))
    try:
        await asyncio.wait({opened, left}, return_when=asyncio.FIRST_COMPLETED)
        return opened.done()
    finally:
        opened.cancel()
        left.cancel()
