"""
Make the dashboard's JSON of what `rows` and `panels` say: `python -m grafana.build`.

Needs the package grafana-foundation-sdk, which knows Grafana's schema. A test holds the
committed file against what comes out here.
"""

import itertools
import json
from pathlib import Path
from typing import Any

from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.builders import heatmap, stat, timeseries
from grafana_foundation_sdk.builders import prometheus as prometheus_builders
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common, dashboard, prometheus
from grafana_foundation_sdk.models import heatmap as heatmap_models

from grafana.panels import MARKS, Kind, Panel
from grafana.rows_errors import ROWS

FILE = Path(__file__).parent / "dashboards" / "compaction.json"
_SOURCE = dashboard.DataSourceRef(type_val="prometheus", uid="${datasource}")
_GREEN, _YELLOW, _RED = "green", "yellow", "red"
_STAT_HEIGHT, _HEIGHT = 4, 8


def build() -> str:
    """The file's text."""
    made = (
        builders.Dashboard("Compaction proxy")
        .uid("compaction-proxy")
        .description(
            "Conversations that are kept inside their model's window: how full, when compacted, at what cost."
        )
        .tags(["llm", "compaction-proxy"])
        .time("now-6h", "now")
        .refresh("30s")
        .timezone("browser")
        .tooltip(dashboard.DashboardCursorSync.CROSSHAIR)
        .with_variable(builders.DatasourceVariable("datasource").label("Data source").type("prometheus"))
        .with_variable(_variable("instance", "Proxy", "label_values(proxy_build_info, instance)"))
        .with_variable(
            _variable(
                "model", "Model", 'label_values(context_runs_saved_total{instance=~"$instance"}, model)'
            )
        )
    )
    for mark in MARKS:
        annotation = builders.AnnotationQuery()
        annotation.name(mark.name).datasource(_SOURCE).expr(mark.expr).icon_color(mark.color).enable(True)
        made.annotation(annotation)
    # A link to a panel carries its id.
    ids = itertools.count(1)
    for row in ROWS:
        made.with_row(builders.Row(row.title).id(next(ids)))
        for panel in row.panels:
            made.with_panel(_panel(panel).id(next(ids)))
    return json.dumps(made.build(), cls=JSONEncoder, indent=2, sort_keys=True) + "\n"


def _variable(name: str, label: str, query: str) -> Any:
    return (
        builders.QueryVariable(name)
        .label(label)
        .datasource(_SOURCE)
        .query(query)
        .refresh(dashboard.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(dashboard.VariableSort.ALPHABETICAL_ASC)
        .multi(True)
        .include_all(True)
        .all_value(".*")
        .current(dashboard.VariableOption(text="All", value="$__all", selected=True))
    )


def _panel(panel: Panel) -> Any:
    made = _drawn(panel)
    made.title(panel.title).description(panel.text).unit(panel.unit).datasource(_SOURCE)
    made.span(panel.width).height(_STAT_HEIGHT if panel.kind is Kind.STAT else _HEIGHT)
    made.thresholds(_thresholds(panel))
    if panel.unit == "short":
        # Prometheus extrapolates: a rise by one may read 1.01.
        made.decimals(0)
    if panel.words:
        words = {value: dashboard.ValueMappingResult(text=word) for value, word in panel.words}
        made.mappings([dashboard.ValueMap(options=words)])
    for i, query in enumerate(panel.queries):
        target = prometheus_builders.Dataquery().expr(query.expr).ref_id(chr(ord("A") + i))
        target.legend_format(query.legend or panel.title).datasource(_SOURCE)
        if panel.kind is Kind.HEAT:
            target.format(prometheus.PromQueryFormat.HEATMAP)
        made.with_target(target.instant() if panel.kind is Kind.STAT else target.range())
    return made


def _drawn(panel: Panel) -> Any:
    if panel.kind is Kind.STAT:
        colored = bool(panel.limits)
        mode = common.BigValueColorMode.BACKGROUND if colored else common.BigValueColorMode.NONE
        reduced = common_builders.ReduceDataOptions().calcs(["lastNotNull"])
        return stat.Panel().color_mode(mode).graph_mode(common.BigValueGraphMode.NONE).reduce_options(reduced)
    if panel.kind is Kind.HEAT:
        color = heatmap.HeatmapColorOptions().mode(heatmap_models.HeatmapColorMode.SCHEME)
        color.scheme("Turbo").steps(64).exponent(0.5).fill("dark-orange").reverse(False)
        axis = heatmap.YAxisConfig().unit(panel.unit)
        # Prometheus' buckets are made already.
        made = heatmap.Panel().calculate(False).color(color).y_axis(axis)
        return made.cell_gap(1).filter_values(heatmap.FilterValueRange().le(1e-9))
    legend = common_builders.VizLegendOptions().show_legend(True).placement(common.LegendPlacement.BOTTOM)
    legend.display_mode(common.LegendDisplayMode.LIST)
    tooltip = common_builders.VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI)
    made = timeseries.Panel().legend(legend.calcs([])).tooltip(tooltip).min(0)
    if panel.kind in (Kind.STACKED, Kind.BARS):
        made.stacking(common_builders.StackingConfig().mode(common.StackingMode.NORMAL).group("A"))
        made.fill_opacity(60)
    if panel.kind is Kind.BARS:
        made.draw_style(common.GraphDrawStyle.BARS)
    elif panel.kind is Kind.LINES:
        # A single point between two gaps is an event, not noise.
        made.show_points(common.VisibilityMode.AUTO).fill_opacity(10)
    if panel.limits:
        made.thresholds_style(
            common_builders.GraphThresholdsStyleConfig().mode(common.GraphTresholdsStyleMode.LINE)
        )
    return made


def _thresholds(panel: Panel) -> Any:
    colors = [_GREEN, _YELLOW, _RED] if len(panel.limits) > 1 else [_GREEN, _RED]
    colors = colors[: len(panel.limits) + 1]
    if panel.low_is_bad:
        colors.reverse()
    steps = [dashboard.Threshold(color=colors[0])]
    steps += [dashboard.Threshold(value=v, color=c) for v, c in zip(panel.limits, colors[1:], strict=True)]
    return builders.ThresholdsConfig().mode(dashboard.ThresholdsMode.ABSOLUTE).steps(steps)


if __name__ == "__main__":
    FILE.write_text(build(), encoding="utf-8")
