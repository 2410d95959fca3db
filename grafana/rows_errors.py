"""
The dashboard's last row: what went wrong? And all rows in order.
"""

from grafana.panels import HERE, Kind, Panel, Query, Row, over, rate, spread
from grafana.rows import CONTEXT, OVERVIEW
from grafana.rows_cost import CACHE, COST

_EVENTS = "short"

ERRORS = Row(
    "Errors",
    (
        Panel(
            title="Answers by status",
            text="Requests that were not answered with a 2xx status. client_gone left before the "
            "answer began.",
            unit="reqps",
            queries=(
                Query(
                    expr=rate("proxy_requests_total", f'{HERE}, status!~"2.."', "endpoint, status") + " > 0",
                    legend="{{status}} {{endpoint}}",
                ),
            ),
        ),
        Panel(
            title="Errors of the proxy's own",
            text="By code. upstream_unreachable and upstream_stalled are the upstream's doing; "
            "proxy_error and passed by are faults of the proxy, the latter without harm: its log "
            "has the trace.",
            unit="reqps",
            queries=(
                Query(expr=rate("proxy_refused_total", HERE, "code") + " > 0", legend="{{code}}"),
                Query(expr=rate("context_faults_total", HERE), legend="passed by"),
                Query(
                    expr=rate("proxy_config_reloads_total", f'{HERE}, outcome="refused"') + " > 0",
                    legend="configuration refused",
                ),
            ),
        ),
        Panel(
            title="Overflow answers",
            text="Answers that said the prompt is too long. Recovered: the agent never saw it. "
            "Relayed: it did, since nothing shorter could be sent; its tools, its brief or its "
            "newest turn alone are too large.",
            unit=_EVENTS,
            queries=(
                Query(
                    expr=over("context_overflow_answers_total", "$__rate_interval", by="outcome"),
                    legend="{{outcome}}",
                ),
            ),
            kind=Kind.BARS,
        ),
        Panel(
            title="Error of the estimate",
            text="Measured prompts against the upstream's own count. Over 15 % for long: compactions "
            "come too early or too late; the model's tokenizer is unlike the one used for "
            "estimates, or the upstream cuts prompts.",
            unit="percentunit",
            queries=spread("token_estimate_error_ratio"),
            limits=(0.15,),
        ),
        Panel(
            title="Faults of the store",
            text="Each made one request go on without the store. The log says what: a full disk, a "
            "lock, rights.",
            unit=_EVENTS,
            queries=(
                Query(
                    expr=over("store_errors_total", "$__rate_interval", HERE, "instance"),
                    legend="{{instance}}",
                ),
            ),
            kind=Kind.BARS,
        ),
        Panel(
            title="Size of the store",
            text="It is pruned by age and at `store.max_bytes`.",
            unit="bytes",
            queries=(Query(expr=f"max by (instance) (store_size_bytes{{{HERE}}})", legend="{{instance}}"),),
        ),
        Panel(
            title="Went through unmeasured",
            text="Requests for a completion that the proxy could not or should not look at, by "
            "reason. held_by_server: have the agent send its history, else nothing of it can be "
            "compacted.",
            unit="reqps",
            queries=(
                Query(
                    expr=rate("proxy_untouched_requests_total", HERE, "dialect, reason"),
                    legend="{{reason}} ({{dialect}})",
                ),
            ),
        ),
        Panel(
            title="Entries in the store",
            text="Compactions, trims and failed attempts that are kept.",
            unit=_EVENTS,
            queries=(Query(expr=f"max by (instance) (store_entries{{{HERE}}})", legend="{{instance}}"),),
        ),
    ),
)

ROWS = (OVERVIEW, CONTEXT, CACHE, COST, ERRORS)
