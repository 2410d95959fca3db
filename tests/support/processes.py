"""
Run the proxy as a process of its own, and see from outside what it holds: memory, handles, sockets.
"""

import asyncio
import contextlib
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
_LISTENS = re.compile(r"listens on (http://\S+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """
    What a process holds at one moment, by `/proc`.

    Attributes:
        memory_bytes: That is really in memory.
        cpu_seconds: Spent since its start.
        handles: Open files, sockets and pipes.
        sockets: Of those the sockets.
    """

    memory_bytes: int
    cpu_seconds: float
    handles: int
    sockets: int


@dataclass(slots=True)
class ProxyProcess:
    """
    A running `compaction-proxy serve`.

    Attributes:
        said: The last lines that it has written to standard error.
        told: What it told of its tasks.
    """

    url: str
    process: asyncio.subprocess.Process
    said: list[str]
    told: list[int] = field(default_factory=list)

    def held(self) -> Held:
        """What it holds now; for Linux."""
        proc = Path(f"/proc/{self.process.pid}")
        resident = int((proc / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        # What stands in brackets before these fields may hold anything.
        times = (proc / "stat").read_text().rpartition(")")[2].split()[11:13]
        cpu_seconds = sum(map(int, times)) / os.sysconf("SC_CLK_TCK")
        targets = []
        for handle in (proc / "fd").iterdir():
            # One may be closed while the others are read.
            with contextlib.suppress(FileNotFoundError):
                targets.append(os.readlink(handle))
        sockets = sum(target.startswith("socket:") for target in targets)
        return Held(memory_bytes=resident, cpu_seconds=cpu_seconds, handles=len(targets), sockets=sockets)

    async def tasks(self) -> int:
        """How many tasks its event loop has now; only `tests.support.telling_proxy` can tell."""
        before = len(self.told)
        self.process.send_signal(signal.SIGUSR1)
        async with asyncio.timeout(10):
            while len(self.told) == before:
                await asyncio.sleep(0.01)
        return self.told[-1]

    async def kill(self) -> None:
        """End it as a power cut would."""
        self.process.kill()
        await self.process.wait()


@contextlib.asynccontextmanager
async def proxy_process(
    upstream: str,
    settings: Mapping[str, object],
    *,
    port: int = 0,
    state: Path | None = None,
    module: str = "proxy",
) -> AsyncIterator[ProxyProcess]:
    """
    The proxy before *upstream*; *settings* by `table.key`. It has ended when this returns.

    Args:
        upstream: Base URL.
        settings: As in config.toml, by `table.key`.
        port: Where it listens; 0 for any free one.
        state: The folder of its store, where *settings* do not say otherwise; None keeps it in memory.
        module: What is run; `tests.support.telling_proxy` can be asked for its `tasks`.
    """
    environ = {k: v for k, v in os.environ.items() if not k.startswith("COMPACTION_PROXY_")}
    environ["PYTHONPATH"] = str(ROOT)
    kept: dict[str, object] = (
        {"store.kind": "memory"} if state is None else {"store.path": state / "store.sqlite3"}
    )
    for key, value in (kept | dict(settings)).items():
        environ[f"COMPACTION_PROXY_{key.replace('.', '_').upper()}"] = str(value)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", module, "serve", "--upstream", upstream, "--listen", f"127.0.0.1:{port}"),
        env=environ,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    said: list[str] = []
    url = ""
    while not url:
        line = (await process.stderr.readline()).decode("utf-8", "replace")
        said.append(line)
        if not line:
            raise RuntimeError(f"the proxy did not start: {''.join(said)}")
        if found := _LISTENS.search(line):
            url = found[1]
    running = ProxyProcess(url, process, said)
    listening = asyncio.create_task(_listen(process.stderr, running))
    try:
        yield running
    finally:
        if process.returncode is None:
            process.terminate()
            try:
                async with asyncio.timeout(10):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()
        await listening


async def _listen(stream: asyncio.StreamReader, running: ProxyProcess) -> None:
    """Keep the last lines, so that a full pipe never stops the process."""
    while line := (await stream.readline()).decode("utf-8", "replace"):
        if line.startswith("tasks "):
            running.told.append(int(line.split()[1]))
            continue
        running.said.append(line)
        del running.said[:-2000]
