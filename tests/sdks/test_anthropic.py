"""The `anthropic` client in tool loops longer than the window, with and without a stream."""

from typing import Any

import pytest

from tests.support.tool_agent import DONE, ToolAgent, tool_agent

anthropic = pytest.importorskip(
    "anthropic", reason="the anthropic SDK is not installed; pip install '.[sdks]'"
)

TASK: dict[str, Any] = {"role": "user", "content": "Read every part and tell the rate."}
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
ASKED: dict[str, Any] = {
    "model": "m",
    "max_tokens": 512,
    "system": [{"type": "text", "text": "Be careful.", "cache_control": {"type": "ephemeral"}}],
    "tools": [{"name": "read_file", "description": "Read a file", "input_schema": SCHEMA}],
}


def client(agent: ToolAgent) -> Any:
    return anthropic.Anthropic(base_url=agent.url, api_key="k", max_retries=0)


def async_client(agent: ToolAgent) -> Any:
    return anthropic.AsyncAnthropic(base_url=agent.url, api_key="k", max_retries=0)


def carried_out(agent: ToolAgent, messages: list[Any], message: Any) -> bool:
    """Whether the message made calls; their results then stand in *messages*, the last one marked."""
    messages.append(
        {"role": "assistant", "content": [b.model_dump(exclude_none=True) for b in message.content]}
    )
    results: list[Any] = [
        {"type": "tool_result", "tool_use_id": block.id, "content": agent.read(block.input["path"])}
        for block in message.content
        if block.type == "tool_use"
    ]
    if not results:
        return False
    # As clients do: the marker for the cache moves to the newest message.
    for earlier in messages:
        for block in earlier["content"] if isinstance(earlier["content"], list) else ():
            block.pop("cache_control", None)
    messages.append({"role": "user", "content": results})
    results[-1]["cache_control"] = {"type": "ephemeral"}
    return True


def test_messages_and_their_count() -> None:
    with tool_agent() as agent, client(agent) as sdk:
        messages = [TASK]
        while carried_out(agent, messages, message := sdk.messages.create(messages=messages, **ASKED)):
            assert message.usage.input_tokens + message.usage.cache_read_input_tokens
        assert message.content[0].text == DONE
        counted = sdk.messages.count_tokens(
            messages=messages[:-1], model="m", system=ASKED["system"], tools=ASKED["tools"]
        )
        # Of the view: of the whole history it would be more than three windows.
        assert counted.input_tokens == agent.upstream.count(agent.upstream.turns[-1].chat)
        agent.is_told()


def test_streamed_with_heartbeats() -> None:
    with tool_agent(beats=True) as agent, client(agent) as sdk:
        messages = [TASK]
        while True:
            with sdk.messages.stream(messages=messages, **ASKED) as stream:
                for _ in stream:
                    pass
                message = stream.get_final_message()
            if not carried_out(agent, messages, message):
                break
        assert message.content[0].text == DONE
        agent.is_told()


async def test_async() -> None:
    with tool_agent() as agent:
        async with async_client(agent) as sdk:
            messages = [TASK]
            while carried_out(agent, messages, await sdk.messages.create(messages=messages, **ASKED)):
                pass
        agent.is_told()


async def test_async_streamed_with_heartbeats() -> None:
    with tool_agent(beats=True) as agent:
        async with async_client(agent) as sdk:
            messages = [TASK]
            while True:
                async with sdk.messages.stream(messages=messages, **ASKED) as stream:
                    message = await stream.get_final_message()
                if not carried_out(agent, messages, message):
                    break
        agent.is_told()


def test_the_beta_endpoint_with_its_query() -> None:
    with tool_agent() as agent, client(agent) as sdk:
        messages = [TASK]
        beta = ASKED | {"betas": ["context-1m-2025-08-07"], "extra_query": {"beta": "true"}}
        while carried_out(agent, messages, sdk.beta.messages.create(messages=messages, **beta)):
            pass
        assert {request.path for request in agent.upstream.chats} == {"/v1/messages?beta=true"}
        assert {r.header("anthropic-beta") for r in agent.upstream.chats} == {"context-1m-2025-08-07"}
        assert all(request.header("anthropic-version") for request in agent.upstream.chats)
        agent.is_told()
