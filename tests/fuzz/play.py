"""
Send a case through a proxy to an upstream that echoes, and say what was not as it must be.

The rules: no status of the proxy's own where the upstream answered, but for a body that contradicts
its Content-Encoding; no hang; no caught fault; the upstream gets the very bytes of the client where
nothing was to be changed, and else every message but the one with the block, or those that were cut;
the client gets the very bytes of the upstream.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from proxy import headers as hd
from proxy.dialects.slices import Item, take_apart
from proxy.encodings import decoded, is_known
from proxy.errors import NotUnderstood
from tests.fuzz.cases import Case
from tests.support import wire_bytes
from tests.support.raw_client import RawAnswer, RawRequest
from tests.support.raw_upstream import Close, RawUpstream, Send, Step
from tests.support.recorded import Recorded

# No body contains it.
INSTRUCTION = "FUZZ-7c1f: write notes of what has happened so far."
# What an answer may take on a busy machine, before it counts as a hang.
_LONGEST_SECONDS = 60
_FIELDS = {"/v1/chat/completions": "messages", "/v1/responses": "input", "/v1/messages": "messages"}


@dataclass(slots=True)
class Echo:
    """An upstream for one case at a time; `base_url` is where it runs."""

    case: Case | None = None
    upstream: RawUpstream = field(init=False)

    def __post_init__(self) -> None:
        self.upstream = RawUpstream(script=self._script)

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Echo"]:
        """Serve in the current loop."""
        async with self.upstream.running():
            yield self

    @property
    def arrived(self) -> list[Recorded]:
        """The client's requests as they arrived, without the proxy's own questions."""
        case = self.case
        return [
            r for r in self.upstream.requests if case and r.path == case.path and not _is_for_notes(r.body)
        ]

    def _script(self, request: Recorded) -> Iterator[Step]:
        case = self.case
        if request.path.startswith("/props"):
            yield Send(wire_bytes.response(b'{"total_slots":1}'))
        elif case is None or request.path != case.path:
            yield Send(wire_bytes.status(404))
        elif _is_for_notes(request.body):
            yield from _streamed(case.notes, breaks=False)
        elif case.stream:
            yield from _streamed(case.stream, breaks=case.breaks)
        else:
            yield Send(wire_bytes.response(request.body, content_type="x/echo"))


def _is_for_notes(body: bytes) -> bool:
    return INSTRUCTION.encode() in body


def _streamed(pieces: tuple[bytes, ...], *, breaks: bool) -> Iterator[Step]:
    yield Send(wire_bytes.stream_head())
    for piece in pieces:
        yield Send(wire_bytes.chunk(piece))
    yield Close() if breaks else Send(wire_bytes.LAST_CHUNK)


@dataclass(frozen=True, slots=True)
class Got:
    """What the client saw; `is_whole` says that the answer ended as an answer ends."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes
    is_whole: bool

    def header(self, name: str) -> str:
        """Its value, empty where it is absent."""
        return next((v for n, v in self.headers if n.lower() == name), "")


async def play(case: Case, url: str, echo: Echo) -> str:
    """What is wrong; empty where nothing is."""
    echo.case = case
    echo.upstream.requests.clear()
    try:
        async with asyncio.timeout(_LONGEST_SECONDS):
            got = await _ask(case, url)
    except TimeoutError:
        return "hang: no end of an answer"
    except (OSError, asyncio.IncompleteReadError, ValueError) as error:
        return f"no answer: {type(error).__name__}"
    return _judge(case, got, echo.arrived)


async def until_fault(
    cases: list[Case], url: str, echo: Echo, faults: Callable[[], Awaitable[float]]
) -> list[tuple[Case, str]]:
    """Play *cases* one after another; which were not as they must be, and why."""
    found = []
    before = await faults()
    for case in cases:
        wrong = await play(case, url, echo)
        if wrong:
            found.append((case, wrong))
    if await faults() > before:
        # Which of them it was; one after the other, since asking takes longer than playing.
        for case in cases:
            before = await faults()
            await play(case, url, echo)
            if await faults() > before:
                found.append((case, "fault: one was caught in the proxy; its log tells more"))
    return found


async def _ask(case: Case, url: str) -> Got:
    headers = list(case.headers)
    body = case.body
    if case.chunked:
        headers.append(("Transfer-Encoding", "chunked"))
        body = b"".join(map(wire_bytes.chunk, _halves(body))) + wire_bytes.LAST_CHUNK
    elif not body:
        headers.append(("Content-Length", "0"))
    async with RawRequest(url, case.path, body=body, headers=headers) as request:
        answer = await request.answer()
        while answer.status == 100:
            answer = await request.answer()
        received, is_whole = await _read(answer)
        return Got(answer.status, answer.headers, received, is_whole)


def _halves(body: bytes) -> Iterator[bytes]:
    for half in (body[: len(body) // 2], body[len(body) // 2 :]):
        if half:
            yield half


async def _read(answer: RawAnswer) -> tuple[bytes, bool]:
    received = b""
    try:
        async for piece in answer.chunks():
            received += piece
    except (asyncio.IncompleteReadError, ConnectionError):
        return received, False
    return received, True


def _judge(case: Case, got: Got, arrived: list[Recorded]) -> str:
    coding = ", ".join(value for name, value in case.headers if name.lower() == "content-encoding")
    if not arrived:
        if got.status in (400, 413) and coding:
            return ""
        return f"refused: {got.status} without asking the upstream: {got.body[:200]!r}"
    last = arrived[-1]
    return (
        _judge_answer(case, got, last)
        or _judge_headers(case, last)
        or _judge_body(case, got, last.body, coding)
    )


def _judge_answer(case: Case, got: Got, last: Recorded) -> str:
    expected = b"".join(case.stream) if case.stream else last.body
    if got.status == 400 and case.stream and b"exceed_context_size_error" in got.body:
        # An overflow that a 200 hid is told as one.
        return ""
    if case.breaks:
        if got.status == 502:
            return ""
        if got.is_whole:
            return "answer: a broken stream reached the client as a whole one"
        ours = got.body[len(expected) :]
        if not (got.body.startswith(expected) and (not ours or b"error" in ours)):
            return "answer: what came before a break was changed"
        return ""
    if got.status != 200:
        return f"answer: {got.status} instead of 200: {got.body[:200]!r}"
    if not got.is_whole:
        return "answer: it broke off"
    return "" if got.body == expected else f"answer: {len(got.body)} bytes instead of {len(expected)}"


def _judge_headers(case: Case, last: Recorded) -> str:
    sent = [(n.lower().encode(), v.strip(" ").encode("latin-1")) for n, v in case.headers]
    restated = ("host", "content-length", "transfer-encoding")
    came = [(n.lower(), v) for n, v in last.headers if n.lower() not in restated]
    # A view may come out as the very bytes of the client, and is sent as a view all the same.
    drops = [hd.OF_THE_BYTES, ()] if last.body == case.body else [hd.OF_THE_BYTES]
    for drop in drops:
        # The transport writes UTF-8: what was none is another character set's text in UTF-8 then.
        expected = [(n, v.encode().decode("latin-1")) for n, v in hd.for_upstream(sent, drop=drop)]
        if came == expected:
            return ""
    return f"headers: {came!r:.300} instead of {expected!r:.300}"


def _judge_body(case: Case, got: Got, body: bytes, coding: str) -> str:
    if body == case.body:
        return ""
    raw = decoded(case.body, coding, 1 << 26) if coding and is_known(coding) else case.body
    if body == raw:
        # Few servers undo a coding, so the proxy does.
        return ""
    outcome = got.header("x-compaction")
    if outcome not in ("compacted", "masked", "reused", "trimmed", "failed"):
        return f"body: changed although the outcome is {outcome!r}"
    name = _FIELDS[case.path]
    try:
        was, view = take_apart(raw, (name,)), take_apart(body, (name,))
    except NotUnderstood as error:
        return f"body: a view that cannot be read ({error})"
    if list(was.fields) != list(view.fields):
        return "body: other fields than the client sent"
    for field_name, item in was.fields.items():
        if field_name != name and view.fields[field_name].raw != item.raw:
            return f"body: the field {field_name!r} was changed"
    return _judge_messages(was.lists.get(name, ()), view.lists.get(name, ()))


def _judge_messages(was: tuple[Item, ...], view: tuple[Item, ...]) -> str:
    if not view:
        return "body: a view without messages"
    left = list(was)
    changed: list[Item] = []
    for item in view:
        at = next((i for i, old in enumerate(left) if old.raw == item.raw), None)
        if at is None:
            changed.append(item)
        else:
            left = left[at + 1 :]
    forms = [_form(item.value) for item in was]
    new = [item for item in changed if _form(item.value) not in forms]
    if len(new) > 1:
        return f"body: {len(new)} messages that the client did not send in this form: {new[0].raw[:200]}"
    if _form(view[-1].value) != forms[-1] and len(new) != 1:
        return "body: the last message is another one"
    return ""


def _form(value: Any, depth: int = 8) -> Any:
    """A message without its texts, which may be cut, down to a *depth* below which nothing is."""
    if not depth:
        return None
    if isinstance(value, dict):
        return {k: _form(v, depth - 1) for k, v in value.items()}
    if isinstance(value, list):
        return [_form(v, depth - 1) for v in value]
    return "" if isinstance(value, str) and len(value) > 60 else value
