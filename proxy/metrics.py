"""
Every metric of the proxy, on a registry that is passed in.

Label values come from enums and from `models`, which bounds the names that clients send.
"""

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

# An attacker, or a client with a typo in a loop, must not be able to fill the registry.
MOST_MODELS = 50
OTHER_MODEL = "other"

_TOKENS = (256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072, 262144, 524288, 1048576)
_SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25, 1.5, 2.0)
_SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320)
_SMALL_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)


class Metrics:
    """
    The metrics, as attributes.

    Args:
        registry: Where they are registered; one registry takes one `Metrics`.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self._models: set[str] = set()

        def counter(name: str, text: str, labels: Sequence[str] = ()) -> Counter:
            return Counter(name, text, labels, registry=registry)

        def histogram(
            name: str, text: str, buckets: Sequence[float], labels: Sequence[str] = ()
        ) -> Histogram:
            return Histogram(name, text, labels, buckets=buckets, registry=registry)

        self.requests = counter(
            "proxy_requests_total", "Requests answered.", ("endpoint", "dialect", "status")
        )
        self.in_flight = Gauge("proxy_in_flight_requests", "Requests being answered.", registry=registry)
        self.compacted = counter(
            "context_compacted_total",
            "Compactions made, by what set them off and whether earlier notes were folded in.",
            ("model", "trigger", "folded"),
        )
        self.trimmed = counter("context_trimmed_total", "Trims made, by what was cut.", ("model", "what"))
        self.failed = counter(
            "context_compaction_failed_total", "Notes that came to nothing.", ("model", "reason")
        )
        self.tokens_before = histogram(
            "context_compaction_before_tokens", "Prompt before a compaction.", _TOKENS
        )
        self.tokens_after = histogram(
            "context_compaction_after_tokens", "Prompt after a compaction.", _TOKENS
        )
        self.trim_before = histogram("context_trim_before_tokens", "Prompt before a trim.", _TOKENS)
        self.trim_after = histogram("context_trim_after_tokens", "Prompt after a trim.", _TOKENS)
        self.budget_share = histogram(
            "context_budget_share_ratio", "Prompt of a request against its budget.", _SHARES
        )
        self.notes_seconds = histogram("context_notes_seconds", "Time for a set of notes.", _SECONDS)
        self.notes_tokens = counter("context_notes_tokens_total", "Tokens of notes written.", ("model",))
        self.notes_cached = histogram(
            "context_notes_cached_ratio",
            "Share of a notes request's prompt that the upstream had cached.",
            (0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 1.0),
        )
        self.notes_flagged = counter(
            "context_notes_flagged_total", "Notes used although something is not as it should be.", ("flag",)
        )
        self.notes_unsupported = counter(
            "notes_unsupported_total", "Claims in notes that the replaced turns do not support."
        )
        self.prompt_tokens = counter(
            "upstream_prompt_tokens_total",
            "Prompt tokens as the upstream reports them.",
            ("model", "state"),
        )
        self.completion_tokens = counter(
            "upstream_completion_tokens_total", "Completion tokens as the upstream reports them.", ("model",)
        )
        self.overflows = counter(
            "context_overflow_answers_total",
            "Answers that said the prompt is too long, and whether the request was saved.",
            ("outcome",),
        )
        self.keepalives = counter(
            "proxy_keepalives_total", "Heartbeats sent to clients that waited for notes."
        )
        self.store_errors = counter("store_errors_total", "Faults of the store; requests went on without it.")
        self.first_byte = histogram(
            "upstream_first_byte_seconds", "From sending a request to the head of its answer.", _SECONDS
        )
        self.overhead = histogram(
            "proxy_overhead_seconds",
            "The proxy's own work before a request went upstream, without notes.",
            _SMALL_SECONDS,
        )
        self.estimate_error = histogram(
            "token_estimate_error_ratio",
            "By what share the measured prompt differed from the upstream's count.",
            (0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0),
        )
        self.window = Gauge("upstream_window_tokens", "Window in force.", ("model",), registry=registry)

    def model(self, name: str) -> str:
        """A label value for a model's name; beyond the first 50 names all are `other`."""
        name = name[:100] or "default"
        if name in self._models:
            return name
        if len(self._models) >= MOST_MODELS:
            return OTHER_MODEL
        self._models.add(name)
        return name
