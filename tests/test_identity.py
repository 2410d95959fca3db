"""
Whose compaction is it? Sessions that begin alike, callers with other keys, tokens that are refreshed.

A conversation is known by its content within its caller's key: nothing else tells two
sessions apart, and nothing else joins them.
"""

import asyncio
import base64
import json
from collections.abc import Sequence

import pytest

from tests.support.agent_sessions import AgentSession, names, remembering_upstream
from tests.support.answers import Answer
from tests.support.gate import Gate
from tests.support.proxied import Proxied, Walked, proxied, wire
from tests.support.raw_client import ask

WINDOW = 4096
TURNS = 40


async def alone(session: AgentSession, turns: int = TURNS) -> list[Walked]:
    """*session* run by itself, before a proxy and an upstream of its own."""
    upstream = remembering_upstream(window=WINDOW)
    async with upstream.running(), proxied(upstream) as proxy:
        return [await proxy.send(session.step(i > 0).body()) for i in range(turns)]


def views(walked: Sequence[Walked]) -> list[bytes]:
    return [walk.view for walk in walked]


@pytest.mark.parametrize("has_tools", [True, False], ids=["with tools", "without tools"])
async def test_interleaved_sessions_with_one_brief_are_each_as_if_alone(has_tools: bool) -> None:
    upstream = remembering_upstream(window=WINDOW, slots=2)
    sessions = [AgentSession(name=name, has_tools=has_tools) for name in ("alice", "bob")]
    walked: dict[str, list[Walked]] = {"alice": [], "bob": []}
    async with upstream.running(), proxied(upstream) as proxy:
        for turn in range(TURNS):
            for session in sessions:
                walked[session.name].append(await proxy.send(session.step(turn > 0).body()))
    for name, walks in walked.items():
        assert sum(walk.outcome == "compacted" for walk in walks) >= 2
        by_itself = await alone(AgentSession(name=name, has_tools=has_tools))
        assert views(walks) == views(by_itself)
        assert all(names(body.body) <= {name} for walk in walks for body in (*walk.turns, *walk.notes))


async def test_a_title_request_in_between_changes_nothing() -> None:
    """P10: its bytes go through, and the session goes on as if it had not been there."""
    upstream = remembering_upstream(window=WINDOW)
    session = AgentSession(name="alice")
    walked = []
    async with upstream.running(), proxied(upstream) as proxy:
        for turn in range(TURNS):
            walked.append(await proxy.send(session.step(turn > 0).body()))
            title = wire(
                {
                    "messages": [{"role": "user", "content": f"A title for: {session.task}"}],
                    "model": "scripted",
                }
            )
            asked = await proxy.send(title)
            assert (asked.outcome, asked.view) == ("none", title)
    assert views(walked) == views(await alone(AgentSession(name="alice")))


async def test_a_sub_agent_that_cannot_fit_fails_alone() -> None:
    """P08: its brief is over the window, the upstream's own words come back, and the main session goes on."""
    upstream = remembering_upstream(window=WINDOW)
    session = AgentSession(name="alice")
    sub = AgentSession(name="sub", task="word " * 5000)
    walked = []
    async with upstream.running(), proxied(upstream) as proxy:
        for turn in range(TURNS):
            walked.append(await proxy.send(session.step(turn > 0).body()))
            failed = await proxy.send(sub.body())
            assert failed.status == 400
            assert json.loads(failed.answer)["error"]["type"] == "exceed_context_size_error"
            assert not failed.notes
    assert {walk.status for walk in walked} == {200}
    assert all(names(walk.view) <= {"alice"} for walk in walked)
    assert sum(walk.outcome == "compacted" for walk in walked) >= 2


async def compact(proxy: Proxied, session: AgentSession, key: str) -> Walked:
    """Send the growing *session* until it is compacted."""
    for _ in range(30):
        walk = await proxy.send(session.step().body(), key=key)
        if walk.outcome == "compacted":
            return walk
    raise AssertionError("nothing was compacted")


async def test_two_keys_with_one_conversation_share_nothing() -> None:
    upstream = remembering_upstream(window=WINDOW)
    session = AgentSession(name="alice")
    async with upstream.running(), proxied(upstream) as proxy:
        first = await compact(proxy, session, "sk-first")
        other = await proxy.send(session.body(), key="sk-other")
        nobody = await proxy.send(session.body())
        assert [len(walk.notes) for walk in (first, other, nobody)] == [1, 1, 1]
        again = [await proxy.send(session.step().body(), key=key) for key in ("sk-first", "sk-other", "")]
        assert [walk.outcome for walk in again] == ["reused"] * 3
    assert [notes.header("authorization") for notes in upstream.notes] == [
        "Bearer sk-first",
        "Bearer sk-other",
        None,
    ]


@pytest.mark.parametrize("header", ["X-Api-Key", "Api-Key"])
async def test_other_headers_that_carry_a_key_keep_callers_apart_too(header: str) -> None:
    upstream = remembering_upstream(window=WINDOW)
    body = AgentSession(name="alice").step(14).body()
    async with upstream.running(), proxied(upstream) as proxy:
        outcomes = [
            (await proxy.send(body, headers=((header, key),))).outcome for key in ("one", "two", "one")
        ]
    assert outcomes == ["compacted", "compacted", "reused"]


@pytest.mark.parametrize(
    "header", ["X-Session-Id", "X-Claude-Code-Session-Id", "X-Conversation-Id", "User-Agent", "X-Request-Id"]
)
async def test_session_headers_neither_join_nor_part(header: str) -> None:
    """P03, P17: they are hints of clients, and content says more."""
    upstream = remembering_upstream(window=WINDOW)
    alice, bob = AgentSession(name="alice").step(14), AgentSession(name="bob").step(14)
    async with upstream.running(), proxied(upstream) as proxy:
        first = await proxy.send(alice.body(), headers=((header, "1"),))
        joined = await proxy.send(bob.body(), headers=((header, "1"),))
        parted = await proxy.send(alice.body(), headers=((header, "2"),))
        absent = await proxy.send(alice.body())
    assert (first.outcome, joined.outcome) == ("compacted", "compacted")
    assert names(joined.view) == {"bob"}
    assert [parted.outcome, absent.outcome] == ["reused", "reused"]
    assert parted.view == absent.view == first.view


def token(signature: str = "signature", **claims: object) -> str:
    """A JWT that nobody checks."""
    parts = [{"alg": "none"}, claims]
    coded = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts]
    return ".".join([*coded, signature])


async def test_a_refreshed_token_keeps_its_compactions() -> None:
    """P04: only issuer and subject count."""
    upstream = remembering_upstream(window=WINDOW)
    session = AgentSession(name="alice")
    async with upstream.running(), proxied(upstream) as proxy:
        before = await compact(proxy, session, token(iss="idp", sub="alice", exp=1000, jti="a"))
        refreshed = token("other", jti="b", exp=2000, sub="alice", iss="idp")
        after = await proxy.send(session.body(), key=refreshed)
    assert (after.outcome, after.view) == ("reused", before.view)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(token(iss="idp", sub="bob"), id="another subject"),
        pytest.param(token(iss="other", sub="alice"), id="another issuer"),
        pytest.param(token(iss="idp"), id="no subject"),
        pytest.param(token(sub="alice"), id="no issuer"),
        pytest.param("a.b.c", id="no JWT"),
        pytest.param('["jwt", "idp", "alice"]', id="what stands for the identity inside"),
    ],
)
async def test_another_subject_gets_nothing(other: str) -> None:
    upstream = remembering_upstream(window=WINDOW)
    session = AgentSession(name="alice")
    async with upstream.running(), proxied(upstream) as proxy:
        await compact(proxy, session, token(iss="idp", sub="alice"))
        walk = await proxy.send(session.body(), key=other)
    assert (walk.outcome, len(walk.notes)) == ("compacted", 1)


async def test_two_models_of_one_conversation_do_not_disturb_each_other() -> None:
    """The same history asked of two models goes through for both, whoever wrote the notes."""
    upstream = remembering_upstream(window=WINDOW)
    session = AgentSession(name="alice")
    async with upstream.running(), proxied(upstream) as proxy:
        for turn in range(TURNS):
            body = session.step(turn > 0).body()
            walked = [await proxy.send(body | {"model": model}) for model in ("one", "two")]
            assert [walk.status for walk in walked] == [200, 200]
            assert len(walked[0].notes) + len(walked[1].notes) <= 1


@pytest.mark.parametrize("slots", [1, 4])
async def test_the_same_request_three_times_at_once_makes_notes_once(slots: int) -> None:
    """P12, P13: a client that retries without waiting; each copy is answered with the same view."""
    upstream = remembering_upstream(window=WINDOW, slots=slots)
    naming = upstream.script
    gate = Gate()

    def script(request: object) -> Answer | None:
        answer = naming(request)  # type: ignore[arg-type]
        return None if answer is None else Answer(text=answer.text, before=gate)

    upstream.script = script
    body = AgentSession(name="alice").step(14).body()
    async with upstream.running(), proxied(upstream) as proxy:
        raw = wire(body)
        copies = [
            asyncio.create_task(
                ask(proxy.url, "/v1/chat/completions", body=raw, headers=[("X-Copy", str(i))])
            )
            for i in range(3)
        ]
        await upstream.until(lambda server: len(server.notes) == 1)
        gate.open()
        answers = [await copy for copy in copies]
    assert [answer.status for answer, _ in answers] == [200, 200, 200]
    assert len(upstream.notes) == 1
    assert len({request.body for request in upstream.turns}) == 1


async def test_eight_sessions_at_once_are_each_compacted_for_themselves() -> None:
    upstream = remembering_upstream(window=WINDOW, slots=4)
    sessions = [AgentSession(name="abcdefgh"[i] * 3) for i in range(8)]

    async def run(proxy: Proxied, session: AgentSession) -> None:
        for turn in range(20):
            answer, _ = await ask(proxy.url, "/v1/chat/completions", body=wire(session.step(turn > 0).body()))
            assert answer.status == 200

    async with upstream.running(), proxied(upstream) as proxy:
        await asyncio.gather(*(run(proxy, session) for session in sessions))
    assert len(upstream.notes) == 8
    assert all(len(names(request.body)) <= 1 for request in upstream.chats)
