"""
What the dashboard shows: rows of panels, each with its question, its unit and its queries.

`build` makes Grafana's JSON of it. In a query, HERE stands for the chosen proxies, and
MODEL for them and the chosen models.
"""

from dataclasses import dataclass
from enum import StrEnum

HERE = 'instance=~"$instance"'
MODEL = f'{HERE}, model=~"$model"'
# Prompt tokens by what became of them. Some upstreams do not say what they had cached.
CACHED, PROCESSED = f'{MODEL}, state="cached"', f'{MODEL}, state="processed"'
TOLD, NOT_CACHED = f'{MODEL}, state!="unknown"', f'{MODEL}, state!="cached"'
# Rare events need a longer look than a line of a graph; an hour is about one agent's run.
RARE = "1h"


class Kind(StrEnum):
    """How a panel is drawn."""

    STAT = "stat"
    LINES = "lines"
    STACKED = "stacked"
    BARS = "bars"
    HEAT = "heat"


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A PromQL expression, and what its lines are called."""

    expr: str
    legend: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """
    Attributes:
        title: What is shown.
        text: How to read it, and what to do; shown at the panel's corner.
        unit: Grafana's id of the unit.
        queries: At least one.
        kind: How it is drawn.
        width: Of 24 columns.
        limits: Values from which it turns yellow and red; red alone where there is one.
        low_is_bad: Whether it is red below the limits instead.
        words: What a value is called instead of its number.
    """

    title: str
    text: str
    unit: str
    queries: tuple[Query, ...]
    kind: Kind = Kind.LINES
    width: int = 8
    limits: tuple[float, ...] = ()
    low_is_bad: bool = False
    words: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under one heading."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Moments that are marked in every graph."""

    name: str
    expr: str
    color: str


def rate(name: str, labels: str = MODEL, by: str = "") -> str:
    """A counter's rise a second, added up."""
    return f"sum{_by(by)} (rate({name}{{{labels}}}[$__rate_interval]))"


def over(name: str, window: str, labels: str = MODEL, by: str = "") -> str:
    """A counter's rise over *window*, added up."""
    return f"sum{_by(by)} (increase({name}{{{labels}}}[{window}]))"


def seen(name: str, window: str = "$__rate_interval", labels: str = MODEL, by: str = "") -> str:
    """As `over`, without what did not happen: a legend of many zeros hides the one that is none."""
    return f"{over(name, window, labels, by)} > 0"


def mean(name: str, window: str = "$__rate_interval", labels: str = MODEL) -> str:
    """A histogram's mean."""
    return f"{over(f'{name}_sum', window, labels)} / {over(f'{name}_count', window, labels)}"


def quantile(share: float, name: str, window: str = "$__rate_interval", labels: str = MODEL) -> str:
    """What *share* of a histogram's values lie below."""
    return f"histogram_quantile({share}, {over(f'{name}_bucket', window, labels, 'le')})"


def spread(name: str, window: str = "$__rate_interval", labels: str = MODEL) -> tuple[Query, ...]:
    """A histogram's median and its 95th percentile."""
    return (
        Query(expr=quantile(0.5, name, window, labels), legend="median"),
        Query(expr=quantile(0.95, name, window, labels), legend="95 %"),
    )


def _by(labels: str) -> str:
    return f" by ({labels})" if labels else ""


MARKS = (
    Mark(
        name="Compactions",
        expr=f"sum by (instance, model) (increase(context_compacted_total{{{MODEL}}}[1m])) > 0",
        color="green",
    ),
    Mark(
        name="Trims",
        expr=f"sum by (instance, model) (increase(context_trim_before_tokens_count{{{MODEL}}}[1m])) > 0",
        color="orange",
    ),
    Mark(
        name="Failed compactions",
        expr="sum by (instance, model, reason) "
        f"(increase(context_compaction_failed_total{{{MODEL}}}[1m])) > 0",
        color="red",
    ),
)
