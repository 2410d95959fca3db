"""`pydantic-ai` agents over all three formats, in tool loops longer than the window."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.support.tool_agent import DONE, ToolAgent, tool_agent

pydantic_ai = pytest.importorskip("pydantic_ai", reason="pydantic-ai is not installed; pip install '.[sdks]'")


@contextlib.asynccontextmanager
async def worker(agent: ToolAgent, name: str) -> AsyncIterator[Any]:
    """An agent with the one tool, whose model is reached in one of the formats."""
    if name == "messages":
        import anthropic
        from pydantic_ai.models.anthropic import AnthropicModel
        from pydantic_ai.providers.anthropic import AnthropicProvider

        sdk: Any = anthropic.AsyncAnthropic(base_url=agent.url, api_key="k")
        model: Any = AnthropicModel("m", provider=AnthropicProvider(anthropic_client=sdk))
    else:
        import openai
        from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
        from pydantic_ai.providers.openai import OpenAIProvider

        sdk = openai.AsyncOpenAI(base_url=f"{agent.url}/v1", api_key="k")
        kind = OpenAIChatModel if name == "chat" else OpenAIResponsesModel
        model = kind("m", provider=OpenAIProvider(openai_client=sdk))
    made = pydantic_ai.Agent(model, instructions="Be careful.")

    @made.tool_plain  # type: ignore[untyped-decorator]
    def read_file(path: str) -> str:
        """Read a file of the shop."""
        return agent.read(path)

    async with sdk:
        yield made


names = pytest.mark.parametrize("name", ["chat", "responses", "messages"])


@names
async def test_run(name: str) -> None:
    with tool_agent() as agent:
        async with worker(agent, name) as made:
            result = await made.run("Read every part and tell the rate.")
        assert result.output == DONE
        agent.is_told()


@names
async def test_run_streamed_with_heartbeats(name: str) -> None:
    with tool_agent(beats=True) as agent:
        seen: list[str] = []

        async def on_events(_: Any, events: Any) -> None:
            seen.extend([type(event).__name__ async for event in events])

        # With a handler of events every request of the loop is streamed.
        task = "Read every part and tell the rate."
        async with worker(agent, name) as made:
            result = await made.run(task, event_stream_handler=on_events)
        assert result.output == DONE
        assert seen
        agent.is_told()
