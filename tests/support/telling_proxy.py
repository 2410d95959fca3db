"""The command line, which on SIGUSR1 also tells how many tasks its event loop has."""

import asyncio
import signal
import sys

from proxy.__main__ import main


def _tell(*_: object) -> None:
    print(f"tasks {len(asyncio.all_tasks(asyncio.get_running_loop()))}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, _tell)
    sys.exit(main(sys.argv[1:]))
