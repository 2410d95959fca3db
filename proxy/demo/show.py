"""
Put the demo together: model server, proxy, agent, and a screen that shows them at work.
"""

import asyncio
import os
import shutil
import sys
from collections.abc import Mapping
from typing import Any, TextIO

import openai

from proxy.demo.agent import ANSWER_TOKENS, count_prompts, replay
from proxy.demo.alternatives import died_at, processed_by_sliding_cut
from proxy.demo.front import proxy_before
from proxy.demo.lines import BOLD, DIM, Look, event_lines, head_line, number, summary_lines, turn_line
from proxy.demo.llama_process import LlamaProcess
from proxy.demo.model import TERMS
from proxy.demo.seen import EventLog, Outcome
from proxy.demo.session import load_session
from proxy.errors import ConfigError

# Below, tools, brief and the largest turn of the recording do not fit together; above,
# the model was not trained.
SMALLEST_WINDOW, LARGEST_WINDOW = 3072, 32768


def show(window: int, turns: int | None) -> int:
    """
    Run the demo; see `proxy.demo.run`.

    Raises:
        ConfigError: If *window* is out of range.
    """
    if not SMALLEST_WINDOW <= window <= LARGEST_WINDOW:
        raise ConfigError(
            f"--window {window}: the recorded session needs {SMALLEST_WINDOW}, and the model holds "
            f"{LARGEST_WINDOW}; choose one between, such as 4096 or 8192"
        )
    screen = Screen(sys.stdout, os.environ)
    screen.line(screen.look.paint(f"llama.cpp with Gemma 3 270M, a window of {number(window)} tokens", BOLD))
    screen.line(screen.look.paint(screen.look.fit(TERMS), DIM))
    with LlamaProcess(["--window", str(window)], screen.passing) as llama:
        return asyncio.run(_session(llama.url, turns, screen))


async def _session(llama_url: str, turns: int | None, screen: "Screen") -> int:
    session = load_session()
    log = EventLog()
    log.install()
    async with _client(llama_url) as server, proxy_before(llama_url) as proxy_url:
        models: dict[str, Any] = await server.get("/models", cast_to=dict[str, Any])
        # The server rounds the window that it was asked for.
        window = int(models["data"][0]["meta"]["n_ctx"])
        screen.passing("counting the recorded session")
        whole = await count_prompts(server, session, window, turns)
        play = len(whole)
        screen.line(f"proxy on {proxy_url}, an agent's session of {play} turns through it\n")
        screen.line(head_line(screen.look))
        seen = []
        async with _client(proxy_url) as agent:
            screen.passing(f"turn 1 of {play}")
            async for turn in replay(agent, session, whole, log):
                for line in (line for event in turn.events for line in event_lines(event, screen.look)):
                    screen.line(line)
                screen.line(turn_line(turn, screen.look))
                seen.append(turn)
                if turn.number < play:
                    screen.passing(f"turn {turn.number + 1} of {play}")
        outcome = Outcome(
            turns=seen,
            window=window,
            died_at=died_at(whole, window),
            sliding_cut=processed_by_sliding_cut(whole, window - ANSWER_TOKENS),
        )
        screen.line("")
        for line in summary_lines(outcome, screen.look):
            screen.line(line)
        return 1 if outcome.errors else 0


def _client(url: str) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(
        base_url=f"{url}/v1",
        api_key="none",
        # An error is to be seen, not tried away.
        max_retries=0,
        timeout=None,
        # The environment's proxy may not reach, and has no business with, 127.0.0.1.
        http_client=openai.DefaultAsyncHttpxClient(trust_env=False),
    )


class Screen:
    """Writes lines as they come, and on a terminal what is being waited for."""

    def __init__(self, stream: TextIO, environ: Mapping[str, str]) -> None:
        self._stream = stream
        self._is_terminal = stream.isatty() and environ.get("TERM") != "dumb"
        self.look = look_of(stream, environ)

    def line(self, text: str) -> None:
        """A line that stays."""
        self._write(("\r\x1b[K" if self._is_terminal else "") + text + "\n")

    def passing(self, text: str) -> None:
        """What is being done; on a terminal the next line takes its place, elsewhere it is left out."""
        if self._is_terminal:
            self._write("\r\x1b[K" + self.look.paint(self.look.fit(f"  {text} ..."), DIM))

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def look_of(stream: TextIO, environ: Mapping[str, str]) -> Look:
    """What *stream* can show: colour on a terminal only, and not where NO_COLOR is set."""
    is_terminal = stream.isatty()
    encoding = (stream.encoding or "").lower().replace("-", "")
    columns = shutil.get_terminal_size((80, 24)).columns if is_terminal else 80
    return Look(
        width=max(40, columns),
        colour=is_terminal and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb",
        unicode=encoding.startswith("utf"),
    )
