"""
What does the overhead benchmark compare the proxy with? The model server behind all of them,
and a bare relay.

    python -m benchmarks.overhead_servers upstream PORT
    python -m benchmarks.overhead_servers relay PORT UPSTREAM

The upstream answers from bytes made beforehand, so that it costs next to nothing. The relay is what
one would write without a thought to conversations: starlette and httpx with the transport that
the proxy's client comes from, served by uvicorn's quickest settings.
"""

import asyncio
import json
import re
import sys
from collections.abc import AsyncIterator
from typing import cast

import aiohttp
import httpx
import uvicorn
from httpx_aiohttp import AiohttpTransport
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

CHUNKS = 200
# In the notes instruction of the proxy's config, so that the upstream knows what to answer.
NOTES_MARKER = b"BENCHMARK-NOTES"
# Windows by model: the same history is far below the first and far above the second.
WINDOWS = {
    "roomy": 1_000_000,
    "narrow": 100_000,
    "endless": 10_000_000,
    "large": 262_144,
    "small": 32_768,
    "tight": 16_384,
}

_CONTENT_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_ANSWER = "The function reads the file, keeps what it needs, and returns it without a copy. " * 12
_NOTES = (
    "Goal: make the parser keep its input. Done so far: the modules were read one after the other, the "
    "options were listed, and the tests of the parser were run twice; both runs passed. Decided: the "
    "reader stays as it is, and the writer gets a buffer of its own. Open: the command line still needs a "
    "flag for it, and the documentation does not say what an empty file gives. Next: read the module that "
    "was named last, and write the flag. "
)
_EVENT = 'data: {"id":"c1","object":"chat.completion.chunk","created":1,"model":"m","choices":[%s]}\n\n'


def _head(kind: str, framing: str, status: str = "200 OK") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\n{framing}\r\n\r\n".encode()


def _whole(body: bytes, status: str = "200 OK") -> bytes:
    return _head("application/json", f"Content-Length: {len(body)}", status) + body


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def _usage(tokens: int) -> str:
    return f'"usage":{{"prompt_tokens":{tokens},"completion_tokens":200,"total_tokens":{tokens + 200}}}'


def _answer(tokens: int) -> bytes:
    choice = '{"index":0,"message":{"role":"assistant","content":%s},"finish_reason":"stop"}'
    said = choice % json.dumps(_ANSWER)
    return (
        f'{{"id":"c1","object":"chat.completion","model":"m","choices":[{said}],{_usage(tokens)}}}'.encode()
    )


def _delta(text: str) -> bytes:
    return (_EVENT % f'{{"index":0,"delta":{{"content":{json.dumps(text)}}}}}').encode()


def _end(tokens: int) -> bytes:
    finish = _EVENT % '{"index":0,"delta":{},"finish_reason":"stop"}'
    return f'{finish}data: {{"id":"c1","choices":[],{_usage(tokens)}}}\n\ndata: [DONE]\n\n'.encode()


_STREAM_HEAD = _head("text/event-stream", "Transfer-Encoding: chunked")
_DELTAS = [_chunk(_delta(f" word number {i} of the answer")) for i in range(CHUNKS)]


class Upstream(asyncio.Protocol):
    """One connection to the scripted model server; prompts have a token for every four bytes."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._wanted = 0
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Part of asyncio's protocol."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Part of asyncio's protocol; answers a request once it is whole."""
        self._held += data
        if not self._wanted:
            end = self._held.find(b"\r\n\r\n")
            if end < 0:
                return
            said = _CONTENT_LENGTH.search(self._held, 0, end)
            self._wanted = end + 4 + (int(said[1]) if said else 0)
        if len(self._held) >= self._wanted:
            request, self._held, self._wanted = bytes(self._held), bytearray(), 0
            self._answer(request)

    def _answer(self, request: bytes) -> None:
        if request.startswith(b"GET /v1/models"):
            models = [{"id": model, "max_model_len": window} for model, window in WINDOWS.items()]
            self._transport.write(_whole(json.dumps({"object": "list", "data": models}).encode()))
        elif not request.startswith(b"POST /v1/chat/completions"):
            self._transport.write(_whole(b'{"error":{"message":"not here"}}', "404 Not Found"))
        elif NOTES_MARKER in request[-16384:]:
            events = _delta(_NOTES * 4) + _end(len(request) // 4)
            self._transport.write(_STREAM_HEAD + _chunk(events) + b"0\r\n\r\n")
        elif b'"stream":true' in request[-512:]:
            self._transport.write(_STREAM_HEAD)
            self._next(0, len(request) // 4)
        else:
            self._transport.write(_whole(_answer(len(request) // 4)))

    def _next(self, i: int, tokens: int) -> None:
        """Each piece by itself, as a model writes; the loop does other things in between."""
        if i == CHUNKS:
            self._transport.write(_chunk(_end(tokens)) + b"0\r\n\r\n")
            return
        self._transport.write(_DELTAS[i])
        asyncio.get_running_loop().call_soon(self._next, i + 1, tokens)


def relay_app(upstream: str) -> Starlette:
    """The bare relay before *upstream*."""

    def session() -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=1000), cookie_jar=aiohttp.DummyCookieJar()
        )

    client = httpx.AsyncClient(transport=AiohttpTransport(client=session), timeout=600, trust_env=False)
    drop = {"host", "content-length", "connection", "transfer-encoding", "keep-alive"}

    async def relay(request: Request) -> StreamingResponse:
        headers = [(k, v) for k, v in request.headers.items() if k not in drop]
        sent = client.build_request(
            request.method, upstream + request.url.path, headers=headers, content=await request.body()
        )
        answer = await client.send(sent, stream=True)

        async def pieces() -> AsyncIterator[bytes]:
            try:
                async for piece in answer.aiter_raw():
                    yield piece
            finally:
                await answer.aclose()

        kept = {k: v for k, v in answer.headers.items() if k not in drop or k == "content-length"}
        return StreamingResponse(pieces(), status_code=answer.status_code, headers=kept)

    return Starlette(routes=[Route("/{path:path}", relay, methods=["GET", "POST"])])


async def _serve_upstream(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Upstream, "127.0.0.1", port, backlog=2048)
    await server.serve_forever()


def main() -> None:
    """Serve until killed."""
    port = int(sys.argv[2])
    if sys.argv[1] == "upstream":
        with asyncio.Runner(loop_factory=quick_loop) as runner:
            runner.run(_serve_upstream(port))
    else:
        app = relay_app(sys.argv[3])
        uvicorn.run(
            app, port=port, http="httptools", loop="auto", access_log=False, log_level="critical",
            timeout_keep_alive=300,
        )  # fmt: skip


def quick_loop() -> asyncio.AbstractEventLoop:
    """uvloop's, where it is installed; uvicorn's own "auto" decides the same way."""
    try:
        import uvloop  # noqa: PLC0415 (not everywhere)
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


if __name__ == "__main__":
    main()
