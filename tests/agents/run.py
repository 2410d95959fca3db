"""
Run agents as they are shipped through the proxy, and print what was seen.

    python -m tests.agents.run pi codex           those two, if they are installed
    python -m tests.agents.run --install          all of them, installing what is missing
"""

import argparse
import asyncio
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.agents.agents import AGENTS
from tests.agents.running import run
from tests.agents.seen import explain, show


def main(arguments: list[str]) -> int:
    """0 where every agent that could be run noticed nothing."""
    parser = argparse.ArgumentParser(description="Run agents as they are shipped through the proxy.")
    parser.add_argument("names", nargs="*", metavar="AGENT", help=f"of {', '.join(AGENTS)}; default: all")
    parser.add_argument("--install", action="store_true", help="install what is missing, with npm or pip")
    parser.add_argument("--output", action="store_true", help="print what the agent printed")
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.names if name not in AGENTS]:
        parser.error(f"no such agent: {', '.join(unknown)}")
    return max([_one(name, options) for name in options.names or AGENTS], default=0)


def _one(name: str, options: argparse.Namespace) -> int:
    agent = AGENTS[name]
    try:
        if options.install:
            agent.package.install()
    except (OSError, subprocess.SubprocessError) as error:
        print(f"{name}: cannot be installed: {error}")
        return 0
    if not agent.package.is_installed:
        print(f"{name}: not installed; --install does it")
        return 0
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        seen = asyncio.run(run(agent, Path(folder)))
    print(show(name, seen))
    if seen.faults:
        print(explain(seen))
    elif options.output:
        print(seen.output)
    return bool(seen.faults)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
