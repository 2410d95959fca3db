"""Who is who: nothing but the messages themselves, within one caller's key, says which conversation it is."""

import json
from base64 import urlsafe_b64encode
from pathlib import Path

import pytest
from openai import AsyncOpenAI

from proxy.config import StoreConfig
from tests.cases.table import case
from tests.support.agent_sessions import AgentSession, marks, names, remembering_upstream
from tests.support.formats import FORMATS, Format
from tests.support.proxied import MEMORY, Walked, proxied
from tests.support.scripted import ScriptedUpstream

EACH_FORMAT = pytest.mark.parametrize("wire_format", FORMATS, ids=lambda f: f.name)
WINDOW = 4096
REMINDER = (
    "<system-reminder>\n"
    + "The workspace holds these files: a.py, b.py, c.py.\n" * 80
    + "</system-reminder>\n"
)
Headers = tuple[tuple[str, str], ...]


def session(name: str, task: str) -> AgentSession:
    return AgentSession(name=name, task=task)


async def run(
    upstream: ScriptedUpstream,
    sessions: list[AgentSession],
    wire_format: Format,
    *,
    turns: int,
    store: StoreConfig = MEMORY,
    headers: Headers = (),
    restart: bool = False,
) -> dict[str, list[Walked]]:
    """Send the sessions in turn, one request each; halfway through the proxy starts anew where it is to."""
    walks: dict[str, list[Walked]] = {one.name: [] for one in sessions}
    for _ in range(2 if restart else 1):
        async with proxied(upstream, store=store) as proxy:
            for _ in range(turns // (2 if restart else 1)):
                for one in sessions:
                    raw = wire_format.wire(one.step().body())
                    walks[one.name].append(await proxy.send(raw, path=wire_format.path, headers=headers))
    return walks


def pair(opening_a: str, opening_b: str) -> list[AgentSession]:
    return [session("alpha", opening_a), session("beta", opening_b)]


PORTS = ("Use port 4100.", "Use port 4200.")
SAME_BEGINNING = (f"{REMINDER}Port it.", f"{REMINDER}Test it.")
SAME = ("Port it.", "Port it.")
IDE: Headers = (("x-claude-code-session-id", "1"),)
CHAT, RESPONSES, MESSAGES = FORMATS


@pytest.mark.parametrize(
    ("openings", "headers", "wire_format", "restart"),
    [
        case("P01", "chats that differ in their task alone", PORTS, (), CHAT, False),
        case("P01", "so in Responses", PORTS, (), RESPONSES, False),
        case("P01", "so in Messages", PORTS, (), MESSAGES, False),
        case("P02", "chats whose task begins alike", SAME_BEGINNING, (), CHAT, False),
        case("P02", "also after a restart", SAME_BEGINNING, (), CHAT, True),
        case("P03", "chats under the same session header", SAME, IDE, CHAT, True),
        case("P03", "so in Messages", SAME, IDE, MESSAGES, False),
        case("P05", "chats whose opening is the same to the letter", SAME, (), CHAT, False),
    ],
)
async def test_side_by_side_each_chat_goes_as_it_would_alone(
    openings: tuple[str, str], headers: Headers, wire_format: Format, restart: bool, tmp_path: Path
) -> None:
    store = StoreConfig(kind="sqlite", path=str(tmp_path / "s.sqlite3")) if restart else MEMORY
    upstream = remembering_upstream(window=WINDOW)
    async with upstream.running():
        together = await run(
            upstream, pair(*openings), wire_format, turns=24, store=store, headers=headers, restart=restart
        )
    assert {walk.status for walks in together.values() for walk in walks} == {200}
    for name, walks in together.items():
        opening = openings[name == "beta"]
        assert {"compacted", "reused"} <= {walk.outcome for walk in walks}
        assert all(names(walk.view) == {name} for walk in walks)
        assert all(opening[-8:] in json.dumps(walk.messages) for walk in walks)
        alone = remembering_upstream(window=WINDOW)
        async with alone.running():
            by_itself = await run(alone, [session(name, opening)], wire_format, turns=24, headers=headers)
        assert [walk.view for walk in by_itself[name]] == [walk.view for walk in walks]


# Keys


def token(subject: str, number: int) -> str:
    """A bearer token of that subject, refreshed so many times."""
    claims = json.dumps({"iss": "https://login.example.org", "sub": subject, "iat": number}).encode()
    return ".".join(["e30", urlsafe_b64encode(claims).decode().rstrip("="), f"sig{number}"])


@EACH_FORMAT
async def test_p04_a_token_that_is_refreshed_loses_nothing(wire_format: Format) -> None:
    upstream, alice = remembering_upstream(window=WINDOW), session("alice", "Port it.")
    walks = []
    async with upstream.running(), proxied(upstream) as proxy:
        for turn in range(31):
            raw = wire_format.wire(alice.step().body())
            key = token("alice", turn // 30)
            walks.append(await proxy.send(raw, path=wire_format.path, key=key))
    assert {walk.status for walk in walks} == {200}
    assert walks[-1].outcome == "reused"


@pytest.mark.parametrize("header", ["Authorization", "X-Api-Key", "Api-Key"])
async def test_p04_two_users_never_see_each_others_notes(header: str) -> None:
    upstream, alice = remembering_upstream(window=WINDOW), session("alice", "Port it.").step(16)
    async with upstream.running(), proxied(upstream) as proxy:
        hers = await proxy.send(alice.body(), headers=((header, token("alice", 0)),))
        his = await proxy.send(alice.body(), headers=((header, token("bob", 0)),))
    assert (hers.outcome, his.outcome) == ("compacted", "compacted")
    assert len(his.notes) == 1


async def test_p17_a_client_that_sends_nothing_but_its_messages_is_served() -> None:
    upstream, alice = remembering_upstream(window=WINDOW), session("alice", "Port it.")
    async with (
        upstream.running(),
        proxied(upstream) as proxy,
        AsyncOpenAI(base_url=f"{proxy.url}/v1", api_key="none", max_retries=0) as client,
    ):
        for _ in range(24):
            answer = await client.chat.completions.create(**alice.step().body())
            assert answer.choices[0].message.content
    assert len(upstream.notes) >= 1
    assert len(upstream.turns) == 24


# Forks


@pytest.mark.parametrize(
    "turns",
    [
        case("P07", "a fork inside what notes were made of", 8),
        case("P07", "a fork inside the turns that were kept", 15),
    ],
)
@EACH_FORMAT
async def test_a_fork_is_shown_nothing_of_what_it_left(wire_format: Format, turns: int) -> None:
    upstream, alice = remembering_upstream(window=WINDOW), session("alice", "Port it.").step(16)
    async with upstream.running(), proxied(upstream) as proxy:
        first = await proxy.send(wire_format.wire(alice.body()), path=wire_format.path)
        fork = alice.fork("fork", keep=2 + 2 * turns).step(2)
        walk = await proxy.send(wire_format.wire(fork.body()), path=wire_format.path)
        again = await proxy.send(wire_format.wire(alice.step().body()), path=wire_format.path)
    assert (first.outcome, walk.status, again.outcome) == ("compacted", 200, "reused")
    left = {f"mark-alice-{turn}" for turn in range(turns, 16)}
    assert not left & marks(walk.view)


@EACH_FORMAT
async def test_p07_p15_notes_of_a_message_that_was_changed_since_are_not_used(wire_format: Format) -> None:
    upstream, alice = remembering_upstream(window=WINDOW), session("alice", "Port it.").step(16)
    async with upstream.running(), proxied(upstream) as proxy:
        first = await proxy.send(wire_format.wire(alice.body()), path=wire_format.path)
        other = alice.fork("alice")
        for at in (8, 9):
            other.messages[at] = other.messages[at] | {"content": "The build is broken."}
        walk = await proxy.send(wire_format.wire(other.body()), path=wire_format.path)
    assert [walk.outcome for walk in (first, walk)] == ["compacted", "compacted"]
    assert "mark-alice-3" not in marks(walk.view)
