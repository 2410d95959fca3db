"""
Say of each agent how it is pointed at the proxy, and how the scripted model has it read.

All of it is what the agent documents: its own files in its own home, its own variables, its
own command line for runs without a person. Nothing of the agent is changed.
"""

import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.agents.installing import PACKAGES, Package

MODEL = "scripted"
TASK = "Read every part of the shop, one after the other, and tell the rate."
DONE = "All parts are read: the rate is 19 percent."

Call = tuple[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """
    Where an agent runs.

    Attributes:
        url: Of the proxy, without `/v1`.
        home: The agent's home folder, empty but for its own files.
        work: The folder that it works in.
    """

    url: str
    home: Path
    work: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """
    One agent.

    Attributes:
        package: What is installed.
        window: That the scripted upstream has: a few times what the agent sends before any work.
        command: After the program's name.
        files: By their path in the home folder.
        environ: Besides HOME, PATH and the like.
        read: The call that reads the file of this path.
        look: The call that lists the folder of this path.
        end: The call that ends the run; None where a text without calls does.
        typed: What a person types for each file, for an agent whose model calls no tools.
        reaches: Hosts that it turns to whatever is set; it gets no answer there, and goes on.
        changes_last: Whether its last message is another one once something follows.
    """

    package: Package
    window: int
    command: Callable[[Place], list[str]]
    files: Callable[[Place], dict[str, str]] = lambda _: {}
    environ: Callable[[Place], dict[str, str]] = lambda _: {}
    read: Callable[[Path], Call] | None = None
    look: Callable[[Path], Call] | None = None
    end: Call | None = None
    typed: Callable[[Path], str] | None = None
    reaches: frozenset[str] = frozenset()
    changes_last: bool = False


def _pi_files(place: Place) -> dict[str, str]:
    provider = {
        "baseUrl": f"{place.url}/v1",
        "api": "openai-completions",
        "apiKey": "none",
        "models": [{"id": MODEL}],
    }
    return {".pi/agent/models.json": json.dumps({"providers": {"local": provider}})}


PI = Agent(
    package=PACKAGES["pi"],
    window=16384,
    files=_pi_files,
    environ=lambda _: {"PI_OFFLINE": "1", "PI_TELEMETRY": "0"},
    command=lambda _: ["--provider", "local", "--model", MODEL, "--tools", "read,ls", "-p", TASK],
    read=lambda path: ("read", {"path": str(path)}),
    look=lambda path: ("ls", {"path": str(path)}),
)


def _codex_files(place: Place) -> dict[str, str]:
    config = f"""\
model = "{MODEL}"
model_provider = "local"
check_for_update_on_startup = false
[model_providers.local]
name = "local"
base_url = "{place.url}/v1"
wire_api = "responses"
[analytics]
enabled = false
[features]
plugins = false
"""
    return {".codex/config.toml": config}


CODEX = Agent(
    package=PACKAGES["codex"],
    window=32768,
    files=_codex_files,
    # Its sandbox needs rights that a container may not give; the scripted model only reads.
    command=lambda _: [
        "exec",
        "--skip-git-repo-check",
        "--dangerously-bypass-approvals-and-sandbox",
        TASK,
    ],
    read=lambda path: ("exec_command", {"cmd": f"cat {shlex.quote(str(path))}"}),
    look=lambda path: ("exec_command", {"cmd": f"ls {shlex.quote(str(path))}"}),
)

CLAUDE_CODE = Agent(
    package=PACKAGES["claude-code"],
    window=40960,
    environ=lambda place: {
        "ANTHROPIC_BASE_URL": place.url,
        "ANTHROPIC_AUTH_TOKEN": "none",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_ERROR_REPORTING": "1",
        "DISABLE_AUTOUPDATER": "1",
    },
    command=lambda _: ["-p", "--model", MODEL, "--allowedTools", "Read,Bash(ls:*)", "--", TASK],
    read=lambda path: ("Read", {"file_path": str(path)}),
    look=lambda path: ("Bash", {"command": f"ls {shlex.quote(str(path))}", "description": "List"}),
)


def _opencode_files(place: Place) -> dict[str, str]:
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": f"{place.url}/v1", "apiKey": "none"},
        "models": {MODEL: {"limit": {"context": 200000, "output": 4096}}},
    }
    config = {"provider": {"local": provider}, "autoupdate": False, "share": "disabled"}
    return {".config/opencode/opencode.json": json.dumps(config)}


OPENCODE = Agent(
    package=PACKAGES["opencode"],
    window=32768,
    files=_opencode_files,
    environ=lambda _: {
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
    },
    command=lambda _: ["run", "--pure", "-m", f"local/{MODEL}", TASK],
    read=lambda path: ("read", {"filePath": str(path)}),
    look=lambda path: ("read", {"filePath": str(path)}),
    # For a package that plugins would need.
    reaches=frozenset({"registry.npmjs.org:443"}),
)


def _qwen_files(_: Place) -> dict[str, str]:
    settings = {
        "privacy": {"usageStatisticsEnabled": False},
        "general": {"disableAutoUpdate": True, "enableAutoUpdate": False},
        "telemetry": {"enabled": False},
        # Else it empties old results once there are 500,000 characters of them, and what was
        # compacted of them is unknown then.
        "context": {"clearContextOnIdle": {"toolResultsTotalCharsThreshold": -1}},
    }
    return {".qwen/settings.json": json.dumps(settings)}


QWEN_CODE = Agent(
    package=PACKAGES["qwen-code"],
    window=40960,
    files=_qwen_files,
    environ=lambda place: {
        "OPENAI_BASE_URL": f"{place.url}/v1",
        "OPENAI_API_KEY": "none",
        "OPENAI_MODEL": MODEL,
    },
    command=lambda _: ["--auth-type", "openai", "--approval-mode", "yolo", "-p", TASK],
    read=lambda path: ("read_file", {"file_path": str(path)}),
    look=lambda path: ("glob", {"pattern": "*.txt", "path": str(path)}),
)

MINI_SWE_AGENT = Agent(
    package=PACKAGES["mini-swe-agent"],
    window=16384,
    environ=lambda place: {
        "MSWEA_CONFIGURED": "true",
        "MSWEA_COST_TRACKING": "ignore_errors",
        "OPENAI_API_KEY": "none",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    },
    command=lambda place: [
        *("-y", "--exit-immediately", "-m", f"openai/{MODEL}", "-t", TASK, "-c", "mini.yaml"),
        *("-c", f"model.model_kwargs.api_base={place.url}/v1"),
    ],
    # It shows the model 10,000 characters of an output.
    read=lambda path: ("bash", {"command": f"head -c 9000 {shlex.quote(str(path))}"}),
    look=lambda path: ("bash", {"command": f"ls {shlex.quote(str(path))}"}),
    end=("bash", {"command": f"echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; echo {shlex.quote(DONE)}"}),
)

# Its model calls no tools: a person types what is to be run, and what that says is shown to the model.
AIDER = Agent(
    package=PACKAGES["aider"],
    window=16384,
    environ=lambda place: {
        "OPENAI_API_BASE": f"{place.url}/v1",
        "OPENAI_API_KEY": "none",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    },
    command=lambda _: [
        *("--model", f"openai/{MODEL}", "--chat-mode", "ask", "--yes-always", "--no-git", "--no-gitignore"),
        *("--analytics-disable", "--no-check-update", "--no-show-release-notes", "--no-show-model-warnings"),
        *("--no-fancy-input", "--no-pretty", "--map-tokens", "0", "--max-chat-history-tokens", "1000000"),
    ],
    typed=lambda path: f"/run cat {shlex.quote(str(path))}\nGo on with {path.name}.\n",
    # For a list of prices.
    reaches=frozenset({"raw.githubusercontent.com:443"}),
    changes_last=True,
)

AGENTS = {
    "pi": PI,
    "codex": CODEX,
    "claude-code": CLAUDE_CODE,
    "opencode": OPENCODE,
    "qwen-code": QWEN_CODE,
    "mini-swe-agent": MINI_SWE_AGENT,
    "aider": AIDER,
}
