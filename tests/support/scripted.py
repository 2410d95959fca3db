"""
Serve completions in all three formats from a script, with a window, a count and a prompt cache.

It stands in for a model server where a test must say what the model answers, or see
every byte that reached it. It counts as `prompts` says and caches as `slots` says, so
that what a rewrite costs can be read from its usage and timings.
"""

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from tests.support import answers_messages, answers_responses
from tests.support.answers import Answer, Numbers, events, whole
from tests.support.asgi import accept_lifespan, disconnected, receive_request, send_events, send_whole
from tests.support.discovery import MODEL, Server, describe, overflow
from tests.support.prompts import CHARS_PER_TOKEN, Rule, count, refusal, render, text_of
from tests.support.recorded import Changes, Recorded
from tests.support.serving import serving
from tests.support.slots import Slots
from tests.support.translated import MESSAGES, RESPONSES

# Long, and unlike anything that a test's conversation says.
NOTES = "\n".join(f"- Fact {i}: the agent read file_{i}.py and kept its public names." for i in range(8))
ORDINARY = "Understood. I will go on with the next step."


@dataclass(slots=True, kw_only=True)
class ScriptedUpstream:
    """
    A model server that answers as told.

    Attributes:
        server: Which server it passes for (discovery, timings, form of an overflow).
        window: Tokens, prompt and completion together. May be set anew while it runs.
        slots: Requests that are answered at once; the others wait in line.
        script: What a chat request gets; returning None means the default.
        others: What a path that the server does not know gets; None means 404.
        notes_marker: Part of the notes instruction: a request whose last message contains
            it counts as a notes request, as one with `tool_choice` "none" does.
        strict: Template rules whose breach is refused.
        requests: Everything that arrived, in order.
        most_in_flight: The most chat requests that were unanswered at one time.
        url: Base URL while it runs, without `/v1`.
    """

    server: Server = Server.LLAMA_CPP
    window: int = 8192
    slots: int = 1
    script: Callable[[Recorded], Answer | None] = lambda _: None
    others: Callable[[Recorded], Answer | None] = lambda _: None
    notes_marker: str = ""
    strict: frozenset[Rule] = frozenset()
    strict_status: int = 500
    chars_per_token: int = CHARS_PER_TOKEN
    requests: list[Recorded] = field(default_factory=list)
    most_in_flight: int = 0
    url: str = ""
    _in_flight: int = 0
    _caches: Slots | None = None
    _changes: "Changes[ScriptedUpstream] | None" = None

    @property
    def chats(self) -> list[Recorded]:
        """The requests for completions, notes requests among them."""
        return [r for r in self.requests if r.is_chat]

    @property
    def notes(self) -> list[Recorded]:
        """The notes requests."""
        return [r for r in self.chats if self.is_notes(r)]

    @property
    def turns(self) -> list[Recorded]:
        """The chat requests that are no notes requests."""
        return [r for r in self.chats if not self.is_notes(r)]

    def is_notes(self, request: Recorded) -> bool:
        """Whether *request* asks for notes."""
        messages = request.chat.get("messages")
        last = text_of(messages[-1]) if isinstance(messages, list) and messages else ""
        is_marked = bool(self.notes_marker) and self.notes_marker in last
        return is_marked or request.chat.get("tool_choice") == "none"

    def count(self, body: dict[str, Any]) -> int:
        """Prompt tokens of a chat body, as this server counts them."""
        return count(render(body), self.chars_per_token)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["ScriptedUpstream"]:
        """Serve in the current loop."""
        self._changes = Changes(self)
        self._caches = Slots(self.slots, self.chars_per_token)
        async with serving(self, grace_seconds=1) as url:
            self.url = url
            yield self

    @contextlib.contextmanager
    def running_in_thread(self) -> Iterator["ScriptedUpstream"]:
        """Serve in a thread with a loop of its own; `until` is for the other form."""
        started = threading.Event()
        leave: list[Callable[[], object]] = []

        async def serve() -> None:
            stop = asyncio.Event()
            loop = asyncio.get_running_loop()
            async with self.running():
                leave.append(lambda: loop.call_soon_threadsafe(stop.set))
                started.set()
                await stop.wait()

        thread = threading.Thread(target=lambda: asyncio.run(serve()))
        thread.start()
        started.wait()
        try:
            yield self
        finally:
            leave[0]()
            thread.join()

    async def until(self, holds: Callable[["ScriptedUpstream"], bool]) -> None:
        """Wait until *holds* is true of this server; it is asked again at every change."""
        assert self._changes is not None
        await self._changes.until(holds)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """The ASGI app."""
        if scope["type"] != "http":
            return await accept_lifespan(receive, send)
        request = await receive_request(scope, receive)
        if request is None:
            return None
        self.requests.append(request)
        self._in_flight += request.is_chat
        self.most_in_flight = max(self.most_in_flight, self._in_flight)
        answering = asyncio.create_task(self._answer(request, send))
        leaving = asyncio.create_task(disconnected(receive))
        try:
            await self._tell()
            await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
            request.is_cancelled = not answering.done()
            answering.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await answering
        finally:
            answering.cancel()
            leaving.cancel()
            self._in_flight -= request.is_chat
            request.is_done = True
            await self._tell()

    async def _tell(self) -> None:
        assert self._changes is not None
        await self._changes.tell()

    async def _answer(self, request: Recorded, send: Any) -> None:
        path = "/" + request.path.split("?")[0].strip("/")
        known = describe(
            self.server,
            path,
            request.json,
            window=self.window,
            slots=self.slots,
            chars_per_token=self.chars_per_token,
        )
        if known is not None:
            await send_whole(request, send, Answer(), _json(known))
        elif not request.is_chat:
            other = self.others(request) or _error(404, "File Not Found", "not_found_error")
            await self._refuse(request, send, other)
        elif not request.chat.get("messages"):
            await self._refuse(request, send, _error(400, "'messages' is required", "invalid_request_error"))
        elif refused := refusal(request.chat["messages"], self.strict):
            await self._refuse(request, send, _error(self.strict_status, refused[1], "server_error"))
        else:
            await self._complete(request, send)

    async def _complete(self, request: Recorded, send: Any) -> None:
        request.prompt = render(request.chat)
        limit = _limit(request.chat)
        size = count(request.prompt, self.chars_per_token)
        default = Answer(text=NOTES if self.is_notes(request) else ORDINARY)
        answer = self.script(request) or default
        if answer.body is not None:
            return await self._refuse(request, send, answer)
        too_long = overflow(self.server, prompt=size, limit=limit, window=self.window)
        if too_long is not None:
            status, body = too_long
            if request.format == MESSAGES and self.server is not Server.LLAMA_CPP:
                body = answers_messages.too_long(size, self.window)
            return await self._refuse(request, send, Answer(status=status, body=body))
        assert self._caches is not None
        async with self._caches.taken(request.prompt) as cached:
            answer, completion = self._cut(answer, min(limit or self.window, self.window - size))
            numbers = Numbers(
                prompt=size,
                cached=cached,
                completion=completion,
                has_timings=self.server is Server.LLAMA_CPP,
            )
            request.numbers = numbers
            completed, stream = _written(request, answer, numbers, number=len(self.requests))
            if request.json.get("stream"):
                return await send_events(request, send, answer, stream)
            return await send_whole(request, send, answer, _json(completed))

    def _cut(self, answer: Answer, room: int) -> tuple[Answer, int]:
        """The answer as far as *room* goes, and its tokens."""
        said = answer.reasoning + answer.text + "".join(json.dumps(call) for call in answer.calls)
        completion = max(1, count([said], self.chars_per_token))
        if completion <= room:
            return answer, completion
        chars = room * self.chars_per_token
        reasoning = answer.reasoning[:chars]
        text = answer.text[: chars - len(reasoning)]
        return replace(answer, reasoning=reasoning, text=text, calls=(), finish_reason="length"), room

    async def _refuse(self, request: Recorded, send: Any, answer: Answer) -> None:
        body = answer.body if isinstance(answer.body, bytes) else _json(dict(answer.body or {}))
        await send_whole(request, send, answer, body)


def _written(
    request: Recorded, answer: Answer, numbers: Numbers, *, number: int
) -> tuple[dict[str, Any], Iterator[bytes]]:
    """The answer in the format of *request*, whole and as a stream."""
    body = request.json
    model = str(body.get("model") or MODEL)
    if request.format == RESPONSES:
        done = answers_responses.whole(answer, numbers, model=model, number=number, body=body)
        return done, answers_responses.events(answer, numbers, model=model, number=number, body=body)
    if request.format == MESSAGES:
        done = answers_messages.whole(answer, numbers, model=model, number=number)
        return done, answers_messages.events(answer, numbers, model=model, number=number)
    options = body.get("stream_options")
    include_usage = isinstance(options, dict) and options.get("include_usage") is True
    done = whole(answer, numbers, model=model, number=number)
    return done, events(answer, numbers, model=model, number=number, include_usage=include_usage)


def _limit(body: dict[str, Any]) -> int | None:
    for name in ("n_predict", "max_completion_tokens", "max_tokens"):
        value = body.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return max(1, value)
    return None


def _error(status: int, message: str, kind: str) -> Answer:
    return Answer(status=status, body={"error": {"code": status, "message": message, "type": kind}})


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()
