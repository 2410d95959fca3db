"""The scripted upstream behaves as the server that it stands in for."""

import asyncio
import json
from typing import Any

import pytest

from tests.support.answers import Answer
from tests.support.discovery import Server
from tests.support.gate import Gate
from tests.support.prompts import STRICT, Rule, common, count, refusal, render
from tests.support.raw_client import RawRequest, ask
from tests.support.scripted import NOTES, ScriptedUpstream

CHAT = "/v1/chat/completions"
TASK = {"role": "user", "content": "Rename the field in every file, please." * 4}
CALL = {"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "read", "arguments": "{}"}}]}
RESULT = {"role": "tool", "tool_call_id": "a", "content": "done"}


def chat(*messages: Any, **members: Any) -> dict[str, Any]:
    return {"model": "m", "messages": list(messages)} | members


async def test_counts_and_caches_the_prefix() -> None:
    async with ScriptedUpstream().running() as upstream:
        await ask(upstream.url, CHAT, body=chat(TASK))
        answer, body = await ask(upstream.url, CHAT, body=chat(TASK, CALL, RESULT))
        first, second = upstream.chats
    assert answer.status == 200
    usage = json.loads(body)["usage"]
    assert usage["prompt_tokens"] == upstream.count(chat(TASK, CALL, RESULT))
    # All of the first message, and as much of the opened answer as the call repeats.
    assert usage["prompt_tokens_details"]["cached_tokens"] >= count(render(chat(TASK))[:1])
    assert json.loads(body)["timings"]["prompt_n"] < usage["prompt_tokens"]
    assert first.numbers is not None and first.numbers.cached == 0
    assert second.numbers is not None and second.numbers.cached == common(first.prompt, second.prompt)


def test_a_text_appended_to_a_message_keeps_the_tokens_before_it() -> None:
    longer = {**TASK, "content": TASK["content"] + "\nAnd more."}
    before, after = render(chat(TASK)), render(chat(longer))
    assert common(before, after) >= count(before[:1]) - 3


@pytest.mark.parametrize("server", Server)
async def test_refuses_what_does_not_fit(server: Server) -> None:
    async with ScriptedUpstream(server=server, window=20).running() as upstream:
        answer, body = await ask(upstream.url, CHAT, body=chat(TASK))
    assert answer.status == 400
    assert "20" in json.loads(body)["error"]["message"]


async def test_the_limit_counts_for_vllm_and_not_for_llama_cpp() -> None:
    for server, status in ((Server.VLLM, 400), (Server.LLAMA_CPP, 200)):
        async with ScriptedUpstream(server=server, window=100).running() as upstream:
            answer, _ = await ask(upstream.url, CHAT, body=chat(TASK, max_tokens=90))
        assert answer.status == status


async def test_streams_usage_where_asked_and_ends_with_done() -> None:
    async with ScriptedUpstream(
        script=lambda _: Answer(calls=(("read", {"path": "a"}),))
    ).running() as upstream:
        request = chat(TASK, stream=True, stream_options={"include_usage": True})
        async with RawRequest(upstream.url, CHAT, body=request) as asked:
            pieces = [piece async for piece in (await asked.answer()).chunks()]
    assert pieces[-1] == b"data: [DONE]\n\n"
    last = json.loads(pieces[-2].removeprefix(b"data: "))
    assert last["choices"] == [] and last["usage"]["prompt_tokens"] > 0 and "timings" in last
    deltas = [json.loads(p.removeprefix(b"data: "))["choices"][0]["delta"] for p in pieces[:-3]]
    arguments = [d["tool_calls"][0]["function"]["arguments"] for d in deltas if "tool_calls" in d]
    assert json.loads("".join(arguments)) == {"path": "a"}


async def test_a_notes_request_gets_notes() -> None:
    async with ScriptedUpstream(notes_marker="WRITE NOTES").running() as upstream:
        for body in (chat(TASK, tool_choice="none"), chat({"role": "user", "content": "x WRITE NOTES"})):
            _, answered = await ask(upstream.url, CHAT, body=body)
            assert json.loads(answered)["choices"][0]["message"]["content"] == NOTES
        await ask(upstream.url, CHAT, body=chat(TASK))
        assert len(upstream.notes) == 2 and len(upstream.turns) == 1


async def test_a_limit_cuts_the_text() -> None:
    async with ScriptedUpstream(script=lambda _: Answer(text="word " * 100)).running() as upstream:
        _, body = await ask(upstream.url, CHAT, body=chat(TASK, max_tokens=10))
    choice = json.loads(body)["choices"][0]
    assert choice["finish_reason"] == "length" and len(choice["message"]["content"]) == 40


async def test_a_client_that_leaves_is_seen_before_and_during_the_answer() -> None:
    gate = Gate()
    script = iter([Answer(text="x" * 99, before=gate), Answer(text="x" * 99, midway=gate)])
    async with ScriptedUpstream(script=lambda _: next(script), slots=2).running() as upstream:
        async with RawRequest(upstream.url, CHAT, body=chat(TASK)) as asked:
            await upstream.until(lambda u: len(u.chats) == 1)
            asked.close()
            await upstream.until(lambda u: u.chats[0].is_cancelled)
        async with RawRequest(upstream.url, CHAT, body=chat(TASK, stream=True)) as asked:
            answer = await asked.answer()
            await anext(aiter(answer.chunks()))
            asked.reset()
            await upstream.until(lambda u: u.chats[1].is_cancelled)


async def test_a_single_slot_answers_one_after_the_other() -> None:
    gate = Gate()
    script = iter([Answer(text="first", before=gate), Answer(text="second")])
    async with ScriptedUpstream(script=lambda _: next(script)).running() as upstream:
        both = [asyncio.create_task(ask(upstream.url, CHAT, body=chat(TASK))) for _ in range(2)]
        await upstream.until(lambda u: u.most_in_flight == 2)
        assert upstream.chats[1].numbers is None
        gate.open()
        await asyncio.gather(*both)
    assert all(r.is_done and not r.is_cancelled for r in upstream.chats)


@pytest.mark.parametrize(
    ("server", "path", "status"),
    [
        pytest.param(Server.LLAMA_CPP, "/props", 200, id="llama.cpp: props"),
        pytest.param(Server.LLAMA_CPP, "/v1/models", 200, id="llama.cpp: models"),
        pytest.param(Server.VLLM, "/props", 404, id="vllm: no props"),
        pytest.param(Server.VLLM, "/v1/models", 200, id="vllm: models"),
        pytest.param(Server.BARE, "/v1/models", 404, id="bare: nothing"),
    ],
)
async def test_discovery(server: Server, path: str, status: int) -> None:
    async with ScriptedUpstream(server=server, window=1234).running() as upstream:
        answer, body = await ask(upstream.url, path, method="GET")
    assert answer.status == status
    assert (b"1234" in body) is (status == 200)


async def test_input_tokens_equal_what_a_completion_reports() -> None:
    async with ScriptedUpstream().running() as upstream:
        _, counted = await ask(upstream.url, f"{CHAT}/input_tokens", body=chat(TASK, tools=[{"x": 1}]))
        _, completed = await ask(upstream.url, CHAT, body=chat(TASK, tools=[{"x": 1}]))
    assert json.loads(counted)["input_tokens"] == json.loads(completed)["usage"]["prompt_tokens"]


@pytest.mark.parametrize(
    ("messages", "rule"),
    [
        pytest.param([TASK, CALL, RESULT], None, id="a plain history"),
        pytest.param([TASK, TASK], Rule.NEIGHBOURING_USERS, id="two users"),
        pytest.param([TASK, {"role": "system", "content": "s"}], Rule.LATE_SYSTEM, id="a late system"),
        pytest.param([CALL, RESULT], Rule.NO_USER, id="no user"),
        pytest.param([TASK, RESULT], Rule.ORPHAN_RESULT, id="a result alone"),
        pytest.param([TASK, CALL, RESULT, RESULT], Rule.ORPHAN_RESULT, id="a second result of one call"),
    ],
)
def test_what_strict_templates_refuse(messages: list[Any], rule: Rule | None) -> None:
    refused = refusal(messages, STRICT)
    assert (refused[0] if refused else None) == rule


def test_alternation_looks_past_calls_and_results() -> None:
    rules = frozenset({Rule.ALTERNATION})
    assert refusal([TASK, CALL, RESULT], rules) is None
    assert refusal([TASK, CALL, RESULT, TASK], rules) is not None


def test_in_a_thread_of_its_own() -> None:
    with ScriptedUpstream().running_in_thread() as upstream:
        answer, _ = asyncio.run(ask(upstream.url, CHAT, body=chat(TASK)))
    assert answer.status == 200
