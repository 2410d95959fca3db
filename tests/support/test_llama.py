"""The real server starts, counts, refuses, restarts and ends as the tests of the proxy rely on."""

import subprocess
import sys

import pytest

from proxy.demo.llama_process import LlamaProcess, ServerFailed
from tests.support.llama import SAMPLING, Llama, llama

pytestmark = pytest.mark.slow

CHAT = "/v1/chat/completions"
TASK = {"role": "user", "content": "Read the file and say what it does."}
CALL = {
    "role": "assistant",
    "content": "I read it.",
    "tool_calls": [
        {"id": "a", "type": "function", "function": {"name": "read", "arguments": '{"path": "a.py"}'}},
        {"id": "b", "type": "function", "function": {"name": "read", "arguments": '{"path": "b.py"}'}},
    ],
}
RESULTS = [{"role": "tool", "tool_call_id": i, "content": f"contents of {i}"} for i in "ab"]
TOOLS = [{"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}]


def test_counts_what_a_completion_reports(llama_4096: Llama) -> None:
    body = {"messages": [TASK], "max_tokens": 4, **SAMPLING}
    status, answer = llama_4096.post(CHAT, body)
    assert status == 200
    assert answer["usage"]["prompt_tokens"] == llama_4096.count(body)


def test_the_second_request_is_cached_up_to_the_new_messages(llama_4096: Llama) -> None:
    history = [TASK, CALL, *RESULTS]
    llama_4096.post(CHAT, {"messages": history, "max_tokens": 1})
    before = llama_4096.count({"messages": history})
    _, answer = llama_4096.post(CHAT, {"messages": [*history, CALL, *RESULTS], "max_tokens": 1})
    # The opened answer is rendered again.
    assert answer["timings"]["cache_n"] >= before - 4


def test_a_longer_history_only_adds_to_the_prompt(llama_4096: Llama) -> None:
    messages = [
        {"role": "system", "content": "rules"},
        {"role": "user", "content": [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]},
        CALL,
        *RESULTS,
        {**CALL, "content": None},
        *RESULTS,
        {"role": "assistant", "content": "Done."},
        TASK,
    ]
    before = ""
    for end in (2, 5, 8, 10):
        _, answer = llama_4096.post("/apply-template", {"messages": messages[:end], "tools": TOOLS})
        opened = "<start_of_turn>assistant\n"
        assert answer["prompt"].startswith(before) and answer["prompt"].endswith(opened)
        before = answer["prompt"].removesuffix(opened)
    # The server joins parts with a line end before the template sees them.
    assert "one \ntwo" in before and '{"path": "b.py"}' in before and '"name": "read"' in before


def test_refuses_a_prompt_over_its_window(llama_4096: Llama) -> None:
    status, answer = llama_4096.post(CHAT, {"messages": [{"role": "user", "content": "word " * 5000}]})
    assert status == 400
    assert answer["error"]["type"] == "exceed_context_size_error" and answer["error"]["n_ctx"] == 4096


def test_restarts_at_the_same_address_with_another_window() -> None:
    with llama(window=2048) as server:
        url = server.url
        server.restart(window=1024, parallel=2)
        assert server.url == url
        _, props = server.get("/props")
    assert props["default_generation_settings"]["n_ctx"] == 1024 and props["total_slots"] == 2


def test_a_killed_server_refuses_connections() -> None:
    with llama(window=512) as server:
        server.kill()
        with pytest.raises(OSError, match="refused"):
            server.get("/health")


def test_ends_when_the_process_that_started_it_is_killed() -> None:
    program = (
        "import time\n"
        "from proxy.demo.llama_process import LlamaProcess\n"
        "print(LlamaProcess(['--window', '512']).pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    with parent.stdout:
        pid = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    # It is no child of ours; `tail --pid` returns when it has ended.
    subprocess.run(["tail", f"--pid={pid}", "-f", "/dev/null"], check=True, timeout=60)


def test_a_server_that_cannot_start_says_why() -> None:
    with pytest.raises(ServerFailed, match="loading the model"):
        LlamaProcess(["--window", "-5000000000"])
