"""Responses and Messages: a session several windows long on the real llama.cpp, which has both endpoints."""

import asyncio
import json

import pytest

from tests.real.conftest import Serve
from tests.real.playing import ShortAgent
from tests.real.test_hard_cases import SHORT, WINDOW
from tests.support.formats import FORMATS, Format
from tests.support.passing import Passing
from tests.support.raw_client import ask
from tests.support.watched import watched

pytestmark = pytest.mark.slow

OTHERS = [pytest.param(format_, id=format_.name) for format_ in FORMATS if format_.name != "chat"]


@pytest.mark.parametrize("format_", OTHERS)
async def test_a_session_of_two_windows(served: Serve, format_: Format) -> None:
    llama = await served(window=WINDOW)
    relay, alice = Passing(behind=llama.url), ShortAgent("alice")
    outcomes = []
    async with relay.running(), watched(relay.url, **SHORT) as proxy:
        while await asyncio.to_thread(llama.count, alice.body()) < 2 * WINDOW:
            body = format_.wire(alice.body())
            got, answer = await ask(
                proxy.url, format_.path, body=body, headers=[("Content-Type", "application/json")]
            )
            outcomes.append(got.header("x-compaction"))
            assert got.status == 200, answer
            sent, seen = format_.slices(body), format_.slices(relay.turns[-1].body)
            # The block stands inside the brief's last message, in a part of its own or after the text.
            assert json.dumps(alice.messages[1]["content"], ensure_ascii=False)[1:-1] in seen[0]
            assert len(sent) <= 2 or seen[-2:] == sent[-2:]
            alice.step()
        events = proxy.events("context.compacted")
    assert outcomes.count("compacted") >= 2
    assert events[0]["folded"] is False and events[-1]["folded"] is True
    assert [passed.status for passed in relay.completions if passed.status != 200] == []
    assert all(event["notes_cached_tokens"] for event in events), "the notes extend what was sent"
