"""`openai-agents` over chat completions and Responses, in tool loops longer than the window."""

from typing import Any

import pytest

from tests.support.tool_agent import DONE, ToolAgent, tool_agent

agents = pytest.importorskip("agents", reason="openai-agents is not installed; pip install '.[sdks]'")
openai = pytest.importorskip("openai")


def made(agent: ToolAgent, name: str, sdk: Any) -> Any:
    """An agent with the one tool, in one of the formats."""
    # Traces would be sent to OpenAI.
    agents.set_tracing_disabled(True)
    kind = agents.OpenAIChatCompletionsModel if name == "chat" else agents.OpenAIResponsesModel

    @agents.function_tool  # type: ignore[untyped-decorator]
    def read_file(path: str) -> str:
        """Read a file of the shop."""
        return agent.read(path)

    model = kind(model="m", openai_client=sdk)
    return agents.Agent(name="worker", instructions="Be careful.", model=model, tools=[read_file])


names = pytest.mark.parametrize("name", ["chat", "responses"])


@names
async def test_run(name: str) -> None:
    with tool_agent() as agent:
        async with openai.AsyncOpenAI(base_url=f"{agent.url}/v1", api_key="k", max_retries=0) as sdk:
            result = await agents.Runner.run(made(agent, name, sdk), "Tell the rate.", max_turns=99)
        assert result.final_output == DONE
        agent.is_told()


@names
async def test_run_streamed_with_heartbeats(name: str) -> None:
    with tool_agent(beats=True) as agent:
        async with openai.AsyncOpenAI(base_url=f"{agent.url}/v1", api_key="k", max_retries=0) as sdk:
            result = agents.Runner.run_streamed(made(agent, name, sdk), "Tell the rate.", max_turns=99)
            assert [event async for event in result.stream_events()]
        assert result.final_output == DONE
        agent.is_told()
