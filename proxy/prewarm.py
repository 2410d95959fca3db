"""
Have the server process a prompt before it is needed.

After a compaction everything behind the brief is new to the server. While the agent runs
its tools there is time for that: the view as it will be is sent for one token. Only
llama.cpp is known to keep a prompt for the next request so that this pays.
"""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from proxy.config import ContextConfig
from proxy.core.ahead import expect_prompt
from proxy.core.rewrite import Rewrite
from proxy.counting import Counts
from proxy.discovery import ServerKind
from proxy.encodings import decoded
from proxy.errors import BadEncoding, BodyTooLarge, NotUnderstood, UpstreamStalled, UpstreamUnreachable
from proxy.looking import Look, Looking, Terms
from proxy.metrics import Metrics
from proxy.metrics_ahead import Prewarmed
from proxy.upstream import Upstream

_MOST_ANSWER_BYTES = 8 * 1024 * 1024
_OK = 200


class Prewarm:
    """
    Sends prompts ahead. For one event loop.

    Args:
        config: The table `[context]`.
        upstream: Where they go.
        looking: Makes the view.
        counts: Told how long it is.
        metrics: Counts them.
    """

    def __init__(
        self,
        config: ContextConfig,
        *,
        upstream: Upstream,
        looking: Looking,
        counts: Counts,
        metrics: Metrics,
    ) -> None:
        self._config = config
        self._upstream = upstream
        self._looking = looking
        self._counts = counts
        self._metrics = metrics

    def is_due(self, terms: Terms, look: Look, completion: int) -> bool:
        """
        Whether the next request is expected over `compact_at`.

        One below it goes on with the view as it is, and finds its own prompt pushed out of
        the server's only slot.
        """
        if not self._config.prewarm or terms.found.kind is not ServerKind.LLAMA_CPP:
            return False
        return terms.budget.is_over(expect_prompt(look.conversation, look.measured.sizes, completion))

    async def run(
        self,
        terms: Terms,
        look: Look,
        rewrite: Rewrite,
        gate: Callable[[], AbstractAsyncContextManager[None]],
    ) -> None:
        """Send what was answered as *look*, shown as *rewrite* has it; never raises but for cancellation."""
        asked, model = terms.asked, look.conversation.model
        after = await self._looking.look(asked, look.conversation, rewrite, terms.found, terms.budget)
        try:
            body = asked.dialect.render_prewarm(asked.parsed, after.view)
        except NotUnderstood:
            return
        counted = self._metrics.prewarms
        name = self._metrics.model(model)
        try:
            async with gate():
                try:
                    tokens = await self._send(terms, body, name)
                except asyncio.CancelledError:
                    counted.labels(name, Prewarmed.ABORTED.value).inc()
                    raise
        except TimeoutError:
            # There was no place at the upstream.
            return
        counted.labels(name, (Prewarmed.DONE if tokens is not None else Prewarmed.FAILED).value).inc()
        if tokens:
            self._counts.remember(model, after.measured.key, tokens)

    async def _send(self, terms: Terms, body: bytes, model: str) -> int | None:
        """Tokens of the prompt, 0 where the upstream does not say; None where it was refused."""
        asked = terms.asked
        try:
            response = await self._upstream.send(
                "POST",
                asked.url,
                headers=[*asked.headers, ("content-type", "application/json")],
                body=body,
                idle_timeout_seconds=self._config.notes_idle_timeout_seconds,
            )
            try:
                raw = await response.read(_MOST_ANSWER_BYTES)
            finally:
                await response.close()
            if response.status != _OK:
                return None
            answer = decoded(raw, response.header("content-encoding"), _MOST_ANSWER_BYTES)
        except (UpstreamUnreachable, UpstreamStalled, BadEncoding, BodyTooLarge):
            return None
        usage = asked.dialect.read_usage(b"", answer, is_stream=False)
        if usage is None:
            return 0
        self._metrics.prewarmed(model, usage)
        return usage.prompt
