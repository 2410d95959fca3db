"""`litellm`, which mini-swe-agent and others use, in tool loops longer than the window."""

import gc
import json
import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.tool_agent import DONE, ToolAgent, tool_agent

# It would fetch a list of prices when it is imported.
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
litellm = pytest.importorskip("litellm", reason="litellm is not installed; pip install '.[sdks]'")

TASK: dict[str, Any] = {"role": "user", "content": "Read every part and tell the rate."}
PARAMETERS = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
TOOLS: Any = [
    {"type": "function", "function": {"name": "read_file", "description": "", "parameters": PARAMETERS}}
]


@pytest.fixture(autouse=True)
def no_client_is_left() -> Iterator[None]:
    """It keeps its clients, and the connections of loops that have ended."""
    yield
    litellm.in_memory_llm_clients_cache.flush_cache()
    gc.collect()


def asked(agent: ToolAgent, messages: list[Any], provider: str) -> dict[str, Any]:
    base = agent.url if provider == "anthropic" else f"{agent.url}/v1"
    members = {"model": f"{provider}/m", "api_base": base, "api_key": "k", "max_retries": 0}
    return members | {"messages": messages, "tools": TOOLS, "max_tokens": 512}


def carried_out(agent: ToolAgent, messages: list[Any], message: Any) -> bool:
    """Whether the message made calls; their results then stand in *messages*."""
    messages.append(message.model_dump(exclude_none=True))
    for call in message.tool_calls or ():
        text = agent.read(json.loads(call.function.arguments)["path"])
        messages.append({"role": "tool", "tool_call_id": call.id, "content": text})
    return bool(message.tool_calls)


providers = pytest.mark.parametrize("provider", ["openai", "anthropic"])


@providers
def test_completion(provider: str) -> None:
    with tool_agent() as agent:
        messages = [TASK]
        while True:
            answer = litellm.completion(**asked(agent, messages, provider))
            if not carried_out(agent, messages, answer.choices[0].message):
                break
        assert messages[-1]["content"] == DONE
        agent.is_told()


@providers
async def test_async_streamed_with_heartbeats(provider: str) -> None:
    with tool_agent(beats=True) as agent:
        messages = [TASK]
        while True:
            stream = await litellm.acompletion(**asked(agent, messages, provider), stream=True)
            chunks = [chunk async for chunk in stream]
            answer = litellm.stream_chunk_builder(chunks, messages=messages)
            if not carried_out(agent, messages, answer.choices[0].message):
                break
        assert messages[-1]["content"] == DONE
        agent.is_told()


def test_responses() -> None:
    with tool_agent() as agent:
        items: list[Any] = [TASK]
        tools = [{"type": "function", "name": "read_file", "parameters": PARAMETERS, "strict": True}]
        members = {"model": "openai/m", "api_base": f"{agent.url}/v1", "api_key": "k"}
        while True:
            response = litellm.responses(input=items, tools=tools, **members)
            items += [item.model_dump(exclude_none=True) for item in response.output]
            calls = [item for item in response.output if item.type == "function_call"]
            if not calls:
                break
            for call in calls:
                text = agent.read(json.loads(call.arguments)["path"])
                items.append({"type": "function_call_output", "call_id": call.call_id, "output": text})
        agent.is_told()
