"""
Run an agent as it is shipped through the proxy, on a model that has it read until three windows are passed.

The scripted model has it read one file after the other with its own tools, each with a mark
that nothing else holds, and then says that all is done. What is wrong with what came of it,
`seen` says.
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from proxy.app import make_app
from proxy.config import Config, ContextConfig, StoreConfig, UpstreamConfig
from proxy.serve import server_config
from tests.agents.agents import DONE, TASK, Agent, Place
from tests.agents.seen import Run, is_work
from tests.support.agent_sessions import NOTES_MARKER
from tests.support.answers import Answer
from tests.support.early import EARLY
from tests.support.prompts import Rule
from tests.support.recorded import Recorded
from tests.support.scripted import ScriptedUpstream
from tests.support.serving import serving

# Of the window: small enough that a turn is one step of many, as with real work.
_FILE_SHARE = 0.14
_WINDOWS = 3
_ROW = "row {row} of part {part}: the rate is looked up in the table, then rounded."
_LONGEST_SECONDS = 300
_CHARS_PER_TOKEN = 4
# Other ones each time: notes that repeat the earlier ones are refused.
_NOTES = (
    "The agent went through the shop file by file and looked for the rate, which it has not found yet. "
    "It has seen {files} of them, the last one was {name}."
)


@dataclass(slots=True)
class _Model:
    """Answers so that the agent reads on, whatever else it asks in between."""

    agent: Agent
    files: list[Path]
    upstream: ScriptedUpstream
    given: int = 0

    def __call__(self, request: Recorded) -> Answer:
        if self.upstream.is_notes(request):
            last = self.files[min(self.given, len(self.files)) - 1]
            return Answer(text=_NOTES.format(files=self.given, name=last.name))
        if not is_work(self.agent, request):
            return Answer(text="The rate of the shop")
        step, self.given = self.given, self.given + 1
        if step < len(self.files):
            calls = [self.agent.read(self.files[step])] if self.agent.read else []
            if self.agent.look and step % 4 == 0:
                calls.append(self.agent.look(self.files[step].parent))
            return Answer(text=f"Part {step} comes next.", calls=tuple(calls))
        if self.agent.end is not None:
            return Answer(text=DONE, calls=(self.agent.end,))
        return Answer(text=DONE)


async def run(agent: Agent, folder: Path) -> Run:
    """
    Run *agent*, which is installed, in the empty *folder*.

    Raises:
        OSError: If it cannot be started.
    """
    upstream = ScriptedUpstream(
        window=agent.window, strict=frozenset({Rule.ORPHAN_RESULT}), notes_marker=NOTES_MARKER
    )
    home, work = folder / "home", folder / "work"
    home.mkdir()
    marks = dict(_write_files(work / "shop", agent.window))
    upstream.script = _Model(agent, list(marks), upstream)
    store = StoreConfig(kind="sqlite", path=str(folder / "store.sqlite3"))
    async with upstream.running(), _catching() as (outside, trap):
        to = UpstreamConfig(url=upstream.url)
        config = Config(upstream=to, context=ContextConfig(**EARLY), store=store)
        app = make_app(config, {})
        async with serving(app, grace_seconds=1, config=server_config(app)) as url:
            place = Place(url=url, home=home, work=work)
            typed = "".join([TASK, "\n", *map(agent.typed, marks), "/exit\n"]) if agent.typed else ""
            exit_code, output = await _start(agent, place, trap, typed)
            sample = app.state.proxy.metrics.registry.collect()
    total = _totals(sample)
    return Run(
        agent=agent,
        exit_code=exit_code,
        # The folders' names may hold any word.
        output=output.replace(str(folder), "").replace(str(agent.package.folder), ""),
        upstream=upstream,
        marks=list(marks.values()),
        compacted=total("context_compacted_total"),
        trimmed=total("context_trimmed_total"),
        outside=outside,
    )


def _write_files(folder: Path, window: int) -> Iterator[tuple[Path, str]]:
    """The files to read, more than three windows together, each with its mark on its first and last line."""
    folder.mkdir(parents=True)
    # What an agent shows of one output without cutting it.
    size = min(int(window * _FILE_SHARE) * _CHARS_PER_TOKEN, 9000)
    for i in range(_WINDOWS * window * _CHARS_PER_TOKEN // size + 2):
        mark = f"mark-{i}-of-the-shop"
        # A row has more than sixty characters.
        rows = [_ROW.format(row=j, part=i) for j in range(size // 60 + 1)]
        end = f"\n# end of {mark}\n"
        path = folder / f"part{i}.txt"
        path.write_text("\n".join([f"# {mark}", *rows])[: size - len(end)] + end)
        yield path, mark


async def _start(agent: Agent, place: Place, trap: str, typed: str) -> tuple[int | None, str]:
    for name, text in agent.files(place).items():
        path = place.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    programs = [str(folder) for folder in agent.package.programs]
    environ = {
        "HOME": str(place.home),
        "PATH": os.pathsep.join([*programs, os.environ.get("PATH", os.defpath)]),
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "NO_COLOR": "1",
        "COLUMNS": "200",
        "NO_PROXY": "127.0.0.1,localhost",
        "no_proxy": "127.0.0.1,localhost",
    }
    # Whatever it wants from elsewhere ends up in the trap.
    environ |= dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), trap)
    process = await asyncio.create_subprocess_exec(
        agent.package.path,
        *agent.command(place),
        cwd=place.work,
        env=environ | agent.environ(place),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    printed = bytearray()

    async def listen() -> None:
        assert process.stdout is not None
        assert process.stdin is not None
        process.stdin.write(typed.encode())
        process.stdin.close()
        while piece := await process.stdout.read(65536):
            printed.extend(piece)
        await process.wait()

    try:
        await asyncio.wait_for(listen(), _LONGEST_SECONDS)
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        await process.wait()
        return None, printed.decode(errors="replace")
    return process.returncode, printed.decode(errors="replace")


@contextlib.asynccontextmanager
async def _catching() -> AsyncIterator[tuple[list[str], str]]:
    """An HTTP proxy that lets nothing through: what was asked of it, and its URL."""
    asked: list[str] = []

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        words = (await reader.readline()).decode(errors="replace").split()
        asked.append(words[1] if len(words) > 1 else "?")
        with contextlib.suppress(ConnectionError):
            writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            await writer.drain()
            writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        yield asked, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def _totals(families: object) -> Callable[[str], int]:
    samples = [sample for family in families for sample in family.samples]  # type: ignore[attr-defined]
    return lambda name: int(sum(sample.value for sample in samples if sample.name == name))
