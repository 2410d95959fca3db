"""Each alert fires where it should, and none in health; played through by promtool."""

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.watching.prometheus import needs_prometheus
from tests.watching.test_metrics import declared

RULES = Path(__file__).parents[2] / "grafana" / "alerts.yml"
SCRAPES = RULES.parent / "prometheus.yml"
ALERTS = {rule["alert"]: rule for rule in yaml.safe_load(RULES.read_text())["groups"][0]["rules"]}

WHO = 'instance="a:8400"'
WHAT = f'{WHO}, model="m"'
CACHED, PROCESSED = (f'upstream_prompt_tokens_total{{{WHAT}, state="{s}"}}' for s in ("cached", "processed"))
RELAYED = f'context_overflow_answers_total{{{WHAT}, outcome="relayed"}}'

# A proxy whose one agent asks once a minute for two hours, and that compacts every 20 minutes.
HEALTH = {
    f'up{{job="compaction-proxy", {WHO}}}': "1x120",
    f"upstream_up{{{WHO}}}": "1x120",
    f"store_up{{{WHO}}}": "1x120",
    f'context_compacted_total{{{WHAT}, trigger="threshold", folded="true"}}': "0+0.05x120",
    f'context_compaction_failed_total{{{WHAT}, reason="empty"}}': "0x10 1x109",
    f"context_trim_before_tokens_count{{{WHAT}}}": "0x40 1x79",
    f"context_budget_share_ratio_count{{{WHAT}}}": "0+1x120",
    CACHED: "0+3000x120",
    PROCESSED: "0+400x120",
    f"context_notes_cached_ratio_count{{{WHAT}}}": "0+0.05x120",
    f"context_notes_cached_ratio_sum{{{WHAT}}}": "0+0.049x120",
    f"token_estimate_error_ratio_count{{{WHAT}}}": "0+1x120",
    f"token_estimate_error_ratio_sum{{{WHAT}}}": "0+0.02x120",
    RELAYED: "0x120",
    f'context_overflow_answers_total{{{WHAT}, outcome="recovered"}}': "0+0.01x120",
    f'proxy_refused_total{{{WHO}, code="proxy_error"}}': "0x120",
    f'proxy_refused_total{{{WHO}, code="upstream_unreachable"}}': "0+0.1x120",
    f"context_faults_total{{{WHO}}}": "0x120",
}

# What differs from health, and whether the alert names a model.
TROUBLE: dict[str, tuple[dict[str, str], bool]] = {
    "CompactionProxyDown": ({f'up{{job="compaction-proxy", {WHO}}}': "1x100 0x19"}, False),
    "UpstreamDown": ({f"upstream_up{{{WHO}}}": "1x100 0x19"}, False),
    "StoreDown": ({f"store_up{{{WHO}}}": "1x100 0x19"}, False),
    "CompactionsFailing": (
        {f'context_compaction_failed_total{{{WHAT}, reason="empty"}}': "0x90 0+0.2x29"},
        True,
    ),
    "TrimsOnEveryCall": ({f"context_trim_before_tokens_count{{{WHAT}}}": "0x90 0+1x29"}, True),
    "CacheLostAfterCompactions": (
        {CACHED: "0+3000x100 300500+500x19", PROCESSED: "0+400x100 43000+3000x19"},
        True,
    ),
    "NotesNotCached": (
        {
            f"context_notes_cached_ratio_count{{{WHAT}}}": "0+0.1x120",
            f"context_notes_cached_ratio_sum{{{WHAT}}}": "0+0.02x120",
        },
        True,
    ),
    "EstimateOff": ({f"token_estimate_error_ratio_sum{{{WHAT}}}": "0+0.3x120"}, True),
    "OverflowReachedAgent": ({RELAYED: "0x110 1x9"}, True),
    "ProxyFault": ({f"context_faults_total{{{WHO}}}": "0x110 1x9"}, False),
}


@needs_prometheus
@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_fires(name: str, tmp_path: Path) -> None:
    changed, names_model = TROUBLE[name]
    assert changed.keys() <= HEALTH.keys()
    labels = WHAT if names_model else WHO
    if name == "CompactionProxyDown":
        labels += ', job="compaction-proxy"'
    rule = f'alertname="{name}", severity="{ALERTS[name]["labels"]["severity"]}"'
    _play(tmp_path, HEALTH | changed, name, [f'ALERTS{{{rule}, alertstate="firing", {labels}}}'])


@needs_prometheus
@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_is_silent_in_health(name: str, tmp_path: Path) -> None:
    _play(tmp_path, HEALTH, name, [])


@needs_prometheus
@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({CACHED: "0+30x120", PROCESSED: "0+4x120"}, id="hardly any requests"),
        pytest.param({CACHED: "0+0x120", PROCESSED: "0+3400x120"}, id="a server without a cache"),
        pytest.param(
            {f'context_compaction_failed_total{{{WHAT}, reason="empty"}}': "0x117 2x2"}, id="two failures"
        ),
        pytest.param({f"context_trim_before_tokens_count{{{WHAT}}}": "0x117 4x2"}, id="four trims"),
        pytest.param({f"token_estimate_error_ratio_sum{{{WHAT}}}": "0x118 0.9 0.9"}, id="one bad estimate"),
        pytest.param({f"upstream_up{{{WHO}}}": "1x118 0 1"}, id="one scrape while it loads"),
    ],
)
def test_none_fires_for_little(changed: dict[str, str], tmp_path: Path) -> None:
    _play(tmp_path, HEALTH | changed, "", [])


def _play(folder: Path, series: dict[str, str], name: str, firing: list[str]) -> None:
    """Have promtool play *series* (name to values, a minute apart), and see what fires in the end."""
    selector = f'ALERTS{{alertstate="firing", alertname=~"{name or ".*"}"}}'
    test = {
        "rule_files": [str(RULES)],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": name, "values": values} for name, values in series.items()],
                "promql_expr_test": [
                    {
                        "expr": selector,
                        "eval_time": "119m",
                        "exp_samples": [{"labels": labels, "value": 1} for labels in firing],
                    }
                ],
            }
        ],
    }
    file = folder / "test.yml"
    file.write_text(json.dumps(test))
    done = subprocess.run(
        ["promtool", "test", "rules", str(file)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@needs_prometheus
@pytest.mark.parametrize(("what", "file"), [("rules", RULES), ("config", SCRAPES)], ids=["rules", "scrapes"])
def test_promtool_finds_nothing_to_say(what: str, file: Path) -> None:
    done = subprocess.run(["promtool", "check", what, str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "FAILED" not in done.stdout


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_says_what_it_means_and_what_to_do(name: str) -> None:
    rule = ALERTS[name]
    assert set(rule["annotations"]) == {"summary", "remedy"}
    assert "{{ $labels.instance }}" in rule["annotations"]["summary"]
    assert rule["labels"]["severity"] in ("critical", "warning")


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_asks_for_metrics_that_exist(name: str) -> None:
    asked = set(re.findall(r"[a-z_]+(?=[{\[])|\b(?:store|upstream)_up\b", ALERTS[name]["expr"])) - {"up"}
    assert {re.sub(r"_(sum|count|bucket)$", "", each) for each in asked} <= declared().keys()
