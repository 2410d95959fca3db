"""`langchain-openai` over chat completions and Responses, in tool loops longer than the window."""

from typing import Any

import pytest

from tests.support.tool_agent import DONE, ToolAgent, tool_agent

langchain_openai = pytest.importorskip(
    "langchain_openai", reason="langchain-openai is not installed; pip install '.[sdks]'"
)

SCHEMA = {
    "name": "read_file",
    "description": "Read a file of the shop.",
    "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
}


def model_of(agent: ToolAgent, name: str) -> Any:
    """A model with the one tool, in one of the formats."""
    model = langchain_openai.ChatOpenAI(
        model="m",
        base_url=f"{agent.url}/v1",
        api_key="k",
        max_retries=0,
        use_responses_api=name == "responses",
    )
    return model.bind_tools([{"type": "function", "function": SCHEMA}])


def carried_out(agent: ToolAgent, messages: list[Any], message: Any) -> bool:
    """Whether the message made calls; their results then stand in *messages*."""
    from langchain_core.messages import ToolMessage

    messages.append(message)
    for call in message.tool_calls:
        messages.append(ToolMessage(agent.read(call["args"]["path"]), tool_call_id=call["id"]))
    return bool(message.tool_calls)


names = pytest.mark.parametrize("name", ["chat", "responses"])


@names
def test_invoke(name: str) -> None:
    with tool_agent() as agent:
        model, messages = model_of(agent, name), [("user", "Read every part and tell the rate.")]
        while carried_out(agent, messages, message := model.invoke(messages)):
            assert message.usage_metadata["input_tokens"]
        assert message.text == DONE
        agent.is_told()


@names
async def test_streamed_with_heartbeats(name: str) -> None:
    with tool_agent(beats=True) as agent:
        model, messages = model_of(agent, name), [("user", "Read every part and tell the rate.")]
        ids: list[str] = []
        while True:
            whole: Any = None
            async for chunk in model.astream(messages):
                whole = chunk if whole is None else whole + chunk
            ids.append(whole.id)
            if not carried_out(agent, messages, whole):
                break
        assert whole.text == DONE
        # Frameworks put a message in the place of the one that has its id.
        assert len(set(ids)) == len(ids)
        agent.is_told()
