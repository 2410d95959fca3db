"""`check` says what a server is, what the proxy would do, and what to do where it cannot work."""

import json
from typing import Any

import pytest

from proxy.check import Report, examine, render, run
from proxy.check_prefix import INSTRUCTION, REQUEST, RESULT, Prefix, check_prefix, compare
from proxy.config import Config, ContextConfig, UpstreamConfig
from proxy.core.overflow import LEAST_WINDOW
from proxy.errors import UpstreamUnreachable
from proxy.upstream import Answer, Headers
from tests.support.discovery import Server
from tests.support.pages import Page, Pages
from tests.support.scripted import ScriptedUpstream


def config(url: str = "http://127.0.0.1:8080", *, key_env: str = "", **context: Any) -> Config:
    return Config(upstream=UpstreamConfig(url=url, key_env=key_env), context=ContextConfig(**context))


def listed(*names: str, **fields: object) -> dict[str, Any]:
    return {"data": [{"id": name, **fields} for name in names]}


def vllm(window: int) -> dict[str, Any]:
    return {"/v1/models": listed("qwen", owned_by="vllm", max_model_len=window)}


async def report_on(pages: dict[str, Any], **context: Any) -> Report:
    return await examine(Pages(pages, key="").ask, config(**context))


def test_llama_cpp(capsys: pytest.CaptureFixture[str]) -> None:
    with ScriptedUpstream(server=Server.LLAMA_CPP, window=8192, slots=2).running_in_thread() as scripted:
        assert run(config(scripted.url)) == 0
    printed = " ".join(capsys.readouterr().out.split())
    for said in (
        f"{scripted.url} is llama.cpp with 2 slots",
        "window 8192 tokens, from /props default_generation_settings.n_ctx",
        "budget 7168 tokens for a prompt, 1024 kept for the answer",
        "compaction when a prompt grows past 4300 tokens, down to about 1792",
        "near a limit exactly, by /v1/chat/completions/input_tokens (it counted ",
        f"cached prefix {Prefix.KEPT}",
        "-sps 0.5",
        "-np",
        "--cache-ram 0",
        "It will work.",
    ):
        assert said in printed
    assert scripted.chats == [], "nothing is generated"


def test_vllm(capsys: pytest.CaptureFixture[str]) -> None:
    with ScriptedUpstream(server=Server.VLLM, window=8192).running_in_thread() as scripted:
        assert run(config(scripted.url)) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "is vLLM" in printed
    assert "window 8192 tokens, from /v1/models max_model_len" in printed
    assert "exactly, by /tokenize (it counted " in printed
    assert "cached prefix" not in printed, "only llama.cpp renders without running"


def test_nobody_there(capsys: pytest.CaptureFixture[str]) -> None:
    with ScriptedUpstream().running_in_thread() as scripted:
        url = scripted.url
    assert run(config(url)) == 1
    printed = " ".join(capsys.readouterr().out.split())
    assert f"{url} does not answer" in printed
    assert "is it running" in printed


async def test_without_a_window_it_says_how_to_set_one() -> None:
    report = await report_on({"/v1/models": listed("gpt", owned_by="someone")})
    assert dict(report.facts)["window"] == "not known"
    (problem,) = report.problems
    assert "[context] window = 32768" in problem
    assert "COMPACTION_PROXY_CONTEXT_WINDOW=32768" in problem
    assert render(report).endswith("environment")


async def test_a_configured_window_will_do() -> None:
    report = await report_on({"/v1/models": listed("gpt", owned_by="someone")}, window=16384)
    assert report.problems == ()
    assert dict(report.facts)["window"] == "16384 tokens, from context.window"
    assert "estimated" in dict(report.facts)["counting"]


async def test_a_configured_window_that_the_server_does_not_have_is_mentioned() -> None:
    report = await report_on(vllm(8192), window=16384)
    assert any("the server says 8192" in advice for advice in report.advice)
    assert not any("server says" in advice for advice in (await report_on(vllm(8192), window=4096)).advice)


@pytest.mark.parametrize(
    ("window", "fits"),
    [
        pytest.param(LEAST_WINDOW - 1, False, id="just too small"),
        pytest.param(LEAST_WINDOW, True, id="just large enough"),
    ],
)
async def test_a_window_that_is_too_small(window: int, fits: bool) -> None:
    problems = (await report_on(vllm(window))).problems
    assert (problems == ()) is fits
    assert all("--max-model-len" in problem for problem in problems)


async def test_a_reserve_that_leaves_nothing() -> None:
    (problem,) = (await report_on(vllm(4096), reserve=4096)).problems
    assert "lower `reserve`" in problem


async def test_compaction_may_be_off() -> None:
    report = await report_on(vllm(4096), compact_at=0)
    assert report.problems == ()
    assert dict(report.facts)["compaction"].startswith("off")


async def test_a_server_that_wants_a_key() -> None:
    report = await examine(Pages(vllm(4096), key="Bearer k").ask, config())
    (problem,) = report.problems
    assert "upstream.key_env" in problem


def test_the_key_comes_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SOME_KEY", "k")
    with ScriptedUpstream(server=Server.VLLM).running_in_thread() as scripted:
        assert run(config(scripted.url, key_env="SOME_KEY")) == 0
    assert {dict(r.headers).get("authorization") for r in scripted.requests} == {"Bearer k"}
    assert "Bearer" not in capsys.readouterr().out


async def test_of_several_models_one_that_is_loaded_is_asked_about() -> None:
    several = listed("a", "b", owned_by="llamacpp")
    several["data"][1]["status"] = {"value": "loaded"}
    router = {
        "/props": {"default_generation_settings": {"n_ctx": 0}},
        "/props?model=b": {"default_generation_settings": {"n_ctx": 4096}},
        "/v1/models": several,
    }
    pages = Pages(router, key="")
    report = await examine(pages.ask, config())
    assert dict(report.facts)["model"] == "b"
    assert dict(report.facts)["window"].startswith("4096 tokens")
    assert "/props?model=a" not in pages.asked, "asking about it would load it"


async def test_of_several_models_in_a_list_the_first_is_an_example() -> None:
    report = await report_on({"/v1/models": listed("a", "b", owned_by="vllm", max_model_len=4096)})
    assert dict(report.facts)["model"] == "a"
    assert report.problems == ()


async def test_ollama_with_nothing_loaded() -> None:
    report = await report_on({"/v1/models": listed("qwen", owned_by="library"), "/api/ps": {"models": []}})
    assert "send it one request" in report.problems[0]
    assert any("drops the oldest messages" in advice for advice in report.advice)


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(Page(status=503, body=b'{"error": "Loading model"}'), id="loading"),
        pytest.param(Page(body=b"<html>"), id="HTML"),
        pytest.param(Page(body=b'{"data": [null, {"id": 5}, {"id": "x", "status": []}]}'), id="odd entries"),
        pytest.param(Page(body=b'{"prompt": 5, "endpoint_metrics": "no"}'), id="other shapes"),
        pytest.param(Page(body=b"[" * 100_000), id="deep nesting"),
    ],
)
async def test_whatever_a_server_answers_there_is_a_report(page: Page) -> None:
    for headers in ({}, {"server": "llama.cpp"}):
        missing = Page(status=page.status, body=page.body, headers=headers)
        report = await examine(Pages({}, missing=missing, key="").ask, config())
        assert report.problems
        assert "cannot work" in render(report)


BEFORE = f"<s>system<u>brief<a>call<t>{RESULT}<a>"


@pytest.mark.parametrize(
    ("before", "after", "prefix"),
    [
        pytest.param(BEFORE, f"<s>system<u>brief<a>call<t>{RESULT} {INSTRUCTION}<a>", Prefix.KEPT, id="kept"),
        pytest.param(
            BEFORE, f"<s>system<u>brief<t>{RESULT} {INSTRUCTION}<a>", Prefix.CHANGED, id="call gone"
        ),
        pytest.param(BEFORE, BEFORE, Prefix.INSTRUCTION_LOST, id="instruction not shown"),
        pytest.param(
            "<s>system<u>brief<a>", "<s>system<u>brief<a>", Prefix.RESULT_LOST, id="results not shown"
        ),
        pytest.param("", "", Prefix.RESULT_LOST, id="nothing shown"),
    ],
)
def test_the_prefix_is_kept_up_to_the_end_of_the_result(before: str, after: str, prefix: Prefix) -> None:
    assert compare(before, after) is prefix


@pytest.mark.parametrize(
    ("page", "prefix"),
    [
        pytest.param(Page(status=404), Prefix.UNKNOWN, id="no such endpoint"),
        pytest.param(Page(status=401), Prefix.UNKNOWN, id="no key"),
        pytest.param(Page(status=500, body=b'{"error": "jinja"}'), Prefix.REFUSED, id="the template refuses"),
        pytest.param(Page(status=400), Prefix.REFUSED, id="the server refuses"),
        pytest.param(Page(body=b"{}"), Prefix.UNKNOWN, id="no prompt"),
        pytest.param(Page(body=b'{"prompt": "hello"}'), Prefix.RESULT_LOST, id="results not shown"),
    ],
)
async def test_what_a_server_makes_of_a_tool_call(page: Page, prefix: Prefix) -> None:
    assert await check_prefix(Pages({"/apply-template": page}, key="").ask, "qwen") is prefix


async def test_the_instruction_goes_into_the_last_message_and_nowhere_else() -> None:
    sent: list[dict[str, Any]] = []

    async def ask(
        method: str, path: str, *, headers: Headers = (), body: bytes = b"", timeout_seconds: float = 5.0
    ) -> Answer:
        sent.append(json.loads(body))
        prompt = json.dumps(sent[-1]["messages"])
        return Answer(status=200, headers=(), body=json.dumps({"prompt": prompt}).encode())

    assert await check_prefix(ask, "qwen") is Prefix.KEPT
    plain, instructed = sent
    assert plain == dict(REQUEST, model="qwen")
    assert instructed["messages"][:-1] == plain["messages"][:-1]
    assert instructed["messages"][-1]["content"] == f"{RESULT}\n\n{INSTRUCTION}"


async def test_a_server_that_goes_away_does_not_raise() -> None:
    async def ask(
        method: str, path: str, *, headers: Headers = (), body: bytes = b"", timeout_seconds: float = 5.0
    ) -> Answer:
        raise UpstreamUnreachable("it went away; start it again")

    assert await check_prefix(ask, "qwen") is Prefix.UNKNOWN
    assert (await examine(ask, config())).problems == ("it went away; start it again",)
