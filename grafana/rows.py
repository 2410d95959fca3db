"""
The dashboard's first rows: is it healthy, and how full are conversations?
"""

from grafana.panels import (
    HERE,
    MODEL,
    RARE,
    Kind,
    Panel,
    Query,
    Row,
    mean,
    over,
    seen,
)

_UP = (("0", "down"), ("1", "up"))
_TOKENS, _EVENTS = "si:tok", "short"

_WELL = f'{HERE}, status=~"2.."'

OVERVIEW = Row(
    "Overview",
    (
        Panel(
            title="Upstream",
            text="Whether the model server answered the last scrape. Down: start it, or mend `upstream.url`.",
            unit="short",
            # An open circuit is a server that cannot be connected to, whenever it was last asked.
            queries=(Query(expr=f"min(upstream_up{{{HERE}}} * (1 - upstream_circuit_open{{{HERE}}}))"),),
            kind=Kind.STAT,
            width=3,
            limits=(1,),
            low_is_bad=True,
            words=_UP,
        ),
        Panel(
            title="Store",
            text="Whether compactions can be kept. Down: they live in memory until the disk is back, "
            "and a restart makes them anew.",
            unit="short",
            queries=(Query(expr=f"min(store_up{{{HERE}}})"),),
            kind=Kind.STAT,
            width=3,
            limits=(1,),
            low_is_bad=True,
            words=_UP,
        ),
        Panel(
            title="Runs saved",
            text="Conversations that outgrew the window in this time and went on all the same. Without "
            "the proxy each of them would have ended in a context error.",
            unit=_EVENTS,
            queries=(Query(expr=over("context_runs_saved_total", "$__range")),),
            kind=Kind.STAT,
            width=3,
        ),
        Panel(
            title="Compactions",
            text="Compactions in this time.",
            unit=_EVENTS,
            queries=(Query(expr=over("context_compacted_total", "$__range")),),
            kind=Kind.STAT,
            width=3,
        ),
        Panel(
            title="Compactions that failed",
            text="Share of attempts at notes that came to nothing. A failed attempt costs time and "
            "changes nothing; the panel Failures says why.",
            unit="percentunit",
            queries=(
                Query(
                    expr=f"{over('context_compaction_failed_total', '$__range')} / "
                    f"({over('context_compaction_failed_total', '$__range')} + "
                    f"{over('context_compacted_total', '$__range')})"
                ),
            ),
            kind=Kind.STAT,
            width=3,
            limits=(0.1, 0.5),
        ),
        Panel(
            title="Answered well",
            text="Share of requests with a 2xx status. The row Errors says what the others were.",
            unit="percentunit",
            queries=(
                Query(
                    expr=f"{over('proxy_requests_total', '$__range', _WELL)} / "
                    f"{over('proxy_requests_total', '$__range', HERE)}"
                ),
            ),
            kind=Kind.STAT,
            width=3,
            limits=(0.9, 0.99),
            low_is_bad=True,
        ),
        Panel(
            title="Conversations",
            text="Conversations with a request in the last hour.",
            unit=_EVENTS,
            queries=(Query(expr=f"sum(context_conversations{{{HERE}}})"),),
            kind=Kind.STAT,
            width=3,
        ),
        Panel(
            title="Up for",
            text="Time since the last start of a chosen proxy. Compactions outlive a restart where the "
            "store is a file.",
            unit="s",
            queries=(
                Query(
                    expr="min(time() - process_start_time_seconds{" + HERE + "} "
                    "and on (instance) proxy_build_info)"
                ),
            ),
            kind=Kind.STAT,
            width=3,
        ),
    ),
)

CONTEXT = Row(
    "Context",
    (
        Panel(
            title="How full prompts are",
            text="Every request by the share of its budget, as it was sent. Bands that climb to "
            "`compact_at` and drop are healthy. A band that stays near 100 % means that tools and "
            "brief leave no room: use a larger window, or fewer tools.",
            unit="percentunit",
            queries=(
                Query(
                    expr=over("context_budget_share_ratio_bucket", "$__rate_interval", by="le"),
                    legend="{{le}}",
                ),
            ),
            kind=Kind.HEAT,
            width=16,
        ),
        Panel(
            title="Window",
            text="What the proxy believes that the model can hold. A sudden smaller value was learned "
            "from an overflow answer, or the server was restarted with another one.",
            unit=_TOKENS,
            queries=(Query(expr=f"max by (model) (upstream_window_tokens{{{MODEL}}})", legend="{{model}}"),),
        ),
        Panel(
            title="Compactions",
            text="By what set them off: the threshold, an overflow answer (the window is smaller than "
            "believed), or resumed in steps (a history that was too long from the start).",
            unit=_EVENTS,
            queries=(
                Query(
                    expr=seen("context_compacted_total", "$__rate_interval", by="trigger, folded"),
                    legend="{{trigger}}, folded: {{folded}}",
                ),
                Query(expr=over("context_masked_total", "$__rate_interval"), legend="masked, without notes"),
            ),
            kind=Kind.BARS,
        ),
        Panel(
            title="Trims",
            text="By what was cut. A trim now and then is harmless; many mean that compactions fail, "
            "or that single results are larger than the tail may be.",
            unit=_EVENTS,
            queries=(
                Query(expr=seen("context_trimmed_total", "$__rate_interval", by="what"), legend="{{what}}"),
                Query(
                    expr=over("context_over_budget_total", "$__rate_interval"), legend="nothing left to cut"
                ),
            ),
            kind=Kind.BARS,
        ),
        Panel(
            title="Failures",
            text="Notes that came to nothing, by reason; docs/metrics.md has a remedy for each.",
            unit=_EVENTS,
            queries=(
                Query(
                    expr=seen("context_compaction_failed_total", "$__rate_interval", by="reason"),
                    legend="{{reason}}",
                ),
            ),
            kind=Kind.BARS,
        ),
        Panel(
            title="Prompt at a compaction",
            text="Mean prompt before and after, over an hour. The wider apart, the rarer the next one; "
            "close together, `compact_to` cannot be reached.",
            unit=_TOKENS,
            queries=(
                Query(expr=mean("context_compaction_before_tokens", RARE), legend="before"),
                Query(expr=mean("context_compaction_after_tokens", RARE), legend="after"),
            ),
        ),
        Panel(
            title="Prompt at a trim",
            text="Mean prompt before and after, over an hour.",
            unit=_TOKENS,
            queries=(
                Query(expr=mean("context_trim_before_tokens", RARE), legend="before"),
                Query(expr=mean("context_trim_after_tokens", RARE), legend="after"),
            ),
        ),
        Panel(
            title="Notes to be read with care",
            text="Notes used although they were cut, copied, or name what never occurred; and how many "
            "such names. Often a small model, or too small a `notes_max_tokens`.",
            unit=_EVENTS,
            queries=(
                Query(expr=seen("context_notes_flagged_total", RARE, by="flag"), legend="{{flag}}"),
                Query(expr=over("notes_unsupported_total", RARE), legend="unsupported names"),
            ),
        ),
    ),
)
