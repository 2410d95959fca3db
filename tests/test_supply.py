"""What the image is made of is pinned, listed, and started safely."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from proxy.config import settings

CHECKOUT = Path(__file__).parent.parent
DOCKERFILE = (CHECKOUT / "Dockerfile").read_text(encoding="utf-8")
COMPOSE = yaml.safe_load((CHECKOUT / "deploy" / "compose.yaml").read_text(encoding="utf-8"))
LOCKS = ("deploy/requirements.lock", "deploy/build.lock")


def pinned(lock: str) -> dict[str, list[str]]:
    """The hashes of each package of a lock, by name and version."""
    text = (CHECKOUT / lock).read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return {line.split()[0]: re.findall(r"--hash=(\S+)", line) for line in lines}


def plain(name: str) -> str:
    """A package's name as locks write it."""
    return re.sub(r"[-_.]+", "-", re.split(r"[\[<>=~! ;]", name)[0]).lower()


@pytest.mark.parametrize("lock", LOCKS)
def test_every_package_has_one_version_and_its_hashes(lock: str) -> None:
    packages = pinned(lock)
    names = [name.partition("==")[0] for name in packages]
    assert all(re.fullmatch(r"[a-z0-9-]+==[^=\s]+", name) for name in packages)
    assert len(names) == len(set(names))
    assert all(hashes and all(h.startswith("sha256:") for h in hashes) for hashes in packages.values())


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_names_no_index_and_no_place_on_a_disk(lock: str) -> None:
    text = (CHECKOUT / lock).read_text(encoding="utf-8")
    assert "://" not in text and "--index" not in text and " /" not in text


def test_the_locks_hold_all_that_is_needed() -> None:
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))
    needed = [*project["project"]["dependencies"], *project["project"]["optional-dependencies"]["encryption"]]
    have = {name.partition("==")[0] for name in pinned("deploy/requirements.lock")}
    assert {plain(name) for name in needed} - have == set()
    tools = {name.partition("==")[0] for name in pinned("deploy/build.lock")}
    assert {plain(name) for name in project["build-system"]["requires"]} - tools == set()


def test_the_image_installs_nothing_without_a_hash() -> None:
    commands = re.findall(r"pip (?:install|wheel)[^&\n]*", DOCKERFILE.replace("\\\n", " "))
    assert len(commands) == 4
    for command in commands:
        is_pinned = "--require-hashes" in command and "--only-binary :all:" in command
        assert is_pinned or ("--no-index" in command and "--no-deps" in command)
    assert "cyclonedx-py environment" in DOCKERFILE


def test_the_image_does_not_decide_that_everybody_may_come() -> None:
    settings = re.findall(r"COMPACTION_PROXY_\w+=", re.sub(r"(?m)^#.*$", "", DOCKERFILE))
    assert settings == ["COMPACTION_PROXY_LISTEN="]
    assert re.search(r"(?m)^USER compaction-proxy$", DOCKERFILE)


def test_what_compose_opens_it_publishes_to_this_machine_alone() -> None:
    services: dict[str, Any] = COMPOSE["services"]
    assert services["proxy"]["environment"]["COMPACTION_PROXY_SERVER_OPEN"] == "true"
    ports = [port for service in services.values() for port in service.get("ports", ())]
    assert len(ports) == 3 and all(port.startswith("127.0.0.1:") for port in ports)


# What is said of an audit


def entry(name: str, **members: Any) -> dict[str, Any]:
    return {"name": name, "version": "1.0", **members}


@pytest.mark.parametrize(
    ("report", "status", "said"),
    [
        pytest.param(None, 0, "not audited", id="no report"),
        pytest.param("{", 0, "not audited", id="half a report"),
        pytest.param({"dependencies": [entry("a", skip_reason="x")]}, 0, "not audited", id="all skipped"),
        pytest.param(
            {"dependencies": [entry("a", vulns=[]), entry("b", skip_reason="x")]},
            0,
            "1 packages audited, 1 not known there, 0 with",
            id="nothing found",
        ),
        pytest.param(
            {"dependencies": [entry("a", vulns=[{"id": "CVE-1", "fix_versions": ["1.1"]}])]},
            1,
            "a 1.0: CVE-1, mended in 1.1",
            id="something to mend",
        ),
        pytest.param(
            {"dependencies": [entry("a", vulns=[{"id": "CVE-1"}])]}, 1, "no version yet", id="not mended yet"
        ),
    ],
)
def test_an_audit_fails_for_what_it_found_alone(tmp_path: Path, report: Any, status: int, said: str) -> None:
    file = tmp_path / "report.json"
    if report is not None:
        file.write_text(report if isinstance(report, str) else json.dumps(report))
    done = subprocess.run(
        [sys.executable, CHECKOUT / "scripts" / "audited.py", file],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (status, "")
    assert said in done.stdout


# SECURITY.md


def test_each_test_that_the_threat_model_names_is_there() -> None:
    text = (CHECKOUT / "SECURITY.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(tests/[\w/]+\.py)`", text))
    assert len(named) > 10
    assert {name for name in named if not (CHECKOUT / name).is_file()} == set()


def test_each_setting_that_the_threat_model_names_is_there() -> None:
    text = (CHECKOUT / "SECURITY.md").read_text(encoding="utf-8")
    tables = settings()
    named = set(re.findall(r"`(server|upstream|store|status)\.(\w+)`", text)) - {("store", "unreadable")}
    assert len(named) > 8
    assert {(table, key) for table, key in named if key not in tables[table]} == set()
