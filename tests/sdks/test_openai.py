"""The `openai` client, chat completions and Responses, in tool loops longer than the window."""

import json
from typing import Any

import pytest

from tests.support.tool_agent import DONE, ToolAgent, tool_agent

openai = pytest.importorskip("openai", reason="the openai SDK is not installed; pip install '.[sdks]'")
pydantic = pytest.importorskip("pydantic")

TASK: dict[str, Any] = {"role": "user", "content": "Read every part and tell the rate."}
PARAMETERS = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
STRICT_PARAMETERS = PARAMETERS | {"additionalProperties": False}
CHAT_TOOLS: Any = [
    {"type": "function", "function": {"name": "read_file", "strict": True, "parameters": STRICT_PARAMETERS}}
]
RESPONSES_TOOLS: Any = [
    {"type": "function", "name": "read_file", "strict": True, "parameters": STRICT_PARAMETERS}
]


class Rate(pydantic.BaseModel):  # type: ignore[misc, name-defined]
    """What is to be parsed."""

    answer: int


def client(agent: ToolAgent) -> Any:
    return openai.OpenAI(base_url=f"{agent.url}/v1", api_key="k", max_retries=0)


def async_client(agent: ToolAgent) -> Any:
    return openai.AsyncOpenAI(base_url=f"{agent.url}/v1", api_key="k", max_retries=0)


# Chat completions


def carried_out(agent: ToolAgent, messages: list[Any], message: Any) -> bool:
    """Whether the message made calls; their results then stand in *messages*."""
    messages.append(message.model_dump(exclude_none=True))
    for call in message.tool_calls or ():
        text = agent.read(json.loads(call.function.arguments)["path"])
        messages.append({"role": "tool", "tool_call_id": call.id, "content": text})
    return bool(message.tool_calls)


def test_chat() -> None:
    with tool_agent() as agent, client(agent) as sdk:
        messages = [TASK]
        while carried_out(
            agent, messages, (last := _chat(sdk.chat.completions.create, messages)).choices[0].message
        ):
            assert last.usage.prompt_tokens
        assert messages[-1]["content"] == DONE
        agent.is_told()


def test_chat_streamed_with_heartbeats() -> None:
    with tool_agent(beats=True) as agent, client(agent) as sdk:
        messages = [TASK]
        while True:
            asked = {"messages": messages, "tools": CHAT_TOOLS, "model": "m"}
            with sdk.chat.completions.stream(**asked) as stream:
                for _ in stream:
                    pass
                final = stream.get_final_completion()
            if not carried_out(agent, messages, final.choices[0].message):
                break
        assert messages[-1]["content"] == DONE
        agent.is_told()


def test_chat_parsed() -> None:
    with tool_agent() as agent, client(agent) as sdk:
        messages = [TASK]
        while True:
            completion = sdk.chat.completions.parse(
                model="m", messages=messages, tools=CHAT_TOOLS, response_format=Rate
            )
            if not carried_out(agent, messages, completion.choices[0].message):
                break
        assert completion.choices[0].message.parsed == Rate(answer=7)
        assert all("response_format" not in notes.json for notes in agent.upstream.notes)
        agent.is_told()


async def test_chat_async() -> None:
    with tool_agent() as agent:
        async with async_client(agent) as sdk:
            messages = [TASK]
            while True:
                completion = await _chat(sdk.chat.completions.create, messages)
                if not carried_out(agent, messages, completion.choices[0].message):
                    break
        agent.is_told()


async def test_chat_async_streamed_with_heartbeats() -> None:
    with tool_agent(beats=True) as agent:
        async with async_client(agent) as sdk:
            messages = [TASK]
            while True:
                asked = {"messages": messages, "tools": CHAT_TOOLS, "model": "m"}
                async with sdk.chat.completions.stream(**asked) as stream:
                    final = await stream.get_final_completion()
                if not carried_out(agent, messages, final.choices[0].message):
                    break
        agent.is_told()


# Responses


def put_out(agent: ToolAgent, items: list[Any], response: Any) -> bool:
    """Whether the model called; its output, and what came back, then stand in *items*."""
    items += [item.to_dict(mode="json") for item in response.output]
    calls = [item for item in response.output if item.type == "function_call"]
    for call in calls:
        text = agent.read(json.loads(call.arguments)["path"])
        items.append({"type": "function_call_output", "call_id": call.call_id, "output": text})
    return bool(calls)


def test_responses() -> None:
    with tool_agent() as agent, client(agent) as sdk:
        items = [TASK]
        while put_out(agent, items, response := _respond(sdk.responses.create, items)):
            assert response.usage.input_tokens
        assert response.output_text == DONE
        agent.is_told()


def test_responses_streamed_with_heartbeats() -> None:
    with tool_agent(beats=True) as agent, client(agent) as sdk:
        items = [TASK]
        kinds: list[str] = []
        while True:
            with sdk.responses.stream(model="m", input=items, tools=RESPONSES_TOOLS) as stream:
                said = [event.type for event in stream]
                response = stream.get_final_response()
            assert said[0] == "response.created" and said.count("response.created") == 1
            kinds += said
            if not put_out(agent, items, response):
                break
        assert response.output_text == DONE
        assert kinds.count("response.in_progress") > kinds.count("response.created")
        agent.is_told()


def test_a_response_that_was_announced_is_found_again_by_the_id_that_the_client_has() -> None:
    with tool_agent(beats=True, turns=8) as agent, client(agent) as sdk:
        items = [TASK]
        while not agent.upstream.notes:
            with sdk.responses.stream(model="m", input=items, tools=RESPONSES_TOOLS) as stream:
                response = stream.get_final_response()
            put_out(agent, items, response)
        theirs = f"resp_{len(agent.upstream.requests)}"
        assert response.id != theirs
        sdk.responses.create(model="m", input="And then?", previous_response_id=response.id)
        assert agent.upstream.requests[-1].json["previous_response_id"] == theirs
        with pytest.raises(openai.NotFoundError):
            sdk.responses.retrieve(response.id)
        assert agent.upstream.requests[-1].path == f"/v1/responses/{theirs}"


def test_responses_parsed() -> None:
    with tool_agent() as agent, client(agent) as sdk:
        items = [TASK]
        while True:
            response = sdk.responses.parse(model="m", input=items, tools=RESPONSES_TOOLS, text_format=Rate)
            if not put_out(agent, items, response):
                break
            # What the SDK adds when it has parsed is its own, and is not sent.
            items = [{k: v for k, v in item.items() if k != "parsed_arguments"} for item in items]
        assert response.output_parsed == Rate(answer=7)
        assert all("text" not in notes.json for notes in agent.upstream.notes)
        agent.is_told()


async def test_responses_async() -> None:
    with tool_agent() as agent:
        async with async_client(agent) as sdk:
            items = [TASK]
            while put_out(agent, items, await _respond(sdk.responses.create, items)):
                pass
        agent.is_told()


async def test_responses_async_streamed_with_heartbeats() -> None:
    with tool_agent(beats=True) as agent:
        async with async_client(agent) as sdk:
            items = [TASK]
            while True:
                stream = await _respond(sdk.responses.create, items, stream=True)
                events = [event async for event in stream]
                if not put_out(agent, items, events[-1].response):
                    break
        agent.is_told()


def _chat(create: Any, messages: list[Any], **members: Any) -> Any:
    return create(model="m", messages=messages, tools=CHAT_TOOLS, **members)


def _respond(create: Any, items: list[Any], **members: Any) -> Any:
    return create(model="m", input=items, tools=RESPONSES_TOOLS, **members)
