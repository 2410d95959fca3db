"""`serve` as a process: which setting wins, what it tells a person, what of the environment it ignores."""

import asyncio
import contextlib
import os
import re
import signal
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from proxy.config import Config, ServerConfig
from proxy.errors import ConfigError
from proxy.serve import listen
from tests.support import wire_bytes
from tests.support.fronted import BODY, CHAT, STREAMED, playing, saying
from tests.support.raw_client import RawRequest, ask
from tests.support.raw_upstream import RawUpstream, Reset, Send, Stall, Step
from tests.support.recorded import Recorded
from tests.support.scripted import ScriptedUpstream

# Where a rule is broken a test may wait for what never comes; it is to fail then, not to hang.
_LONGEST_SECONDS = 60
_LISTENS = re.compile(r"compaction-proxy listens on (http://\S+)")


class Said(list[str]):
    """The lines that a process has written to standard error, as far as they were read."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        super().__init__()
        self.process = process

    async def until(self, beginning: str) -> None:
        """Read up to a line with that *beginning*."""
        assert self.process.stderr is not None
        async with asyncio.timeout(_LONGEST_SECONDS):
            while not self or not self[-1].startswith(beginning):
                self.append((await self.process.stderr.readline()).decode())
                assert self[-1], f"it ended: {self}"


@contextlib.asynccontextmanager
async def served(
    *arguments: str, until: str = "point your agent", **environ: str
) -> AsyncIterator[tuple[str, Said]]:
    """
    The URL of a proxy process, and the lines that it wrote, complete once the block has ended.

    It is yielded when a line begins with *until*.
    """
    kept: Mapping[str, str] = {k: v for k, v in os.environ.items() if "PROXY" not in k.upper()}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "proxy", "serve", "--listen", "127.0.0.1:0", *arguments,
        env={**kept, "COMPACTION_PROXY_STORE_KIND": "memory", **environ},
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stderr is not None
    lines = Said(process)
    try:
        await lines.until("compaction-proxy listens on ")
        listens = _LISTENS.match(lines[-1])
        assert listens
        await lines.until(until)
        yield listens[1], lines
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        lines += (await process.stderr.read()).decode().splitlines(keepends=True)
        await process.wait()


def chats(upstream: RawUpstream) -> int:
    return len([r for r in upstream.requests if r.path == CHAT])


@pytest.mark.parametrize(
    ("given", "used"),
    [
        pytest.param(("file",), 0, id="the file"),
        pytest.param(("file", "environment"), 1, id="the environment over the file"),
        pytest.param(("file", "environment", "flag"), 2, id="a flag over both"),
        pytest.param(("file", "flag"), 2, id="a flag over the file"),
    ],
)
async def test_the_upstream_that_is_named_nearest_gets_the_request(
    given: tuple[str, ...], used: int, tmp_path: Path
) -> None:
    async with saying().running() as a, saying().running() as b, saying().running() as c:
        file = tmp_path / "config.toml"
        file.write_text(f'[upstream]\nurl = "{a.url}"\n')
        environ = {"COMPACTION_PROXY_UPSTREAM": b.url} if "environment" in given else {}
        flags = ("--upstream", c.url) if "flag" in given else ()
        async with served("--config", str(file), *flags, **environ) as (url, _):
            assert (await ask(url, CHAT, body=BODY))[0].status == 200
    assert [chats(upstream) for upstream in (a, b, c)] == [int(i == used) for i in range(3)]


async def test_a_proxy_of_the_environment_is_not_used() -> None:
    nowhere = "http://127.0.0.1:9"
    names = ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY", "all_proxy")
    async with (
        saying().running() as upstream,
        served("--upstream", upstream.url, **dict.fromkeys(names, nowhere)) as (url, _),
    ):
        answer, _ = await ask(url, CHAT, body=BODY)
    assert (answer.status, chats(upstream)) == (200, 1)


@pytest.mark.parametrize("path", [CHAT, "/livez", "/v1/files"])
async def test_no_server_and_no_date_is_invented(path: str) -> None:
    own = [("Server", "llama.cpp"), ("Date", "Mon, 01 Jan 2024 00:00:00 GMT")]
    async with saying(headers=own).running() as upstream, served("--upstream", upstream.url) as (url, _):
        answer, _ = await ask(url, path, method="GET" if path == "/livez" else "POST", body=b"")
    found = [(n.title(), v) for n, v in answer.headers if n.lower() in ("server", "date")]
    assert found == ([] if path == "/livez" else own)


async def test_a_person_is_told_where_it_listens_and_what_was_found() -> None:
    async with (
        ScriptedUpstream(window=8192, slots=1).running() as upstream,
        served("--upstream", upstream.url + "/v1", until="upstream ") as (url, lines),
    ):
        pass
    assert lines == [
        f"compaction-proxy listens on {url}\n",
        f"point your agent here: base_url = {url}/v1\n",
        f"upstream {upstream.url}: llama.cpp, window 8192 (/props default_generation_settings.n_ctx), "
        "1 slot; prompts may take 7168, compaction above 4300\n",
    ]


async def test_a_window_that_nobody_tells_is_told_as_such() -> None:
    async with (
        saying().running() as upstream,
        served("--upstream", upstream.url, until="upstream ") as (_, lines),
    ):
        pass
    assert "window not known" in lines[2] and "`context.window`" in lines[2]


async def test_an_upstream_that_is_started_later_is_told_when_it_answers() -> None:
    is_up = False

    def script(_: Recorded) -> list[Step] | None:
        return None if is_up else [Reset()]

    async with (
        ScriptedUpstream(window=8192, slots=1).running() as server,
        RawUpstream(script=script, behind=server.url).running() as upstream,
        served("--upstream", upstream.url, until="upstream ") as (_, lines),
    ):
        is_up = True
        await lines.until(f"upstream {upstream.url}: llama.cpp, window 8192 (")
    assert lines[2].startswith(f"upstream not ready yet: no answer from the upstream at {upstream.url} (")
    assert len(lines) == 4


async def test_an_upstream_that_loads_is_told_as_such() -> None:
    loading = [Send(wire_bytes.status(503))]
    async with (
        RawUpstream(script=lambda _: loading).running() as upstream,
        served("--upstream", upstream.url, until="upstream ") as (_, lines),
    ):
        pass
    assert lines[2:] == ["upstream not ready yet: it is loading its model\n"]


async def test_a_stop_that_waits_for_open_answers_says_so_and_a_second_one_cuts_them_off() -> None:
    begun: list[Step] = [
        Send(wire_bytes.response(b"data: 1\n\n", length=99, content_type="text/event-stream")),
        Stall(),
    ]
    async with (
        playing(lambda _: begun).running() as upstream,
        served("--upstream", upstream.url, until="upstream ") as (url, lines),
        RawRequest(url, CHAT, body=STREAMED) as request,
    ):
        await request.answer()
        lines.process.send_signal(signal.SIGINT)
        await lines.until("stopping: ")
        lines.process.send_signal(signal.SIGINT)
        assert await lines.process.wait() == 130
    assert lines[3:] == [
        "stopping: open answers have up to 30 seconds to end; Ctrl-C cuts them off at once\n"
    ]


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
async def test_small_writes_leave_at_once(host: str) -> None:
    """Else each piece of a stream would wait for the client to acknowledge the one before."""
    seen: list[int] = []
    done = asyncio.Event()

    def meet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()
        done.set()

    listening = listen(Config(server=ServerConfig(listen=f"{host}:0")))
    async with await asyncio.start_server(meet, sock=listening):
        _, writer = await asyncio.open_connection(*listening.getsockname()[:2])
        await done.wait()
        writer.close()
    assert seen[0]


def test_a_port_that_is_taken_is_told_with_the_remedy() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ConfigError) as error:
            listen(Config(server=ServerConfig(listen=address)))
    said = str(error.value)
    assert said.startswith(f"server.listen: cannot listen on {address} (Address already in use")
    assert said.endswith("; is another proxy running there? Choose another with --listen")
