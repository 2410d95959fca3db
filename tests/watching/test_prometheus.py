"""The real Prometheus scrapes two proxies while a session runs; every panel and every alert has data."""

import asyncio
import math
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from grafana.panels import MARKS
from grafana.rows_errors import ROWS
from tests.watching.prometheus import Prometheus, Sample, needs_prometheus, prometheus
from tests.watching.session import GOOD, SILENT, Watched, begin, play, watched

pytestmark = needs_prometheus

RULES = Path(__file__).parents[2] / "grafana" / "alerts.yml"
ALERTS = {rule["alert"]: rule["expr"] for rule in yaml.safe_load(RULES.read_text())["groups"][0]["rules"]}
PANELS = {
    f"{row.title}: {panel.title}, {query.legend or 'value'}": query.expr
    for row in ROWS
    for panel in row.panels
    for query in panel.queries
}
# What Grafana puts in before it asks.
FILLED = {"$instance": ".*", "$model": ".*", "$__rate_interval": "1m", "$__range": "5m"}
# How far an alert looks back here, where nothing is older than a few seconds.
YESTERDAY = "offset 1s"


@dataclass(frozen=True, slots=True)
class Scraped:
    """What was scraped, up to the moment after the session."""

    prometheus: Prometheus
    at: float

    def ask(self, query: str) -> list[Sample]:
        """What Grafana would show at the end of the session."""
        for variable, value in FILLED.items():
            query = query.replace(variable, value)
        return self.prometheus.ask(query, self.at)


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scraped]:
    folder = tmp_path_factory.mktemp("prometheus")
    with _Session(tmp_path_factory.mktemp("proxies")) as it:
        targets = [url.removeprefix("http://") for url in (it.watched.url, it.watched.broken_url)]
        with prometheus(folder, targets, RULES) as running:
            it.do(begin)
            # The counters are there at 0: from here on a rise is a rise.
            running.until("count(count by (model) (context_compacted_total)) == 4")
            running.until("proxy_refused_total == 1")
            it.do(play)
            # Seen not only now, but also from as far back as an alert looks: a session takes less than that.
            running.until(f"sum(proxy_refused_total {YESTERDAY}) >= 2")
            running.until(f"sum(context_overflow_answers_total{{outcome='relayed'}} {YESTERDAY}) >= 1")
            yield Scraped(running, time.time())


class _Session:
    """Both proxies in a thread of their own, so that they are scraped while a test waits."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._leave = asyncio.Event()
        self._thread = threading.Thread(target=self._run)
        self.watched: Watched

    def _run(self) -> None:
        async def serve() -> None:
            async with watched(self._folder) as self.watched:
                self._ready.set()
                await self._leave.wait()

        try:
            self._loop.run_until_complete(serve())
        finally:
            self._ready.set()
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()

    def do(self, part: object) -> None:
        asyncio.run_coroutine_threadsafe(part(self.watched), self._loop).result(timeout=120)  # type: ignore[operator]

    def __enter__(self) -> "_Session":
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._leave.set)
        self._thread.join()


@pytest.mark.parametrize("expr", PANELS.values(), ids=PANELS)
def test_a_panel_has_data(scraped: Scraped, expr: str) -> None:
    told = scraped.ask(expr)
    assert [value for _, value in told if math.isfinite(value)], f"{expr} gives {told}"


@pytest.mark.parametrize("mark", MARKS, ids=lambda mark: mark.name)
def test_what_happened_is_marked(scraped: Scraped, mark: object) -> None:
    assert scraped.ask(mark.expr)  # type: ignore[attr-defined]


@pytest.mark.parametrize("expr", ALERTS.values(), ids=ALERTS)
def test_an_alert_has_data(scraped: Scraped, expr: str) -> None:
    # `bool` shows the comparison itself; and this Prometheus has no yesterday.
    shown = re.sub(r"(==|>=|<=|>|<)(?=\s)", r"\1 bool", expr).replace("offset 15m", YESTERDAY)
    assert scraped.ask(shown), shown


@pytest.mark.parametrize(
    ("query", "least", "most"),
    [
        pytest.param("sum(up)", 2, 2, id="both proxies are scraped"),
        pytest.param("sum(upstream_up)", 1, 1, id="one upstream is down"),
        pytest.param("sum(store_up)", 1, 1, id="one store is down"),
        pytest.param(PANELS["Overview: Runs saved, value"], 3, 8, id="runs saved"),
        pytest.param(PANELS["Overview: Answered well, value"], 0.9, 0.99, id="share of good answers"),
        pytest.param(PANELS["Overview: Compactions that failed, value"], 0.2, 0.8, id="share that failed"),
        pytest.param(PANELS["Cache: Cached share, {{model}}"], 0.5, 1, id="cached share"),
        pytest.param(
            PANELS["Cache: Cached share of notes requests, mean"], 0.5, 1, id="cached share of notes"
        ),
        pytest.param(PANELS["Context: Prompt at a compaction, before"], 3000, 8000, id="before a compaction"),
        pytest.param(PANELS["Context: Prompt at a compaction, after"], 300, 2500, id="after a compaction"),
        pytest.param(PANELS["Latency and cost: What notes cost, notes"], 0.02, 0.6, id="cost of notes"),
        pytest.param(PANELS["Errors: Error of the estimate, median"], 0, 0.15, id="error of the estimate"),
    ],
)
def test_a_number_can_be_believed(scraped: Scraped, query: str, least: float, most: float) -> None:
    values = {labels.get("model", ""): value for labels, value in scraped.ask(query)}
    assert least <= values.get(GOOD, values.get("", math.nan)) <= most, values


def test_failures_are_told_from_compactions(scraped: Scraped) -> None:
    told = scraped.ask("sum by (model, reason) (increase(context_compaction_failed_total[5m])) > 0")
    assert {(labels["model"], labels["reason"]) for labels, _ in told} == {(SILENT, "empty")}
