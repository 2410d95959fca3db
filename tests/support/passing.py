"""
Stand between the proxy and a real server, and keep what passes, byte for byte.

What a client leaves goes on at once: when the proxy closes a connection, the one to the
server behind is closed too, as if there were none between them.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from tests.support.agent_sessions import NOTES_MARKER
from tests.support.raw_upstream import read_request
from tests.support.recorded import Changes, Recorded

_COMPLETIONS = ("/chat/completions", "/responses", "/messages")


@dataclass(slots=True, eq=False)
class Passed:
    """
    One request that went to the server, and what came back.

    Attributes:
        request: As it went; its `is_cancelled` says that the proxy left before the answer's end.
        answer: Head and body so far, as they came.
    """

    request: Recorded
    answer: bytes = b""

    @property
    def body(self) -> bytes:
        """Of the request."""
        return self.request.body

    @property
    def status(self) -> int:
        """Of the answer; 0 where none came."""
        return int(self.answer.split(b" ", 2)[1]) if b"\r\n" in self.answer else 0

    @property
    def is_completion(self) -> bool:
        """Whether it asks the model for an answer, in any of the three formats."""
        return self.request.method == "POST" and self.request.path.split("?")[0].endswith(_COMPLETIONS)

    @property
    def is_notes(self) -> bool:
        """Whether it asks for notes."""
        return self.is_completion and NOTES_MARKER.encode() in self.body

    @property
    def answer_body(self) -> bytes:
        """The answer's body without its transfer coding."""
        head, _, body = self.answer.partition(b"\r\n\r\n")
        return _unchunked(body) if b"transfer-encoding: chunked" in head.lower() else body

    @property
    def processed(self) -> int:
        """Tokens of the prompt that the server had to process, by its own timings."""
        return int(self._timings()["prompt_n"])

    @property
    def cached(self) -> int:
        """Tokens of the prompt that it had already."""
        return int(self._timings()["cache_n"])

    @property
    def prompt(self) -> int:
        """Tokens of the whole prompt."""
        return self.processed + self.cached

    def _timings(self) -> dict[str, Any]:
        text = self.answer_body.decode()
        start = text.rindex('"timings":') + len('"timings":')
        timings: dict[str, Any] = json.JSONDecoder().raw_decode(text, start)[0]
        return timings


@dataclass(slots=True, kw_only=True)
class Passing:
    """
    A relay to the server at `behind`.

    Attributes:
        behind: Base URL of the server.
        remembered: Answers to requests for completions, by path and body, that are given from here and
            not asked for again: the same request gets the same answer, without the server's work.
        on_pass: Called with each request before it goes on.
        passed: Everything, in order of arrival.
        url: Base URL while it runs.
    """

    behind: str
    remembered: Mapping[tuple[str, bytes], bytes] = field(default_factory=dict)
    on_pass: Callable[[Passed], object] = lambda _: None
    passed: list[Passed] = field(default_factory=list)
    url: str = ""
    _changes: "Changes[Passing] | None" = None

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["Passing"]:
        """Serve in the current loop, on a free port of 127.0.0.1."""
        self._changes = Changes(self)
        talks: set[asyncio.Task[None]] = set()

        def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            talk = asyncio.create_task(self._talk(reader, writer))
            talks.add(talk)
            talk.add_done_callback(talks.discard)

        server = await asyncio.start_server(meet, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()
            for talk in list(talks):
                talk.cancel()
            await asyncio.gather(*talks, return_exceptions=True)
            await server.wait_closed()

    @property
    def completions(self) -> list[Passed]:
        """What asked the model for an answer, notes included."""
        return [passed for passed in self.passed if passed.is_completion]

    @property
    def notes(self) -> list[Passed]:
        """What asked for notes."""
        return [passed for passed in self.passed if passed.is_notes]

    @property
    def turns(self) -> list[Passed]:
        """What asked for an agent's next turn."""
        return [passed for passed in self.completions if not passed.is_notes]

    def answers(self) -> dict[tuple[str, bytes], bytes]:
        """What came back for each request for a completion, for another relay to remember."""
        return {(p.request.path, p.body): p.answer for p in self.completions}

    async def until(self, holds: Callable[["Passing"], bool]) -> None:
        """Wait until *holds* is true of this relay; it is asked again at every change."""
        assert self._changes is not None
        await self._changes.until(holds)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert self._changes is not None
        try:
            request = await read_request(reader)
            if request is None:
                return
            passed = Passed(request)
            self.passed.append(passed)
            self.on_pass(passed)
            await self._changes.tell()
            known = self.remembered.get((request.path, request.body)) if passed.is_completion else None
            if known is None:
                await self._pass_on(passed, reader, writer)
            else:
                passed.answer = known
                writer.write(known)
                await writer.drain()
            request.is_done = True
            await self._changes.tell()
        except (ConnectionError, asyncio.IncompleteReadError):
            return
        finally:
            writer.close()

    async def _pass_on(
        self, passed: Passed, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        to = urlsplit(self.behind)
        there, back = await asyncio.open_connection(to.hostname, to.port)
        # One request for each connection, so that a connection's end is a request's.
        dropped = {"connection", "transfer-encoding", "content-length"}
        request = passed.request
        lines = [f"{request.method} {request.path} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in request.headers if name.lower() not in dropped]
        lines += ["Connection: close", f"Content-Length: {len(request.body)}"]
        back.write("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + request.body)
        answering = asyncio.create_task(self._answer(passed, there, writer))
        # Nothing more is due from the proxy before the answer: any read is its farewell.
        leaving = asyncio.create_task(reader.read(1))
        try:
            await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
            request.is_cancelled = not answering.done()
        finally:
            back.close()
            for task in (answering, leaving):
                task.cancel()
            await asyncio.gather(answering, leaving, return_exceptions=True)

    async def _answer(
        self, passed: Passed, there: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        assert self._changes is not None
        while piece := await there.read(65536):
            passed.answer += piece
            writer.write(piece)
            await writer.drain()
            await self._changes.tell()


def _unchunked(body: bytes) -> bytes:
    plain = b""
    while body:
        size, _, rest = body.partition(b"\r\n")
        length = int(size.split(b";")[0] or b"0", 16)
        plain += rest[:length]
        body = rest[length + 2 :] if length else b""
    return plain
