"""
Two callers with the very same conversation before one upstream: nothing of the one reaches the other.

What a caller could notice is what reaches the upstream for it, and what it gets. So both are
compared to the last byte: once where somebody else had the same conversation before, once where
somebody else had a twin of it, equal in every size and different from its first message on.
How long things take follows from what is done for a request; no clock is asked here.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from proxy.app import make_app
from proxy.config import Config, ContextConfig, ServerConfig, StoreConfig, UpstreamConfig
from tests.support.agent_sessions import NOTES_MARKER, AgentSession
from tests.support.answers import Answer
from tests.support.formats import FORMATS, Format
from tests.support.gate import Gate
from tests.support.raw_client import RawRequest, ask
from tests.support.recorded import Recorded
from tests.support.scripted import ScriptedUpstream
from tests.support.serving import serving

WINDOW = 4096
ONE, TWO = "sk-one-4711", "sk-two-0815"
TASK = "Port the shop to the new tax rules. Never touch the folder legacy"
SAME, TWIN = f"{TASK}.", f"{TASK}!"

ALL_FORMATS = pytest.mark.parametrize("kind", FORMATS, ids=lambda kind: kind.name)
WHOSE_KEYS = pytest.mark.parametrize("keys", [(ONE, TWO), ()], ids=["keys of the proxy", "keys passed on"])


@dataclass(slots=True)
class Place:
    """A proxy, and an upstream whose notes are numbered in the order in which they are asked for."""

    url: str
    upstream: ScriptedUpstream
    gates: dict[int, Gate] = field(default_factory=dict)

    def script(self, request: Recorded) -> Answer | None:
        if not self.upstream.is_notes(request):
            return None
        number = len(self.upstream.notes)
        text = f"The agent worked through the parts src/alice/part0.py and on; canary-{number}."
        return Answer(text=text, before=self.gates.get(number))

    async def send(self, kind: Format, session: AgentSession, key: str) -> tuple[dict[str, str], bytes]:
        """Headers and body of an answer."""
        answer, body = await ask(self.url, kind.path, body=kind.wire(session.body()), headers=heads(key))
        assert answer.status == 200, body
        return {name.lower(): value for name, value in answer.headers}, body


def heads(key: str) -> list[tuple[str, str]]:
    return [("Content-Type", "application/json"), ("Authorization", f"Bearer {key}")]


@contextlib.asynccontextmanager
async def place(
    keys: tuple[str, ...], *, slots: int = 1, store: StoreConfig | None = None, **context: Any
) -> AsyncIterator[Place]:
    upstream = ScriptedUpstream(window=WINDOW, slots=slots, notes_marker=NOTES_MARKER)
    async with upstream.running():
        config = Config(
            server=ServerConfig(keys=keys),
            upstream=UpstreamConfig(url=upstream.url),
            context=ContextConfig(**context),
            store=store or StoreConfig(kind="memory"),
        )
        async with serving(make_app(config, {})) as url:
            made = Place(url, upstream)
            upstream.script = made.script
            # Where callers are not kept apart, one may wait for what never comes.
            async with asyncio.timeout(60):
                yield made


def session(task: str = SAME, turns: int = 21) -> AgentSession:
    return AgentSession(name="alice", task=task).step(turns)


def canaries(*texts: bytes) -> set[str]:
    return {f"canary-{i}" for i in range(1, 9) if any(f"canary-{i}".encode() in text for text in texts)}


async def trace_of_two(kind: Format, keys: tuple[str, ...], before: str) -> list[tuple[str, bytes]]:
    """All that is done for the second caller, and all that it gets, after the first had *before*."""
    seen: list[tuple[str, bytes]] = []
    async with place(keys) as at:
        first = session(before)
        for _ in range(4):
            await at.send(kind, first, ONE)
            first.step()
        assert len(at.upstream.notes) == 1
        arrived = len(at.upstream.requests)
        second = session()
        for _ in range(4):
            headers, _ = await at.send(kind, second, TWO)
            # The reply names how long it took, and when it was made.
            seen.append((headers["x-compaction"], headers["x-context-tokens"].encode()))
            second.step()
        seen += [(f"{r.method} {r.path}", r.body) for r in at.upstream.requests[arrived:]]
    return seen


@WHOSE_KEYS
@ALL_FORMATS
async def test_a_caller_cannot_tell_whether_another_had_its_conversation(
    kind: Format, keys: tuple[str, ...]
) -> None:
    after_the_same = await trace_of_two(kind, keys, SAME)
    after_a_twin = await trace_of_two(kind, keys, TWIN)
    assert after_the_same == after_a_twin
    assert [outcome for outcome, _ in after_the_same[:4]] == ["compacted", "reused", "reused", "reused"]
    assert canaries(*(body for _, body in after_the_same)) == {"canary-2"}


@WHOSE_KEYS
@ALL_FORMATS
async def test_notes_in_flight_for_one_caller_are_not_waited_for_by_another(
    kind: Format, keys: tuple[str, ...]
) -> None:
    async with place(keys, slots=2) as at:
        at.gates = {1: Gate(), 2: Gate()}
        one = asyncio.create_task(at.send(kind, session(), ONE))
        await at.upstream.until(lambda server: len(server.notes) == 1)
        two = asyncio.create_task(at.send(kind, session(), TWO))
        # Its own are asked for, although those of the first are not there yet.
        await at.upstream.until(lambda server: len(server.notes) == 2)
        at.gates[2].open()
        await two
        assert not one.done()
        [view] = at.upstream.turns
        assert canaries(view.body) == {"canary-2"}
        at.gates[1].open()
        await one
        assert canaries(at.upstream.turns[1].body) == {"canary-1"}


@ALL_FORMATS
async def test_a_caller_that_leaves_takes_nothing_from_another(kind: Format) -> None:
    async with place((ONE, TWO), slots=2) as at:
        at.gates = {1: Gate(), 2: Gate()}
        async with RawRequest(
            at.url, kind.path, body=kind.wire(session().body()), headers=heads(ONE)
        ) as leaving:
            await at.upstream.until(lambda server: len(server.notes) == 1)
            two = asyncio.create_task(at.send(kind, session(), TWO))
            await at.upstream.until(lambda server: len(server.notes) == 2)
            leaving.reset()
        await at.upstream.until(lambda server: server.notes[0].is_cancelled)
        at.gates[2].open()
        headers, _ = await two
    assert headers["x-compaction"] == "compacted"


async def test_notes_that_failed_for_one_caller_are_tried_for_another() -> None:
    [kind] = [kind for kind in FORMATS if kind.name == "chat"]
    async with place((ONE, TWO)) as at:
        at.upstream.script = lambda r: Answer(text="") if at.upstream.is_notes(r) else None
        headers, _ = await at.send(kind, session(), ONE)
        assert headers["x-compaction"] in ("failed", "trimmed")
        failed = len(at.upstream.notes)
        headers, _ = await at.send(kind, session(), TWO)
        assert headers["x-compaction"] in ("failed", "trimmed")
        assert len(at.upstream.notes) == 2 * failed


async def test_the_size_that_a_caller_is_told_is_that_of_its_own_view() -> None:
    [kind] = [kind for kind in FORMATS if kind.name == "messages"]
    async with place((ONE, TWO)) as at:
        await at.send(kind, session(), ONE)
        counted = []
        for key in (ONE, TWO):
            body = {k: v for k, v in json.loads(kind.wire(session().body())).items() if k != "max_tokens"}
            _, said = await ask(at.url, kind.path + "/count_tokens", body=body, headers=heads(key))
            counted.append(json.loads(said)["input_tokens"])
    assert counted[0] < 0.6 * counted[1]


async def test_notes_made_ahead_for_one_caller_are_not_used_for_another() -> None:
    [kind] = [kind for kind in FORMATS if kind.name == "chat"]
    call = Answer(text="I look. " * 5, calls=(("read_file", {"path": "src/a.py"}),))
    async with place((ONE, TWO), mode="ahead", prewarm=False, compact_ahead_at=0.3) as at:
        at.upstream.script = lambda r: at.script(r) or call
        growing = session(turns=6)
        while not at.upstream.notes:
            await at.send(kind, growing, ONE)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.5):
                    await at.upstream.until(lambda server: bool(server.notes))
            growing.step()
        growing.step(6)
        await at.send(kind, growing, TWO)
        assert "canary-1" not in canaries(at.upstream.turns[-1].body)
        await at.send(kind, growing, ONE)
        assert canaries(at.upstream.turns[-1].body) == {"canary-1"}


async def test_after_a_restart_callers_are_told_apart_as_before(tmp_path: Path) -> None:
    [kind] = [kind for kind in FORMATS if kind.name == "chat"]
    store = StoreConfig(path=str(tmp_path / "s.sqlite3"))
    async with place((ONE, TWO), store=store) as at:
        await at.send(kind, session(), ONE)
    async with place((ONE, TWO), store=store) as at:
        outcomes = [(await at.send(kind, session(), key))[0]["x-compaction"] for key in (TWO, ONE)]
    assert outcomes == ["compacted", "reused"]
    assert ONE.encode() not in (tmp_path / "s.sqlite3").read_bytes()


async def test_one_key_is_one_caller_in_whatever_header_it_comes() -> None:
    [kind] = [kind for kind in FORMATS if kind.name == "messages"]
    body = kind.wire(session().body())
    async with place((ONE, TWO)) as at:
        outcomes = []
        for header in (("x-api-key", ONE), ("Authorization", f"Bearer {ONE}"), ("X-Api-Key", TWO)):
            answer, _ = await ask(at.url, kind.path, body=body, headers=[header])
            outcomes.append(answer.header("x-compaction"))
    assert outcomes == ["compacted", "reused", "compacted"]


async def test_keys_of_the_proxy_that_look_like_tokens_of_one_subject_are_two() -> None:
    """Of a token that is passed on only issuer and subject count; nobody checks ours but by its letters."""
    [kind] = [kind for kind in FORMATS if kind.name == "chat"]
    claims = "eyJpc3MiOiJpIiwic3ViIjoicyJ9"
    keys = (f"eyJhbGciOiJub25lIn0.{claims}.first", f"eyJhbGciOiJub25lIn0.{claims}.second")
    async with place(keys) as at:
        outcomes = [(await at.send(kind, session(), key))[0]["x-compaction"] for key in keys]
    assert outcomes == ["compacted", "compacted"]


async def test_callers_without_a_key_are_one() -> None:
    [kind] = [kind for kind in FORMATS if kind.name == "chat"]
    async with place(()) as at:
        outcomes = []
        for _ in range(2):
            answer, _ = await ask(at.url, kind.path, body=kind.wire(session().body()))
            outcomes.append(answer.header("x-compaction"))
    assert outcomes == ["compacted", "reused"]
