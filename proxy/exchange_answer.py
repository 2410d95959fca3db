"""
Relay one answer to its client.

The bytes pass as they come; of what has passed enough is kept to read the usage from it.
"""

from proxy import headers as hd
from proxy.asked import Asked, Prepared
from proxy.client import Client
from proxy.dialects.base import Dialect, Waiting
from proxy.events import log_fault
from proxy.exchange_beginning import MOST_WHOLE_BYTES, Beginning, plain, read_beginning, read_rest, unread
from proxy.exchange_called import has_called
from proxy.exchange_refusal import refusal_behind_200
from proxy.exchange_services import Services
from proxy.exchange_waiting import Heartbeats
from proxy.notes_call import HEAD_BYTES
from proxy.relay import STREAM_HEADERS, answer_headers, is_stream
from proxy.upstream_response import Response

# Of the end of a stream, for its usage; a whole answer has it anywhere.
_TAIL_BYTES = 32 * 1024
# They describe a body that is not sent.
_OF_ANOTHER_BODY = hd.OF_THE_BYTES | {
    b"content-type",
    b"content-length",
    *(name for name, _ in STREAM_HEADERS),
}


class Answer:
    """
    The upstream's answer on its way to the client.

    Args:
        services: Where it is recorded.
        dialect: Reads it.
        client: Gets it.
        asked: What it answers; None where that was not understood.
        prepared: What was sent for it.
        response: Its head, and what is still to come.
        heart: What the client was sent while it waited; None for nothing.
    """

    def __init__(
        self,
        services: Services,
        dialect: Dialect,
        client: Client,
        *,
        asked: Asked | None,
        prepared: Prepared,
        response: Response,
        heart: Heartbeats | None,
    ) -> None:
        self._services = services
        self._dialect = dialect
        self._client = client
        self._asked = asked
        self._prepared = prepared
        self._response = response
        self._heart = heart

    async def beginning(self) -> Beginning:
        """As much as tells an overflow from an answer; comments in a stream go on at once."""
        if self._asked is None:
            # Nothing could be put right.
            return unread(self._response)

        async def comment(chunk: bytes) -> None:
            await self._begin()
            await self._client.chunk(chunk)

        stream = self._asked.parsed.conversation.stream
        return await read_beginning(self._response, comment if stream else None)

    async def relay(self, beginning: Beginning) -> None:
        """Pass it on, from its beginning to its end, and have its usage recorded."""
        client, response, asked = self._client, self._response, self._asked
        streams = is_stream(response)
        if client.started and not (response.status == 200 and streams):
            await self._say_in_stream(beginning)
            return
        refusal = None if client.started else refusal_behind_200(response, beginning)
        if refusal is not None:
            await client.whole(400, refusal, self._headers(but=_OF_ANOTHER_BODY))
            return
        await self._begin()
        keep = _TAIL_BYTES if streams else MOST_WHOLE_BYTES
        kept = list(beginning.held)
        size = sum(map(len, kept))
        head = b"".join(kept)[:HEAD_BYTES] if streams else b""
        waiting = self._heart.waiting if self._heart and self._heart.sent and streams else None
        try:
            for chunk in beginning.held:
                await self._pass_on(chunk, waiting)
            async for chunk in beginning.rest:
                if asked is not None and (streams or size <= keep):
                    kept.append(chunk)
                    size += len(chunk)
                    if streams and size > 2 * keep:
                        kept[:] = [b"".join(kept)[-keep:]]
                        size = len(kept[0])
                await self._pass_on(chunk, waiting)
            await client.end(waiting.end() if waiting else b"")
        finally:
            # Also where a client has all it wants, and leaves a stream that its server keeps open.
            if waiting and waiting.renamed:
                self._services.renamed.remember(self._client.credentials, *waiting.renamed)
            if asked is not None and response.status == 200 and (streams or size <= keep):
                try:
                    self._record(asked, head, b"".join(kept), streams=streams)
                except Exception:
                    log_fault("recording", self._services.metrics.faults.inc)

    async def _pass_on(self, chunk: bytes, waiting: Waiting | None) -> None:
        if waiting is not None:
            chunk = waiting.relay(chunk)
        if chunk:
            await self._client.chunk(chunk)

    def _record(self, asked: Asked, head: bytes, tail: bytes, *, streams: bool) -> None:
        if streams and self._response.header("content-encoding"):
            return
        tail = plain(self._response, tail)
        usage = self._dialect.read_usage(head, tail, is_stream=streams)
        if usage is not None:
            self._services.compactor.record(self._prepared, usage)
        self._services.compactor.answered(
            asked, self._prepared, usage, lambda: has_called(self._dialect, tail, is_stream=streams)
        )

    async def _begin(self) -> None:
        if not self._client.started:
            await self._client.head(self._response.status, self._headers())

    async def _say_in_stream(self, beginning: Beginning) -> None:
        """An answer that is no stream, to a client that already has a stream's head."""
        response = self._response
        whole = await read_rest(beginning)
        text = plain(response, b"".join(whole.held)).decode("utf-8", "replace").strip()
        code = "upstream_error"
        message = f"the upstream answered {response.status}: {text[:2000]}"
        await self._client.end(self._dialect.error_event(response.status, code, message))

    def _headers(self, but: frozenset[bytes] = frozenset()) -> list[tuple[bytes, bytes]]:
        """Its headers, *but* those that do not hold for what is sent of it, and our own."""
        told = said_of(self._prepared)
        # An upstream that is a proxy like this one says the same of itself.
        left_out = but | {name for name, _ in told}
        kept = [(name, value) for name, value in answer_headers(self._response) if name not in left_out]
        return [*kept, *told]


def said_of(prepared: Prepared) -> list[tuple[bytes, bytes]]:
    """The response headers that tell what happened to the conversation."""
    told = [(b"x-compaction", prepared.outcome.value.encode())]
    if prepared.budget:
        told.append((b"x-context-tokens", f"{prepared.tokens}/{prepared.budget}".encode()))
    return told
