"""The command line as a person meets it: each test starts the real program."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from proxy import __version__

CHECKOUT = Path(__file__).parent.parent


def run(*arguments: str, cwd: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run the program in the folder *cwd*, with no setting in its environment but *environ*."""
    inherited = {name: text for name, text in os.environ.items() if not name.startswith("COMPACTION_PROXY_")}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env={**inherited, "PYTHONPATH": str(CHECKOUT), "COLUMNS": "200", **environ},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_version_is_the_packages(tmp_path: Path) -> None:
    done = run("-m", "proxy", "--version", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"compaction-proxy {__version__}\n")


@pytest.mark.parametrize("command", ["serve", "check"])
def test_without_an_upstream_it_says_how_to_give_one_and_that_demo_needs_none(
    tmp_path: Path, command: str
) -> None:
    done = run("-m", "proxy", command, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    for way in (
        "--upstream http://",
        "COMPACTION_PROXY_UPSTREAM=http://",
        '[upstream] url = "http://',
        "compaction-proxy demo",
    ):
        assert way in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["serve", "check"])
def test_every_fault_of_file_environment_and_flags_is_said_at_once(tmp_path: Path, command: str) -> None:
    (tmp_path / "bad.toml").write_text('[context]\nwindow = "big"\n[lgo]\n')
    done = run(
        *("-m", "proxy", command, "--config", "bad.toml", "--upstream", "localhost:8080"),
        cwd=tmp_path,
        COMPACTION_PROXY_LOG_LEVEL="loud",
    )
    assert (done.returncode, done.stdout) == (2, "")
    first, *faults = done.stderr.splitlines()
    assert first == "compaction-proxy: 4 faults in the configuration; nothing was started:"
    assert [fault.partition(": ")[0] for fault in faults] == [
        "  - bad.toml, line 2",
        "  - bad.toml, line 3",
        "  - COMPACTION_PROXY_LOG_LEVEL in the environment",
        "  - the command line",
    ]


def test_a_missing_file_is_said_by_name(tmp_path: Path) -> None:
    done = run("-m", "proxy", "serve", "--config", "none.toml", "--upstream", "http://h", cwd=tmp_path)
    assert done.returncode == 2
    assert "none.toml: there is no such file" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param((), id="no command"),
        pytest.param(("sevre",), id="unknown command"),
        pytest.param(("demo", "--window", "0"), id="no window"),
        pytest.param(("demo", "--turns", "-1"), id="fewer than no turns"),
        pytest.param(("demo", "--turns", "²"), id="a digit that is no number"),
        pytest.param(("serve", "--port", "1"), id="unknown flag"),
    ],
)
def test_wrong_use_shows_the_usage(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = run("-m", "proxy", *arguments, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("usage: compaction-proxy")


def test_nothing_heavy_is_loaded_before_a_command_needs_it(tmp_path: Path) -> None:
    heavy = ("aiohttp", "asyncio", "httpx", "openai", "prometheus_client", "starlette", "tiktoken", "uvicorn")
    script = (
        "import sys; from proxy.__main__ import main; main(['serve']); "
        f"print([name for name in {heavy!r} if name in sys.modules])"
    )
    assert run("-c", script, cwd=tmp_path).stdout == "[]\n"
