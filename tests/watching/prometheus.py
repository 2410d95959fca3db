"""
Run the real Prometheus and ask it.
"""

import contextlib
import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

needs_prometheus = pytest.mark.skipif(
    not (shutil.which("prometheus") and shutil.which("promtool")),
    reason="prometheus and promtool are not here: apt-get install prometheus",
)

# Loopback is nobody's proxy's business.
_OPEN = urllib.request.build_opener(urllib.request.ProxyHandler({}))
_PATIENCE_SECONDS = 60.0

Sample = tuple[dict[str, str], float]


@dataclass(frozen=True, slots=True)
class Prometheus:
    """A running server."""

    url: str

    def ask(self, query: str, at: float | None = None) -> list[Sample]:
        """
        What *query* gives at a time, or now.

        Raises:
            AssertionError: If the query is not understood.
        """
        parameters = {"query": query} | ({"time": str(at)} if at is not None else {})
        try:
            with _OPEN.open(f"{self.url}/api/v1/query?{urllib.parse.urlencode(parameters)}") as answer:
                told: dict[str, Any] = json.load(answer)
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{query}\n{error.read().decode()}") from error
        assert told["data"]["resultType"] == "vector", query
        return [(each["metric"], float(each["value"][1])) for each in told["data"]["result"]]

    def until(self, query: str, holds: Callable[[list[Sample]], bool] = bool) -> None:
        """Wait until *holds* of what *query* gives; another process cannot be waited for otherwise."""
        end = time.monotonic() + _PATIENCE_SECONDS
        while not holds(told := self.ask(query)):
            assert time.monotonic() < end, f"{query} still gives {told}"
            time.sleep(0.1)


@contextlib.contextmanager
def prometheus(folder: Path, targets: Sequence[str], rules: Path) -> Iterator[Prometheus]:
    """Scrape *targets* (host:port) every second into *folder*, while this is open."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(rules)],
        "scrape_configs": [
            {"job_name": "compaction-proxy", "static_configs": [{"targets": list(targets)}]},
        ],
    }
    # JSON is YAML as well.
    (folder / "prometheus.yml").write_text(json.dumps(config))
    command = [
        "prometheus",
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}",
    ]
    with (folder / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            _wait_for(process, f"http://{address}/-/ready", folder / "log")
            yield Prometheus(f"http://{address}")
        finally:
            process.terminate()


def _wait_for(process: "subprocess.Popen[bytes]", url: str, log: Path) -> None:
    end = time.monotonic() + _PATIENCE_SECONDS
    while True:
        assert process.poll() is None and time.monotonic() < end, log.read_text()
        with contextlib.suppress(OSError):
            _OPEN.open(url).close()
            return
        time.sleep(0.05)
