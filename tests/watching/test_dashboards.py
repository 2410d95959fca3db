"""The dashboard is valid, whole, and what its source says; what starts it finds its files."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.watching.test_metrics import declared

sdk = pytest.importorskip("grafana_foundation_sdk", reason="part of the extra dev")

from grafana_foundation_sdk.cog.encoder import JSONEncoder  # noqa: E402
from grafana_foundation_sdk.models import dashboard as models  # noqa: E402

from grafana import build  # noqa: E402

CHECKOUT = Path(__file__).parents[2]
MADE: dict[str, Any] = json.loads(build.FILE.read_text(encoding="utf-8"))
PANELS = {panel["title"]: panel for panel in MADE["panels"] if panel["type"] != "row"}
EXPRESSIONS = [target["expr"] for panel in MADE["panels"] for target in panel.get("targets", ())]
EXPRESSIONS += [mark["expr"] for mark in MADE["annotations"]["list"]]


def test_the_file_is_what_its_source_makes() -> None:
    assert build.FILE.read_text(encoding="utf-8") == build.build(), "run python -m grafana.build"


def test_it_is_valid_against_the_schema() -> None:
    # What the schema does not know is lost on the way through its classes.
    again = json.loads(json.dumps(models.Dashboard.from_json(MADE), cls=JSONEncoder))
    assert again == MADE


def test_ids_are_unique() -> None:
    ids = [panel["id"] for panel in MADE["panels"]]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("row", ["Overview", "Context", "Cache", "Latency and cost", "Errors"])
def test_a_row_is_there(row: str) -> None:
    assert row in [panel["title"] for panel in MADE["panels"] if panel["type"] == "row"]


@pytest.mark.parametrize("title", PANELS)
def test_a_panel_says_what_it_shows(title: str) -> None:
    panel = PANELS[title]
    assert len(panel["description"]) > 20
    assert panel["fieldConfig"]["defaults"]["unit"]
    assert panel["targets"]
    assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24


@pytest.mark.parametrize("title", PANELS)
def test_a_panel_follows_the_variables(title: str) -> None:
    for target in PANELS[title]["targets"]:
        assert "$instance" in target["expr"]
        assert target["datasource"]["uid"] == "${datasource}"


def test_the_dashboard_asks_only_for_metrics_that_exist() -> None:
    asked = set(re.findall(r"[a-z_]+(?=\{)", " ".join(EXPRESSIONS)))
    known = declared().keys() | {"process_start_time_seconds"}
    assert {re.sub(r"_(sum|count|bucket)$", "", name) for name in asked} <= known


def test_every_metric_is_shown() -> None:
    text = " ".join(EXPRESSIONS)
    assert [name for name in declared() if name not in text] == []


def test_the_heat_map_shows_the_share_of_the_budget() -> None:
    (heat,) = [panel for panel in PANELS.values() if panel["type"] == "heatmap"]
    assert "context_budget_share_ratio_bucket" in heat["targets"][0]["expr"]
    assert heat["targets"][0]["format"] == "heatmap"


def test_compactions_trims_and_failures_are_marked() -> None:
    assert [mark["name"] for mark in MADE["annotations"]["list"]] == [
        "Compactions",
        "Trims",
        "Failed compactions",
    ]


# What starts it


def test_grafana_is_told_where_prometheus_and_the_dashboard_are() -> None:
    provisioning = CHECKOUT / "grafana" / "provisioning"
    (source,) = yaml.safe_load((provisioning / "datasources" / "prometheus.yaml").read_text())["datasources"]
    (provider,) = yaml.safe_load((provisioning / "dashboards" / "compaction.yaml").read_text())["providers"]
    compose = yaml.safe_load((CHECKOUT / "deploy" / "compose.yaml").read_text())["services"]
    assert (source["type"], source["url"]) == ("prometheus", "http://prometheus:9090")
    assert f"../grafana/dashboards:{provider['options']['path']}:ro" in compose["grafana"]["volumes"]
    scrape = yaml.safe_load((CHECKOUT / "grafana" / "prometheus.yml").read_text())["scrape_configs"][0]
    assert scrape["static_configs"] == [{"targets": ["proxy:8400"]}]
    assert compose["proxy"]["environment"]["COMPACTION_PROXY_UPSTREAM"] == "http://llama:8080"


def test_compose_mounts_what_is_there_and_opens_ports_to_this_machine_alone() -> None:
    folder = CHECKOUT / "deploy"
    compose = yaml.safe_load((folder / "compose.yaml").read_text())
    for service in compose["services"].values():
        for volume in service.get("volumes", ()):
            source = volume.partition(":")[0]
            assert source in compose["volumes"] or source.startswith("${") or (folder / source).exists(), (
                volume
            )
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))
    llama = compose["services"]["llama"]["command"]
    assert llama[llama.index("--slot-prompt-similarity") + 1] == "0.5"
