"""
How the request for notes differs from the request that it extends, as bodies that reached the upstream.

Whatever the client sets, the view it notes is a prefix of it, and only the fields that would
shape or cut the notes, or forbid them, are other than the client's.
"""

import json
import re
from typing import Any

import pytest

from proxy.config import ContextConfig, UpstreamKind
from tests.support.agent_sessions import AgentSession, naming_marks, remembering_upstream
from tests.support.answers import Answer
from tests.support.discovery import Server
from tests.support.proxied import Walked, messages_bytes, proxied, wire
from tests.support.recorded import Recorded

WINDOW = 4096
# Notes of a tenth of the budget, and an eighth of the window for reasoning.
LIMIT = 3072 // 10 + WINDOW // 8
# A small limit of the client's own leaves a larger budget.
ROOMY = 3996 // 10 + WINDOW // 8
INSTRUCTION = ContextConfig().notes_instruction.strip()[:80]
# Streamed, so that silence can be told from slowness; with usage, to see what was cached.
STREAMED = {"stream": True, "stream_options": {"include_usage": True}}
SAMPLING = {
    "temperature": 0.2,
    "top_p": 0.9,
    "top_k": 20,
    "seed": 7,
    "presence_penalty": 0.1,
    "logit_bias": {"17": -100},
    "parallel_tool_calls": False,
    "reasoning_effort": "low",
    "chat_template_kwargs": {"enable_thinking": False},
    "cache_prompt": True,
    "user": "someone",
    "x_unknown": [1, {"two": 2}],
}


async def compacted(
    session: AgentSession, server: Server = Server.LLAMA_CPP, kind: UpstreamKind = "auto"
) -> tuple[Walked, Recorded]:
    """The first request of *session* that sets off a compaction, and its notes request."""
    upstream = remembering_upstream(window=WINDOW, server=server)
    # Turns that no one asks about cost time only.
    session.step(9)
    async with upstream.running(), proxied(upstream, kind=kind, window=WINDOW) as proxy:
        for _ in range(30):
            walk = await proxy.send(session.body())
            if walk.notes:
                assert walk.outcome == "compacted"
                return walk, walk.notes[0]
            session.step()
    raise AssertionError("nothing was compacted")


@pytest.mark.parametrize(
    ("members", "differs"),
    [
        pytest.param({}, {"max_tokens": LIMIT}, id="no limit of its own"),
        pytest.param({"max_tokens": 100}, {"max_tokens": ROOMY}, id="max_tokens"),
        pytest.param(
            {"max_completion_tokens": 100}, {"max_completion_tokens": ROOMY}, id="max_completion_tokens"
        ),
        pytest.param({"n_predict": 100}, {"n_predict": ROOMY}, id="n_predict"),
        pytest.param(
            {"n_predict": 100, "max_completion_tokens": 6, "max_tokens": 7},
            {"n_predict": ROOMY, "max_completion_tokens": ROOMY, "max_tokens": ROOMY},
            id="every limit at once",
        ),
        pytest.param({"stream": True}, {"max_tokens": LIMIT}, id="a stream"),
        pytest.param({"stream": False}, {"max_tokens": LIMIT}, id="no stream"),
        pytest.param(
            {"stream": True, "stream_options": {"include_usage": False}},
            {"max_tokens": LIMIT},
            id="stream options",
        ),
        pytest.param({"tool_choice": "auto"}, {"max_tokens": LIMIT}, id="tool choice auto"),
        pytest.param({"tool_choice": "required"}, {"max_tokens": LIMIT}, id="tool choice required"),
        pytest.param(
            {"tool_choice": {"type": "function", "function": {"name": "read_file"}}},
            {"max_tokens": LIMIT},
            id="tool choice names a tool",
        ),
        pytest.param(
            {"response_format": {"type": "json_object"}},
            {"max_tokens": LIMIT, "response_format": None},
            id="response format",
        ),
        pytest.param({"stop": ["\n\n"]}, {"max_tokens": LIMIT, "stop": None}, id="stop"),
        pytest.param({"n": 3}, {"max_tokens": LIMIT, "n": None}, id="n"),
        pytest.param(
            {"logprobs": True, "top_logprobs": 4},
            {"max_tokens": LIMIT, "logprobs": None, "top_logprobs": None},
            id="logprobs",
        ),
        pytest.param({"grammar": "root ::= x"}, {"max_tokens": LIMIT, "grammar": None}, id="grammar"),
        pytest.param(
            {"json_schema": {"type": "object"}}, {"max_tokens": LIMIT, "json_schema": None}, id="json schema"
        ),
        pytest.param(SAMPLING, {"max_tokens": LIMIT}, id="sampling and unknown fields stay"),
    ],
)
async def test_only_the_allowed_fields_differ(members: dict[str, Any], differs: dict[str, Any]) -> None:
    walk, notes = await compacted(AgentSession(name="alice", members=members))
    sent = json.loads(walk.body)
    expected = sent | STREAMED | {"tool_choice": "none"} | differs
    expected = {key: value for key, value in expected.items() if value is not None or key not in differs}
    got = dict(notes.json)
    del expected["messages"], got["messages"]
    assert got == expected
    # The agent's own request keeps every field, whatever its messages became.
    own = json.loads(walk.view)
    assert own | {"messages": []} == sent | {"messages": []}


async def test_the_view_is_a_prefix_and_the_instruction_stands_inside_the_last_message() -> None:
    walk, notes = await compacted(AgentSession(name="alice"))
    _is_extended(_before_newest(walk.body), notes)
    assert notes.messages[-1]["role"] == "tool"


async def test_the_notes_of_a_later_compaction_extend_the_view_not_the_history() -> None:
    upstream = remembering_upstream(window=WINDOW)
    session = AgentSession(name="alice")
    folds, before = 0, b""
    async with upstream.running(), proxied(upstream) as proxy:
        while folds < 3:
            walk = await proxy.send(session.body())
            if walk.notes and before:
                folds += 1
                (notes,) = walk.notes
                # All of it is in the server's cache: the newest turn, which is new, is not in it.
                _is_extended(before, notes)
            before = walk.view
            session.step()


async def test_a_user_message_at_the_end_takes_the_instruction_in() -> None:
    walk, notes = await compacted(AgentSession(name="alice", has_tools=False))
    _is_extended(_before_newest(walk.body), notes)
    assert notes.messages[-1]["role"] == "user"
    assert "tool_choice" not in notes.json


@pytest.mark.parametrize("content", ["text", "parts"])
async def test_the_instruction_keeps_the_form_of_the_last_content(content: str) -> None:
    session = AgentSession(name="alice", has_tools=False)
    upstream = remembering_upstream(window=WINDOW)
    async with upstream.running(), proxied(upstream) as proxy:
        while not upstream.notes:
            body = session.body()
            if content == "parts":
                body["messages"] = [
                    message | {"content": [{"type": "text", "text": message["content"]}]}
                    for message in body["messages"]
                ]
            await proxy.send(body)
            session.step()
    (notes,) = upstream.notes
    said, last = notes.messages[-1]["content"], body["messages"][-3]["content"]
    if content == "text":
        assert said.startswith(last) and INSTRUCTION in said
    else:
        assert said[:-1] == last
        assert said[-1]["type"] == "text" and INSTRUCTION in said[-1]["text"]


async def test_notes_go_over_what_stands_before_a_prefill() -> None:
    session = AgentSession(name="alice")
    upstream = remembering_upstream(window=WINDOW)
    async with upstream.running(), proxied(upstream) as proxy:
        while not upstream.notes:
            body = session.body()
            prefilled = body | {"messages": [*body["messages"], {"role": "assistant", "content": "Now I"}]}
            walk = await proxy.send(prefilled)
            session.step()
    (notes,) = upstream.notes
    _is_extended(_before_newest(wire(body)), notes)
    # What the client asked to have continued stays the end of its view.
    assert walk.messages[-1] == {"role": "assistant", "content": "Now I"}
    assert walk.outcome == "compacted"


async def test_the_clients_credentials_go_with_the_notes_request() -> None:
    upstream = remembering_upstream(window=WINDOW)
    session = AgentSession(name="alice").step(14)
    async with upstream.running(), proxied(upstream) as proxy:
        walk = await proxy.send(session.body(), key="secret", headers=(("X-Org", "shop"),))
    (notes,) = walk.notes
    assert notes.header("authorization") == "Bearer secret"
    assert notes.header("x-org") == "shop"
    assert notes.path == walk.turns[0].path


async def test_view_instruction_notes_and_reasoning_fit_the_window() -> None:
    upstream = remembering_upstream(window=WINDOW)
    session = AgentSession(name="alice")
    async with upstream.running(), proxied(upstream) as proxy:
        for _ in range(60):
            await proxy.send(session.body())
            session.step()
    assert len(upstream.notes) >= 3
    for notes in upstream.notes:
        assert upstream.count(notes.json) + notes.json["max_tokens"] <= WINDOW


async def test_a_history_that_arrives_whole_is_noted_in_steps_that_end_with_a_turn() -> None:
    upstream = remembering_upstream(window=WINDOW)
    session = AgentSession(name="alice").step(80)
    async with upstream.running(), proxied(upstream) as proxy:
        walk = await proxy.send(session.body())
        assert (walk.status, walk.outcome) == (200, "compacted")
        assert len(walk.notes) >= 3
        for notes in walk.notes:
            assert upstream.count(notes.json) + notes.json["max_tokens"] <= WINDOW
            assert notes.messages[-1]["role"] == "tool"
        # Each step was saved: the next request uses the last one, and asks for no more.
        later = await proxy.send(session.step().body())
        assert (later.outcome, later.notes) == ("reused", ())


async def test_steps_that_were_saved_are_not_made_again() -> None:
    upstream = remembering_upstream(window=WINDOW)
    naming = naming_marks(upstream)
    session = AgentSession(name="alice").step(80)
    fails_from = 2

    def script(request: Recorded) -> Answer | None:
        if upstream.is_notes(request) and len(upstream.notes) > fails_from:
            return Answer(status=500, body={"error": {"message": "out of order", "code": 500}})
        return naming(request)

    upstream.script = script
    async with upstream.running(), proxied(upstream) as proxy:
        first = await proxy.send(session.body())
        assert first.status == 200 and len(first.notes) == fails_from + 1
        assert upstream.count(first.turns[0].json) <= first.budget
        fails_from = 1000
        session.step(3)
        again = await proxy.send(session.body())
    assert again.status == 200
    # What the second step saved stands in the view that the next notes go over.
    saved = first.notes[2].messages[1]["content"]
    (written,) = re.findall(r"^The agent went through .*$", saved, re.MULTILINE)
    assert written in again.notes[0].messages[1]["content"]


@pytest.mark.parametrize(
    ("server", "kind", "limit"),
    [
        pytest.param(
            Server.OPENAI, "openai", "max_completion_tokens", id="OpenAI refuses max_tokens of newer models"
        ),
        pytest.param(Server.VLLM, "auto", "max_tokens", id="vLLM"),
        pytest.param(Server.BARE, "auto", "max_tokens", id="unknown"),
    ],
)
async def test_the_limit_is_named_as_the_server_wants_it(
    server: Server, kind: UpstreamKind, limit: str
) -> None:
    _, notes = await compacted(AgentSession(name="alice"), server, kind)
    assert {"max_tokens", "max_completion_tokens", "n_predict"} & set(notes.json) == {limit}


def _before_newest(body: bytes) -> bytes:
    """A request of these sessions without its newest turn, which has two messages."""
    sent = json.loads(body)
    return wire(sent | {"messages": sent["messages"][:-2]})


def _is_extended(body: bytes, notes: Recorded) -> None:
    """*notes* is *body* with the instruction inside its last message."""
    sent = json.loads(body)["messages"]
    before = messages_bytes(body)
    last = json.dumps(sent[-1], ensure_ascii=False, separators=(",", ":")).encode()
    assert before.endswith(last)
    assert messages_bytes(notes.body).startswith(before[: -len(last)])
    assert len(notes.messages) == len(sent)
    said = notes.messages[-1]["content"]
    assert notes.messages[-1] | {"content": ""} == sent[-1] | {"content": ""}
    assert said.startswith(sent[-1]["content"]) and INSTRUCTION in said[len(sent[-1]["content"]) :]
