"""Notes made ahead of need on the real llama.cpp: what the first request after them has to process."""

import asyncio
import json
from dataclasses import dataclass

import pytest

from tests.real.conftest import Serve
from tests.real.playing import QUICK_NOTES, ShortAgent
from tests.support.passing import Passed, Passing
from tests.support.proxied import wire
from tests.support.watched import watched

pytestmark = pytest.mark.slow

WINDOW = 2048
MODE = QUICK_NOTES | {"notes_max_tokens": 64, "mode": "ahead"}
# About what the recorded model wrote for a turn.
_ANSWER_TOKENS = 60
_MOST_TURNS = 12


@dataclass(slots=True, kw_only=True)
class Calling(Passing):
    """Puts a call into every whole answer, since the base model makes none; its numbers are the server's."""

    async def _answer(
        self, passed: Passed, there: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if passed.is_notes or not passed.is_completion:
            await Passing._answer(self, passed, there, writer)
            return
        while piece := await there.read(65536):
            passed.answer += piece
        answer = json.loads(passed.answer_body)
        call = {"id": "call_1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
        answer["choices"][0] |= {
            "finish_reason": "tool_calls",
            "message": {"role": "assistant", "content": None, "tool_calls": [call]},
        }
        answer["usage"]["completion_tokens"] = _ANSWER_TOKENS
        body = json.dumps(answer).encode()
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        await writer.drain()


async def test_the_first_request_after_a_compaction_made_ahead_processes_what_it_adds(served: Serve) -> None:
    llama = await served(window=WINDOW)
    relay, alice = Calling(behind=llama.url), ShortAgent("alice").step(8)
    async with relay.running(), watched(relay.url, **MODE) as proxy:
        outcomes = []
        for _ in range(_MOST_TURNS):
            got = await proxy.send(wire(alice.body()))
            assert got.status == 200, got.body
            outcomes.append(got.outcome)
            if got.outcome == "compacted":
                break
            # The agent's tools take their time.
            await proxy.proxy.services.compactor.until_idle()
            alice.step()
        [event] = proxy.events("context.compacted")
    assert outcomes[:-1] == ["none"] * (len(outcomes) - 1)
    assert event["trigger"] == "ahead"
    assert event["seconds"] == 0
    [notes] = relay.notes
    assert notes.cached >= 0.9 * notes.prompt - 60, "notes run over the request just answered"
    prewarm, first = relay.turns[-2:]
    assert json.loads(prewarm.body)["max_tokens"] == 1
    assert "<record-" in prewarm.body.decode()
    # It adds the last answer and what its tools said; without the prewarm all behind the brief was new.
    assert first.processed <= first.prompt - prewarm.prompt + 8
    assert first.cached >= prewarm.prompt - 8
