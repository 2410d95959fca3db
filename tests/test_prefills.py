"""
Requests that end with a message to be continued, and content that nothing can be put into.

A prefill comes back with what the model added to it: no rewrite may depend on it.
"""

from itertools import pairwise
from typing import Any

import pytest

from tests.support.agent_sessions import AgentSession, remembering_upstream
from tests.support.proxied import proxied

WINDOW = 4096
PREFILL = {"role": "assistant", "content": "So,"}


@pytest.mark.parametrize(
    ("context", "most"),
    [
        pytest.param({}, 8, id="with notes"),
        pytest.param({"compact_at": 0}, 8, id="trims only"),
    ],
)
async def test_a_prefill_on_every_request_does_not_cost_a_rewrite_on_every_request(
    context: dict[str, Any], most: int
) -> None:
    session = AgentSession(name="alice")
    upstream = remembering_upstream(window=WINDOW)
    async with upstream.running(), proxied(upstream, **context) as proxy:
        walked = []
        for _ in range(60):
            body = session.body()
            walked.append(await proxy.send(body | {"messages": [*body["messages"], PREFILL]}))
            session.step()
    assert {walk.status for walk in walked} == {200}
    assert all(walk.messages[-1] == PREFILL for walk in walked)
    rewrites = sum(walk.outcome in ("compacted", "trimmed") for walk in walked)
    assert 1 <= rewrites <= most
    for before, after in pairwise(walked):
        if after.outcome == "reused":
            assert after.messages[: len(before.messages) - 1] == before.messages[:-1]


async def test_what_cannot_carry_a_block_goes_untouched() -> None:
    session = AgentSession(name="alice").step(60)
    session.messages[1]["content"] = {"not": "a content"}
    upstream = remembering_upstream(window=WINDOW)
    async with upstream.running(), proxied(upstream) as proxy:
        walk = await proxy.send(session.body())
    assert walk.view == walk.body
