"""What is counted, under which names, and what is not told."""

import io
import json
import logging
import re
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from proxy.dialects.base import Usage
from proxy.events import JsonLines, Plain
from proxy.metrics import MOST_MODELS, NO_MODEL, OTHER_MODEL, Metrics
from tests.support.raw_client import ask
from tests.watching.session import CANARY, GOOD, SILENT, SLOW, Watched, begin, play, watched

CHECKOUT = Path(__file__).parents[2]
DOCS = (CHECKOUT / "docs" / "metrics.md").read_text(encoding="utf-8")

Declared = Counter | Gauge | Histogram


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(CollectorRegistry())


def declared() -> dict[str, Declared]:
    """Every metric by the name that queries use."""
    made = vars(Metrics(CollectorRegistry())).values()
    found = [metric for metric in made if isinstance(metric, Declared)]
    return {metric._name + ("_total" if isinstance(metric, Counter) else ""): metric for metric in found}


def documented() -> dict[str, tuple[str, tuple[str, ...]]]:
    """Type and labels of every metric in docs/metrics.md."""
    rows = re.findall(r"^\| `([a-z_]+)` \| (counter|gauge|histogram) \| ([a-z_, -]+) \|", DOCS, re.MULTILINE)
    return {
        name: (kind, () if labels == "-" else tuple(re.split(", ", labels))) for name, kind, labels in rows
    }


# What there is


def test_every_metric_is_documented_as_it_is() -> None:
    assert documented() == {name: (m._type, m._labelnames) for name, m in declared().items()}


def test_every_row_of_the_documentation_is_whole() -> None:
    rows = [line for line in DOCS.splitlines() if line.startswith(("| `context", "| `upstream", "| `proxy"))]
    assert rows
    assert [row for row in rows if row.count(" | ") != 5 or "|  |" in row] == []


def test_the_readme_names_only_metrics_that_exist() -> None:
    readme = CHECKOUT / "README.md"
    text = readme.read_text(encoding="utf-8") if readme.exists() else ""
    names = set(re.findall(r"`((?:context|proxy|upstream|store|token|notes)_[a-z_]+)(?:\{[^`]*\})?`", text))
    assert {name for name in names if name.endswith(_SUFFIXES)} - declared().keys() == set()


_SUFFIXES = ("_total", "_seconds", "_tokens", "_ratio", "_bytes", "_up", "_requests")


@pytest.mark.parametrize("name", declared())
def test_a_name_says_its_unit(name: str) -> None:
    metric = declared()[name]
    if isinstance(metric, Histogram):
        assert name.endswith(("_seconds", "_tokens", "_ratio"))
    assert isinstance(metric, Counter) == name.endswith("_total")


@pytest.mark.skipif(not shutil.which("promtool"), reason="promtool is not here: apt-get install prometheus")
def test_promtool_finds_nothing_to_say(metrics: Metrics) -> None:
    metrics.model("a")
    page = generate_latest(metrics.registry)
    done = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


# Models


def test_names_beyond_the_bound_are_one(metrics: Metrics) -> None:
    first = [metrics.model(f"m{i}") for i in range(MOST_MODELS)]
    later = {metrics.model(f"n{i}") for i in range(MOST_MODELS)}
    assert first == [f"m{i}" for i in range(MOST_MODELS)]
    assert later == {OTHER_MODEL}
    assert metrics.model("m3") == "m3"
    series = sum(1 for _ in generate_latest(metrics.registry).splitlines())
    metrics.model("one more")
    assert sum(1 for _ in generate_latest(metrics.registry).splitlines()) == series


@pytest.mark.parametrize(
    ("name", "label"),
    [
        pytest.param("", NO_MODEL, id="none"),
        pytest.param("a\ud800b", "a?b", id="half a surrogate pair"),
        pytest.param('a"} 1\nb', 'a"} 1?b', id="a series of its own"),
        pytest.param("x" * 10_000, "x" * 100, id="endless"),
        pytest.param("qwen3:8b/Q4_K_M", "qwen3:8b/Q4_K_M", id="ordinary"),
        pytest.param("模型", "模型", id="not ASCII"),
    ],
)
def test_a_name_cannot_break_the_page(metrics: Metrics, name: str, label: str) -> None:
    assert metrics.model(name) == label
    page = generate_latest(metrics.registry).decode()
    families = text_string_to_metric_families(page)
    models = {
        sample.labels["model"] for family in families for sample in family.samples if "model" in sample.labels
    }
    assert models == {label}


def test_the_counters_of_a_model_begin_at_zero(metrics: Metrics) -> None:
    metrics.model("a")
    labels = {"model": "a", "reason": "empty"}
    assert metrics.registry.get_sample_value("context_compaction_failed_total", labels) == 0
    labels = {"model": "a", "trigger": "threshold", "folded": "true"}
    assert metrics.registry.get_sample_value("context_compacted_total", labels) == 0


@pytest.mark.parametrize(
    ("cached", "states"),
    [
        pytest.param(30, {"cached": 30, "processed": 70, "unknown": 0}, id="told"),
        pytest.param(0, {"cached": 0, "processed": 100, "unknown": 0}, id="nothing cached"),
        pytest.param(None, {"cached": 0, "processed": 0, "unknown": 100}, id="not told"),
        pytest.param(130, {"cached": 100, "processed": 0, "unknown": 0}, id="more than there was"),
    ],
)
def test_prompt_tokens_by_state(metrics: Metrics, cached: int | None, states: dict[str, int]) -> None:
    metrics.answered(metrics.model("a"), Usage(prompt=100, completion=7, cached=cached))
    value = metrics.registry.get_sample_value
    name = "upstream_prompt_tokens_total"
    assert {state: value(name, {"model": "a", "state": state}) for state in states} == states
    assert value("upstream_completion_tokens_total", {"model": "a"}) == 7


# A whole session


class Logged:
    """The proxy's log goes to *stream* as well while this is open."""

    def __init__(self, stream: io.StringIO, style: logging.Formatter) -> None:
        self._handler = logging.StreamHandler(stream)
        self._handler.setFormatter(style)

    def __enter__(self) -> None:
        log = logging.getLogger("proxy")
        self._before = log.level
        log.setLevel(logging.DEBUG)
        log.addHandler(self._handler)

    def __exit__(self, *_: object) -> None:
        log = logging.getLogger("proxy")
        log.removeHandler(self._handler)
        log.setLevel(self._before)


@pytest.fixture(scope="module")
async def session(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SimpleNamespace]:
    """What a session left behind: the page before and after, and the log in both styles."""
    streams = [io.StringIO(), io.StringIO()]
    with Logged(streams[0], JsonLines()), Logged(streams[1], Plain()):
        async with watched(tmp_path_factory.mktemp("watched")) as it:
            await begin(it)
            await play(it)
            await _hostile(it)
            page, kind = await it.metrics()
            open_page, open_kind = await it.metrics("application/openmetrics-text; version=1.0.0")
            readiness = await _page(it, "/readyz")
            yield SimpleNamespace(
                page=page,
                kind=kind,
                open_page=open_page,
                open_kind=open_kind,
                readiness=readiness,
                log=streams[0].getvalue(),
                plain_log=streams[1].getvalue(),
                value=it.proxy.metrics.registry.get_sample_value,
            )


async def _page(it: Watched, path: str) -> str:
    answer, page = await ask(it.url, path, method="GET")
    assert answer.status == 200
    return page.decode()


async def _hostile(it: Watched) -> None:
    """Canaries where errors could quote them."""
    c = CANARY
    for body in (
        f'{{"model": "good", "messages": "{c}"}}',
        f'{{"messages": [{{"role": "{c}", "content": [1, {{"{c}": "{c}"}}]}}]}}',
        f'{{"messages": [{{"role": "user", "content": {{"{c}": 1}}}}], "tools": "{c}"}}',
        f'{{"messages": [{{"role": "user", "content": "\\ud800{c}"}}], "max_tokens": "{c}"}}',
        f'{{"messages": [{{"role": "tool", "tool_call_id": "{c}", "content": "{c}"}}], "stream": "{c}"}}',
        f"{c} is no JSON",
        f'{{"messages": [{{"role": "assistant", "tool_calls": [{{"function": {{"arguments": "{c}"}}}}]}}]}}',
    ):
        await it.send(body.encode())
        await it.send(body.encode(), url=it.broken_url)


@pytest.mark.parametrize(
    "seen", ["page", "open_page", "log", "plain_log", "readiness"], ids=lambda seen: seen.replace("_", " ")
)
async def test_no_content_is_told(session: SimpleNamespace, seen: str) -> None:
    assert getattr(session, seen)
    assert CANARY not in getattr(session, seen)


async def test_open_metrics_on_request(session: SimpleNamespace) -> None:
    assert session.kind.startswith("text/plain")
    assert session.open_kind.startswith("application/openmetrics-text")
    assert session.open_page.endswith("# EOF\n")


@pytest.mark.parametrize(
    ("name", "labels", "least"),
    [
        ("context_compacted_total", {"model": GOOD, "trigger": "threshold", "folded": "false"}, 1),
        ("context_compacted_total", {"model": GOOD, "trigger": "threshold", "folded": "true"}, 1),
        ("context_compaction_failed_total", {"model": SILENT, "reason": "empty"}, 2),
        ("context_trim_before_tokens_count", {"model": SILENT}, 2),
        ("context_prefix_rewrites_total", {"model": GOOD, "cause": "compaction"}, 3),
        ("context_prefix_rewrites_total", {"model": SILENT, "cause": "trim"}, 2),
        ("context_prefix_rewrites_total", {"model": GOOD, "cause": "client"}, 1),
        ("context_overflow_answers_total", {"model": GOOD, "outcome": "recovered"}, 1),
        ("context_overflow_answers_total", {"model": GOOD, "outcome": "relayed"}, 1),
        ("context_over_budget_total", {"model": GOOD}, 1),
        ("context_runs_saved_total", {"model": GOOD}, 2),
        ("context_runs_saved_total", {"model": SILENT}, 1),
        ("context_notes_seconds_count", {"model": SLOW}, 1),
        ("context_notes_prompt_tokens_total", {"model": GOOD, "state": "cached"}, 10_000),
        ("context_notes_completion_tokens_total", {"model": GOOD}, 100),
        ("proxy_keepalives_total", {}, 1),
        ("proxy_untouched_requests_total", {"dialect": "chat", "reason": "switched_off"}, 1),
        ("proxy_overhead_seconds_count", {}, 50),
        ("upstream_prompt_tokens_total", {"model": GOOD, "state": "cached"}, 10_000),
        ("upstream_window_tokens", {"model": GOOD}, 8192),
        ("upstream_first_byte_seconds_count", {"model": GOOD}, 40),
        ("token_estimate_error_ratio_count", {"model": GOOD}, 40),
        ("context_budget_share_ratio_count", {"model": GOOD}, 40),
        ("upstream_up", {}, 1),
        ("store_up", {}, 1),
        ("store_entries", {}, 5),
        ("store_size_bytes", {}, 1000),
    ],
    ids=lambda value: " ".join(value.values()) if isinstance(value, dict) else str(value),
)
async def test_a_session_moves(
    session: SimpleNamespace, name: str, labels: dict[str, str], least: float
) -> None:
    assert session.value(name, labels) >= least


async def test_a_trim_is_one_rewrite(session: SimpleNamespace) -> None:
    trims = session.value("context_trim_before_tokens_count", {"model": SILENT})
    rewrites = session.value("context_prefix_rewrites_total", {"model": SILENT, "cause": "trim"})
    assert trims == rewrites


async def test_an_agent_that_only_appends_rewrites_nothing(session: SimpleNamespace) -> None:
    assert session.value("context_prefix_rewrites_total", {"model": SILENT, "cause": "client"}) == 0


async def test_events_and_counters_agree(session: SimpleNamespace) -> None:
    events = [json.loads(line) for line in session.log.splitlines()]
    made = sum(1 for event in events if event["event"] == "context.compacted")
    families = text_string_to_metric_families(session.page)
    counted = [s.value for f in families for s in f.samples if s.name == "context_compacted_total"]
    assert sum(counted) == made > 0


@pytest.mark.parametrize("style", [JsonLines(), Plain()], ids=["JSON", "plain"])
def test_a_fault_is_logged_without_what_it_quotes(style: logging.Formatter) -> None:
    stream = io.StringIO()
    with Logged(stream, style):
        try:
            int(CANARY)
        except ValueError:
            logging.getLogger("proxy").exception("compaction.fault")
    assert "test_metrics.py" in stream.getvalue() and "ValueError" in stream.getvalue()
    assert f"'{CANARY}'" not in stream.getvalue()
