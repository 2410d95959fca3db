"""
Serve a model that goes on calling a tool until several windows have been passed, behind the proxy.

For clients as they are shipped: they run their own loop over their own history, in whatever
thread they like, so upstream and proxy run in a thread of their own.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from proxy.app import make_app
from proxy.app_process import Proxy
from proxy.config import Config, ContextConfig, StoreConfig, UpstreamConfig
from tests.support.agent_sessions import NOTES_MARKER
from tests.support.answers import Answer
from tests.support.early import EARLY
from tests.support.gate import Gate
from tests.support.prompts import STRICT
from tests.support.recorded import Recorded
from tests.support.scripted import ScriptedUpstream
from tests.support.serving import serving

WINDOW = 4096
TURNS = 21
DONE = "All parts are read: the rate is in part 7."
# Names nothing that a gate could miss in the conversation.
_NOTES = (
    "The agent read one part of the shop after the other and looked for the rate, which it has not found."
)
_KEEPALIVES = "proxy_keepalives_total"


def read_file(path: str) -> str:
    """Read a file of the shop."""
    return f"{path}: " + "the rate of this line is looked up in the table, then rounded. " * 40


@dataclass(slots=True)
class ToolAgent:
    """
    A running proxy before such a model.

    Attributes:
        url: Of the proxy, without `/v1`.
        upstream: What reached the model.
        beats: Whether notes wait until the client was told twice that we live.
        called: Paths for which a client carried out a call, in order.
    """

    url: str
    upstream: ScriptedUpstream
    beats: bool
    called: list[str] = field(default_factory=list)
    keepalives: Callable[[], float] = lambda: 0.0

    def read(self, path: str) -> str:
        """The tool, for whoever runs it."""
        self.called.append(path)
        return read_file(path)

    def is_told(self) -> None:
        """Everything that must hold once the client has its last answer."""
        upstream = self.upstream
        assert {request.status for request in upstream.chats} == {200}
        assert self.called == [f"part{i}.py" for i in range(TURNS)]
        assert len(upstream.turns) == TURNS + 1, "the client asked again"
        assert len(upstream.notes) >= 2
        assert sum(len(read_file(path)) for path in self.called) / 4 > 3 * WINDOW
        assert all(upstream.count(turn.chat) < WINDOW for turn in upstream.turns)
        if self.beats:
            assert self.keepalives() >= 2 * len(upstream.notes)


@contextlib.contextmanager
def tool_agent(*, beats: bool = False, turns: int = TURNS) -> Iterator[ToolAgent]:
    """One with stores of its own; *beats* is for clients that stream."""
    started, leaving = threading.Event(), threading.Event()
    running: list[ToolAgent] = []
    failed: list[BaseException] = []

    async def serve() -> None:
        upstream = ScriptedUpstream(window=WINDOW, strict=STRICT, notes_marker=NOTES_MARKER)
        async with upstream.running():
            config = Config(
                upstream=UpstreamConfig(url=upstream.url),
                # Where no test waits for a heartbeat, none comes.
                context=ContextConfig(**EARLY, keepalive_seconds=0.02 if beats else 3600.0),
                store=StoreConfig(kind="memory"),
            )
            app = make_app(config, {})
            async with serving(app, grace_seconds=1) as url:
                agent = ToolAgent(url, upstream, beats)
                agent.keepalives = _keepalives(app.state.proxy)
                upstream.script = _script(agent, turns)
                running.append(agent)
                started.set()
                await asyncio.to_thread(leaving.wait)

    def run() -> None:
        try:
            asyncio.run(serve())
        except BaseException as error:
            failed.append(error)
            started.set()

    thread = threading.Thread(target=run)
    thread.start()
    started.wait()
    try:
        if failed:
            raise failed[0]
        yield running[0]
    finally:
        leaving.set()
        thread.join()


def _keepalives(proxy: Proxy) -> Callable[[], float]:
    return lambda: proxy.metrics.registry.get_sample_value(_KEEPALIVES) or 0.0


def _script(agent: ToolAgent, turns: int) -> Callable[[Recorded], Answer]:
    tasks: set[asyncio.Task[None]] = set()

    async def open_after_beats(gate: Gate) -> None:
        before = agent.keepalives()
        while agent.keepalives() < before + 2:
            await asyncio.sleep(0.005)
        gate.open()

    def script(request: Recorded) -> Answer:
        if agent.upstream.is_notes(request):
            gate = Gate()
            if agent.beats:
                tasks.add(asyncio.get_running_loop().create_task(open_after_beats(gate)))
            return Answer(text=_NOTES, before=gate if agent.beats else None)
        turn = len(agent.upstream.turns) - 1
        if turn < turns:
            said = "" if _wants_json(request) else f"Step {turn}."
            return Answer(text=said, calls=(("read_file", {"path": f"part{turn}.py"}),))
        text = '{"answer": 7}' if _wants_json(request) else DONE
        return Answer(text=text)

    return script


def _wants_json(request: Recorded) -> bool:
    """Whether the client asked for an answer of a schema."""
    body = request.json
    return any(key in body for key in ("response_format", "text", "output_format", "output_config"))
