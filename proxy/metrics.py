"""
Every metric of the proxy, on a registry that is passed in.

Label values come from enums, from what the proxy itself makes up, and from `model`, which
bounds the names that clients send. `docs/metrics.md` says what to make of each.
"""

import time
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics

from proxy import __version__
from proxy.asked import Trigger
from proxy.core.notes import Flag, Reason
from proxy.core.trim import What
from proxy.dialects.base import Usage
from proxy.errors import TOLD
from proxy.metrics_ahead import Fate, Prewarmed
from proxy.metrics_conversations import Cause, Conversations

# An attacker, or a client with a typo in a loop, must not be able to fill the registry.
MOST_MODELS = 50
# The name of what comes after them; a request that names no model is `default`.
OTHER_MODEL, NO_MODEL = "other", "default"
_LONGEST_NAME = 100

_TOKENS = (256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072, 262144, 524288, 1048576)
_SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25, 1.5, 2.0)
_SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320)
_SMALL_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)
# Fine at the top: a notes request whose prefix is kept lies above 0.9.
_CACHED = (0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 1.0)
_ERRORS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0)

_MODEL = ("model",)
# What servers and the proxy answer; others begin with their first.
_STATUSES = ("200", "400", "401", "404", "413", "429", "500", "502", "503", "504", "client_gone")

T = TypeVar("T", Counter, Histogram)


class State(StrEnum):
    """What became of prompt tokens; unknown where the upstream does not report it."""

    CACHED = "cached"
    PROCESSED = "processed"
    UNKNOWN = "unknown"


class Overflowed(StrEnum):
    """What became of a request that the upstream called too long."""

    RECOVERED = "recovered"
    RELAYED = "relayed"


class Metrics:
    """
    The metrics, as attributes. For one event loop.

    Args:
        registry: Where they are registered; one registry takes one `Metrics`.
        now: Seconds, monotonic, for how long a conversation counts as under way.
    """

    def __init__(  # noqa: PLR0915 (a list is as long as it is)
        self, registry: CollectorRegistry, now: Callable[[], float] = time.monotonic
    ) -> None:
        # They would double the number of series, and nothing here asks for them.
        disable_created_metrics()  # type: ignore[no-untyped-call]  # it has no annotations
        self.registry = registry
        self.conversations = Conversations(now)
        self._models: set[str] = set()
        self._by_model: list[Counter | Histogram] = []

        def counter(name: str, text: str, labels: Sequence[str] = ()) -> Counter:
            return self._kept(Counter(name, text, labels, registry=registry), labels)

        def gauge(name: str, text: str, labels: Sequence[str] = ()) -> Gauge:
            return Gauge(name, text, labels, registry=registry)

        def histogram(
            name: str, text: str, buckets: Sequence[float], labels: Sequence[str] = _MODEL
        ) -> Histogram:
            return self._kept(Histogram(name, text, labels, buckets=buckets, registry=registry), labels)

        # The proxy itself.
        self.build_info = gauge("proxy_build_info", "Always 1; its label is the version.", ("version",))
        self.build_info.labels(__version__).set(1)
        self.requests = counter(
            "proxy_requests_total",
            "Requests answered; a client that left before the answer has the status client_gone.",
            ("endpoint", "dialect", "status"),
        )
        self.refused = counter(
            "proxy_refused_total", "Errors that the proxy itself gave for an answer.", ("code",)
        )
        self.untouched = counter(
            "proxy_untouched_requests_total",
            "Requests to a compacted endpoint that went through unmeasured, and why.",
            ("dialect", "reason"),
        )
        # As in `_begin`; the other errors never reach a client.
        for error in TOLD:
            self.refused.labels(error.code)
        self.in_flight = gauge("proxy_in_flight_requests", "Requests being answered.")
        self.waiting = gauge("proxy_waiting_requests", "Requests that wait in line for their turn.")
        self.overhead = histogram(
            "proxy_overhead_seconds",
            "The proxy's own work before a request went upstream, questions to the upstream included, "
            "notes not.",
            _SMALL_SECONDS,
            (),
        )
        self.reloads = counter(
            "proxy_config_reloads_total", "Times the configuration was read again.", ("outcome",)
        )
        self.keepalives = counter(
            "proxy_keepalives_total", "Heartbeats sent to clients that waited for notes."
        )

        # What happens to conversations.
        self.under_way = gauge("context_conversations", "Conversations with a request in the last hour.")
        self.under_way.set_function(self.conversations.count)
        self.budget_share = histogram(
            "context_budget_share_ratio", "Prompt of a request as it was sent against its budget.", _SHARES
        )
        self.compacted = counter(
            "context_compacted_total",
            "Compactions made, by what set them off and whether earlier notes were folded in.",
            ("model", "trigger", "folded"),
        )
        self.masked = counter(
            "context_masked_total",
            "Compactions without notes: old results cut to a line each, by what set them off.",
            ("model", "trigger"),
        )
        self.tokens_before = histogram(
            "context_compaction_before_tokens", "Prompt before a compaction, with notes or without.", _TOKENS
        )
        self.tokens_after = histogram(
            "context_compaction_after_tokens", "Prompt after a compaction, with notes or without.", _TOKENS
        )
        self.trimmed = counter(
            "context_trimmed_total",
            "Kinds of text cut by trims; one trim counts once for each kind.",
            ("model", "what"),
        )
        self.trim_before = histogram("context_trim_before_tokens", "Prompt before a trim.", _TOKENS)
        self.trim_after = histogram("context_trim_after_tokens", "Prompt after a trim.", _TOKENS)
        self.failed = counter(
            "context_compaction_failed_total", "Notes that came to nothing.", ("model", "reason")
        )
        self.faults = counter(
            "context_faults_total", "Faults of the proxy itself; the requests went on all the same."
        )
        self.over_budget = counter(
            "context_over_budget_total", "Requests over the budget that nothing could shorten.", _MODEL
        )
        self.prefix_rewrites = counter(
            "context_prefix_rewrites_total",
            "Prompts that do not extend the one before them in their conversation.",
            ("model", "cause"),
        )
        self.overflows = counter(
            "context_overflow_answers_total",
            "Answers that said the prompt is too long, and what became of the request.",
            ("model", "outcome"),
        )
        self.runs_saved = counter(
            "context_runs_saved_total",
            "Conversations that outgrew the window, or were told so, and went on.",
            _MODEL,
        )

        # What notes cost, and how they turn out.
        self.notes_seconds = histogram("context_notes_seconds", "Time for a compaction's notes.", _SECONDS)
        self.notes_tokens = counter(
            "context_notes_tokens_total", "Tokens of notes that went into blocks.", _MODEL
        )
        self.notes_prompt_tokens = counter(
            "context_notes_prompt_tokens_total", "Prompt tokens of notes requests.", ("model", "state")
        )
        self.notes_completion_tokens = counter(
            "context_notes_completion_tokens_total",
            "Completion tokens of notes requests, reasoning and unused notes included.",
            _MODEL,
        )
        self.notes_cached = histogram(
            "context_notes_cached_ratio",
            "Share of a notes request's prompt that the upstream had cached.",
            _CACHED,
        )
        self.notes_flagged = counter(
            "context_notes_flagged_total",
            "Notes used although something is not as it should be.",
            ("model", "flag"),
        )
        self.notes_unsupported = counter(
            "notes_unsupported_total", "Claims in notes that the replaced turns do not support.", _MODEL
        )
        self.notes_ahead = counter(
            "context_notes_ahead_total",
            "Notes begun ahead of need, by what became of them.",
            ("model", "outcome"),
        )
        self.prewarms = counter(
            "context_prewarms_total", "Prompts processed ahead of need.", ("model", "outcome")
        )
        self.prewarm_tokens = counter(
            "context_prewarm_prompt_tokens_total", "Prompt tokens of prewarms.", ("model", "state")
        )

        # The upstream, as the proxy sees it.
        self.upstream_up = gauge(
            "upstream_up", "Whether the upstream answered when last asked; asked by a scrape."
        )
        self.circuit_open = gauge(
            "upstream_circuit_open",
            "1 while requests are answered with 503 at once, since no connection could be had lately.",
        )
        self.window = gauge("upstream_window_tokens", "Window in force.", _MODEL)
        self.first_byte = histogram(
            "upstream_first_byte_seconds", "From sending a request to the head of its answer.", _SECONDS
        )
        self.prompt_tokens = counter(
            "upstream_prompt_tokens_total",
            "Prompt tokens as the upstream reports them, notes requests not included.",
            ("model", "state"),
        )
        self.completion_tokens = counter(
            "upstream_completion_tokens_total",
            "Completion tokens as the upstream reports them, notes requests not included.",
            _MODEL,
        )
        self.estimate_error = histogram(
            "token_estimate_error_ratio",
            "By what share the measured prompt differed from the upstream's count.",
            _ERRORS,
        )

        # The store.
        self.store_up = gauge("store_up", "Whether the store could be used when last asked.")
        self.store_entries = gauge("store_entries", "Entries in the store.")
        self.store_bytes = gauge("store_size_bytes", "What the entries take.")
        self.store_errors = counter("store_errors_total", "Faults of the store; requests went on without it.")

    def model(self, name: str) -> str:
        """A label value for a model's name; beyond the first 50 names all are `other`."""
        # Clients choose it: half a surrogate pair would break every scrape from then on.
        name = name[:_LONGEST_NAME] or NO_MODEL
        if not name.isprintable():
            name = "".join(c if c.isprintable() else "?" for c in name)
        if name not in self._models and len(self._models) >= MOST_MODELS:
            name = OTHER_MODEL
        if name not in self._models:
            self._models.add(name)
            self._begin(name)
        return name

    def expect(self, endpoint: str, dialect: str) -> None:
        """Begin the counters of an endpoint at 0, for the statuses that are to be expected."""
        for status in _STATUSES:
            self.requests.labels(endpoint, dialect, status)

    def answered(self, model: str, usage: Usage) -> None:
        """What the upstream reports of an answer that a client got."""
        _count(self.prompt_tokens, model, usage)
        self.completion_tokens.labels(model).inc(usage.completion)

    def noted(self, model: str, usage: Usage) -> None:
        """What the upstream reports of a notes request, whatever came of it."""
        _count(self.notes_prompt_tokens, model, usage)
        self.notes_completion_tokens.labels(model).inc(usage.completion)
        if usage.cached is not None:
            self.notes_cached.labels(model).observe(min(1.0, usage.cached / usage.prompt))

    def prewarmed(self, model: str, usage: Usage) -> None:
        """What the upstream reports of a prewarm."""
        _count(self.prewarm_tokens, model, usage)

    def _kept(self, metric: T, labels: Sequence[str]) -> T:
        if labels == _MODEL:
            self._by_model.append(metric)
        return metric

    def _begin(self, model: str) -> None:
        """Series at 0, so that the first event of a kind is an increase and not a new series."""
        for trigger in Trigger:
            for folded in ("false", "true"):
                self.compacted.labels(model, trigger.value, folded)
            self.masked.labels(model, trigger.value)
        for reason in Reason:
            self.failed.labels(model, reason.value)
        for what in What:
            self.trimmed.labels(model, what.value)
        for flag in Flag:
            self.notes_flagged.labels(model, flag.value)
        for state in State:
            self.prompt_tokens.labels(model, state.value)
            self.notes_prompt_tokens.labels(model, state.value)
            self.prewarm_tokens.labels(model, state.value)
        for fate in Fate:
            self.notes_ahead.labels(model, fate.value)
        for prewarmed in Prewarmed:
            self.prewarms.labels(model, prewarmed.value)
        for outcome in Overflowed:
            self.overflows.labels(model, outcome.value)
        for cause in Cause:
            self.prefix_rewrites.labels(model, cause.value)
        for metric in self._by_model:
            metric.labels(model)


def _count(tokens: Counter, model: str, usage: Usage) -> None:
    if usage.cached is None:
        tokens.labels(model, State.UNKNOWN.value).inc(usage.prompt)
        return
    cached = min(usage.cached, usage.prompt)
    tokens.labels(model, State.CACHED.value).inc(cached)
    tokens.labels(model, State.PROCESSED.value).inc(usage.prompt - cached)
