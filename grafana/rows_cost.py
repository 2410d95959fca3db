"""
The dashboard's middle rows: does the cache hold, and what does it cost?
"""

from grafana.panels import (
    CACHED,
    HERE,
    NOT_CACHED,
    PROCESSED,
    RARE,
    TOLD,
    Kind,
    Panel,
    Query,
    Row,
    mean,
    over,
    rate,
    seen,
    spread,
)

_TOKENS, _TOKENS_A_SECOND, _EVENTS = "si:tok", "si:tok/s", "short"

_ALL_PROMPT = rate("upstream_prompt_tokens_total", TOLD, "model")

CACHE = Row(
    "Cache",
    (
        Panel(
            title="Prompt tokens",
            text="What the upstream had cached against what it processed again. Processed tokens are "
            "the time that an agent waits: they should be the small part, with a peak at each "
            "compaction.",
            unit=_TOKENS_A_SECOND,
            queries=(Query(expr=rate("upstream_prompt_tokens_total", by="state"), legend="{{state}}"),),
            kind=Kind.STACKED,
        ),
        Panel(
            title="Cached share",
            text="Share of prompt tokens that came from the cache. Falls for one request at a "
            "compaction. Where it stays low, see Prefix rewrites, and llama.cpp's `-sps` and "
            "`-np`.",
            unit="percentunit",
            queries=(
                Query(
                    expr=f"{rate('upstream_prompt_tokens_total', CACHED, 'model')} / {_ALL_PROMPT}",
                    legend="{{model}}",
                ),
            ),
        ),
        Panel(
            title="Cached share of notes requests",
            text="Mean over an hour. Near 100 %: a notes request costs nearly nothing but its own "
            "tokens. Low: another request took the slot, or the model's template drops reasoning.",
            unit="percentunit",
            queries=(Query(expr=mean("context_notes_cached_ratio", RARE), legend="mean"),),
        ),
        Panel(
            title="Prefix rewrites",
            text="Prompts that do not extend the one before them. Compactions and trims are the "
            "proxy's price. Many by the client mean a date in the system prompt, tools that "
            "change their order, or an agent that edits its history: its cache is lost each time.",
            unit=_EVENTS,
            queries=(
                Query(
                    expr=seen("context_prefix_rewrites_total", "$__rate_interval", by="cause"),
                    legend="{{cause}}",
                ),
            ),
            kind=Kind.BARS,
            width=12,
        ),
        Panel(
            title="Processed tokens a request",
            text="Mean of prompt tokens that were not cached. What a turn adds is normal; a whole "
            "prompt on every request means that the cache does not hold.",
            unit=_TOKENS,
            queries=(
                Query(
                    expr=f"{rate('upstream_prompt_tokens_total', PROCESSED, 'model')} / "
                    f"{rate('context_budget_share_ratio_count', by='model')}",
                    legend="{{model}}",
                ),
            ),
            width=12,
        ),
    ),
)

COST = Row(
    "Latency and cost",
    (
        Panel(
            title="Upstream's first byte",
            text="From sending a request to the head of its answer: the queue of the upstream, and the "
            "prompt.",
            unit="s",
            queries=spread("upstream_first_byte_seconds"),
        ),
        Panel(
            title="The proxy's own work",
            text="Before a request goes upstream, without notes: counting, looking up, splicing. Over "
            "0.1 s: very long histories, a slow disk, or a machine without a core to spare.",
            unit="s",
            queries=spread("proxy_overhead_seconds", labels=HERE),
        ),
        Panel(
            title="Time for notes",
            text="What an agent waits for a compaction, over an hour. Lower `notes_max_tokens` for less. "
            'In mode "ahead" its tools run meanwhile.',
            unit="s",
            queries=spread("context_notes_seconds", RARE),
        ),
        Panel(
            title="Notes ahead of need",
            text='Mode "ahead": notes begun while tools ran, by what became of them. Aborted and unused '
            "ones are wasted: the tools were quicker, or no request came that needed them.",
            unit=_EVENTS,
            queries=(
                Query(
                    expr=seen("context_notes_ahead_total", "$__rate_interval", by="outcome"),
                    legend="{{outcome}}",
                ),
            ),
            kind=Kind.BARS,
            width=12,
        ),
        Panel(
            title="Prompts processed ahead of need",
            text='Mode "ahead" on llama.cpp: prompts after a compaction that were processed while tools '
            "ran, and the tokens that the first request then had not to wait for.",
            unit=_EVENTS,
            queries=(
                Query(
                    expr=seen("context_prewarms_total", "$__rate_interval", by="outcome"),
                    legend="{{outcome}}",
                ),
                Query(
                    expr=seen("context_prewarm_prompt_tokens_total", "$__rate_interval", by="state"),
                    legend="tokens, {{state}}",
                ),
            ),
            kind=Kind.BARS,
            width=12,
        ),
        Panel(
            title="What notes cost",
            text="Share of all tokens that the upstream had to work on (prompt tokens that were not "
            "cached, and completion tokens) that went into notes.",
            unit="percentunit",
            queries=(
                Query(
                    expr=f"({rate('context_notes_prompt_tokens_total', NOT_CACHED)} + "
                    f"{rate('context_notes_completion_tokens_total')}) / "
                    f"({rate('context_notes_prompt_tokens_total', NOT_CACHED)} + "
                    f"{rate('context_notes_completion_tokens_total')} + "
                    f"{rate('upstream_prompt_tokens_total', NOT_CACHED)} + "
                    f"{rate('upstream_completion_tokens_total')})",
                    legend="notes",
                ),
            ),
        ),
        Panel(
            title="Tokens written",
            text="Completion tokens for agents and for notes (reasoning and unused notes included), "
            "and the notes that went into blocks.",
            unit=_TOKENS_A_SECOND,
            queries=(
                Query(expr=rate("upstream_completion_tokens_total"), legend="answers"),
                Query(expr=rate("context_notes_completion_tokens_total"), legend="notes, as written"),
                Query(expr=rate("context_notes_tokens_total"), legend="notes, as used"),
            ),
        ),
        Panel(
            title="Taken out of prompts",
            text="Tokens that compactions and trims took out of prompts, over an hour. Every later "
            "request of the conversation is shorter by as much.",
            unit=_TOKENS,
            queries=(
                Query(
                    expr=f"{over('context_compaction_before_tokens_sum', RARE)} - "
                    f"{over('context_compaction_after_tokens_sum', RARE)}",
                    legend="compactions",
                ),
                Query(
                    expr=f"{over('context_trim_before_tokens_sum', RARE)} - "
                    f"{over('context_trim_after_tokens_sum', RARE)}",
                    legend="trims",
                ),
            ),
        ),
        Panel(
            title="In flight",
            text="Requests being answered. More than the upstream has slots: the others wait in its queue. "
            "Waiting: at `limits.requests_at_once` they wait in the proxy's own.",
            unit=_EVENTS,
            queries=(
                Query(expr=f"sum by (instance) (proxy_in_flight_requests{{{HERE}}})", legend="{{instance}}"),
                Query(
                    expr=f"sum by (instance) (proxy_waiting_requests{{{HERE}}})",
                    legend="{{instance}}, waiting",
                ),
            ),
            width=12,
        ),
        Panel(
            title="Heartbeats",
            text="Signs of life sent to streaming clients that waited for notes. Many a compaction: "
            "notes are slow.",
            unit=_EVENTS,
            queries=(
                Query(expr=over("proxy_keepalives_total", "$__rate_interval", HERE), legend="heartbeats"),
            ),
            kind=Kind.BARS,
            width=12,
        ),
    ),
)
