"""Connections that the upstream closes: replaced once, where nothing of an answer had come."""

import json

import pytest

from tests.support import wire_bytes as wire
from tests.support.agent_sessions import AgentSession, remembering_upstream
from tests.support.fronted import CHAT, OTHER, fronted, playing
from tests.support.raw_client import ask
from tests.support.raw_upstream import Close, RawUpstream, Send, Step
from tests.support.recorded import Recorded
from tests.support.watched import watched

TASK = {"messages": [{"role": "user", "content": "go"}]}


@pytest.mark.parametrize("path", [CHAT, OTHER])
@pytest.mark.parametrize("closed", [1, 2], ids=["once", "twice"])
async def test_s34_a_pooled_connection_that_closes_is_replaced_once(path: str, closed: int) -> None:
    def script(request: Recorded) -> list[Step]:
        sent = [r for r in upstream.requests if r.path == path]
        return [Close()] if 1 < len(sent) <= 1 + closed else [Send(wire.response(b'{"n":1}'))]

    async with playing(script).running() as upstream, fronted(upstream.url) as url:
        first, _ = await ask(url, path, body=TASK)
        answer, body = await ask(url, path, body=TASK)
    assert first.status == 200
    if closed == 1:
        assert (answer.status, body) == (200, b'{"n":1}')
    else:
        error = json.loads(body)["error"]
        assert (answer.status, error["code"], error["type"]) == (502, "upstream_unreachable", "server_error")
    assert len([r for r in upstream.requests if r.path == path]) == 3


async def test_s34_a_request_of_which_a_byte_was_answered_is_not_sent_again() -> None:
    def script(request: Recorded) -> list[Step]:
        return [Send(b"HTTP/1.1 2"), Close()]

    async with playing(script).running() as upstream, fronted(upstream.url) as url:
        answer, _ = await ask(url, CHAT, body=TASK)
    assert answer.status == 502
    assert len([r for r in upstream.requests if r.is_chat]) == 1


async def test_s34_a_connection_that_closes_on_notes_does_not_cost_them() -> None:
    good = remembering_upstream(window=4096)
    closed: list[Recorded] = []

    def script(request: Recorded) -> list[Step] | None:
        if closed or not request.is_chat or not good.is_notes(request):
            return None
        closed.append(request)
        return [Close()]

    async with good.running():
        raw = RawUpstream(script=script, behind=good.url)
        async with raw.running(), watched(raw.url) as proxy:
            got = await proxy.send(AgentSession(name="alice").step(16).body())
    assert (len(closed), got.outcome) == (1, "compacted")
