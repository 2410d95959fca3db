"""What is counted, and under which names."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from proxy.dialects.base import Usage
from proxy.metrics import MOST_MODELS, NO_MODEL, OTHER_MODEL, Metrics

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
