"""What a server is and how much it holds is found by asking it, and only believed if sane."""

import json
from typing import Any

import pytest

from proxy.discovery import Found, ServerKind, count, discover
from proxy.errors import UpstreamStalled
from proxy.upstream import Answer, Headers, Upstream
from tests.support.pages import KEY, Page, Pages, upstream_of

MODEL = "qwen"


def props(n_ctx: object, slots: object = 4) -> dict[str, Any]:
    return {"default_generation_settings": {"n_ctx": n_ctx}, "total_slots": slots}


def models(**fields: object) -> dict[str, Any]:
    return {"object": "list", "data": [{"id": MODEL, "object": "model", **fields}]}


LLAMA_LIST = models(owned_by="llamacpp", meta={"n_ctx": 4096, "n_ctx_train": 131072})
LM_STUDIO_LIST = {
    "data": [
        {"id": "other", "state": "not-loaded", "max_context_length": 99999},
        {"id": MODEL, "state": "loaded", "max_context_length": 131072, "loaded_context_length": 8192},
    ]
}
OLLAMA_PS = {"models": [{"name": f"{MODEL}:latest", "model": f"{MODEL}:latest", "context_length": 4096}]}

KINDS = [
    pytest.param(
        {"/props": props(65536, 2), "/v1/models": LLAMA_LIST},
        Found(
            kind=ServerKind.LLAMA_CPP,
            window=65536,
            window_source="/props default_generation_settings.n_ctx",
            slots=2,
            count_path="/v1/chat/completions/input_tokens",
        ),
        id="llama.cpp: n_ctx is per slot, as it is",
    ),
    pytest.param(
        {"/props": props(0, 1), "/props?model=qwen": props(8192, 3), "/v1/models": LLAMA_LIST},
        Found(
            kind=ServerKind.LLAMA_CPP,
            window=8192,
            window_source="/props?model=qwen default_generation_settings.n_ctx",
            slots=3,
            count_path="/v1/chat/completions/input_tokens",
        ),
        id="llama.cpp with several models",
    ),
    pytest.param(
        {"/props": Page(status=401), "/v1/models": LLAMA_LIST},
        Found(
            kind=ServerKind.LLAMA_CPP,
            window=4096,
            window_source="/v1/models meta.n_ctx",
            count_path="/v1/chat/completions/input_tokens",
        ),
        id="llama.cpp without its props",
    ),
    pytest.param(
        {"/v1/models": models(owned_by="vllm", max_model_len=32768)},
        Found(
            kind=ServerKind.VLLM,
            window=32768,
            window_source="/v1/models max_model_len",
            count_path="/tokenize",
        ),
        id="vLLM",
    ),
    pytest.param(
        {"/v1/models": models(owned_by="sglang", max_model_len=32768)},
        Found(kind=ServerKind.SGLANG, window=32768, window_source="/v1/models max_model_len"),
        id="SGLang",
    ),
    pytest.param(
        {
            "/v1/models": models(owned_by="me"),
            "/get_server_info": {"model_path": "x", "context_length": 16384},
        },
        Found(kind=ServerKind.SGLANG, window=16384, window_source="/get_server_info context_length"),
        id="SGLang, older",
    ),
    pytest.param(
        {"/v1/models": models(owned_by="organization_owner"), "/api/v0/models": LM_STUDIO_LIST},
        Found(kind=ServerKind.LM_STUDIO, window=8192, window_source="/api/v0/models loaded_context_length"),
        id="LM Studio: what is loaded, not what the model can do",
    ),
    pytest.param(
        {"/v1/models": models(owned_by="library"), "/api/ps": OLLAMA_PS},
        Found(kind=ServerKind.OLLAMA, window=4096, window_source="/api/ps context_length"),
        id="Ollama",
    ),
    pytest.param(
        {"/v1/models": models(owned_by="library"), "/api/ps": {"models": []}},
        Found(kind=ServerKind.OLLAMA),
        id="Ollama with nothing loaded",
    ),
    pytest.param(
        {"/api/ps": OLLAMA_PS},
        Found(kind=ServerKind.OLLAMA, window=4096, window_source="/api/ps context_length"),
        id="Ollama without a model list",
    ),
    pytest.param(
        {"/v1/models": models(context_length=200000, top_provider={"context_length": 131072})},
        Found(
            kind=ServerKind.OPENROUTER,
            window=131072,
            window_source="/v1/models top_provider.context_length",
        ),
        id="OpenRouter: what the provider offers",
    ),
    pytest.param(
        {"/info": {"model_id": "x", "max_total_tokens": 2048, "max_input_tokens": 1024}},
        Found(kind=ServerKind.TGI, window=2048, window_source="/info max_total_tokens"),
        id="TGI",
    ),
    pytest.param(
        {
            "/v1/models": Page(
                body=json.dumps(models(owned_by="system")).encode(), headers={"openai-version": "2020-10-01"}
            )
        },
        Found(kind=ServerKind.OPENAI),
        id="OpenAI does not say",
    ),
    pytest.param(
        {"/v1/models": models(owned_by="openai", context_window=8192)},
        Found(kind=ServerKind.OTHER, window=8192, window_source="/v1/models context_window"),
        id="a stranger who says it",
    ),
    pytest.param({}, Found(), id="a stranger who says nothing"),
]


@pytest.mark.parametrize(("pages", "found"), KINDS)
async def test_every_kind_is_recognised_by_what_it_answers(pages: dict[str, Any], found: Found) -> None:
    async with upstream_of(Pages(pages)) as upstream:
        assert await discover(upstream.ask, MODEL, KEY) == found


async def test_the_v1_of_the_url_is_no_part_of_the_paths() -> None:
    fake = Pages({"/props": props(4096)})
    async with upstream_of(fake, "/v1") as upstream:
        assert (await discover(upstream.ask, MODEL, KEY)).window == 4096


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(0, id="zero"),
        pytest.param(-1, id="negative"),
        pytest.param("4096", id="a string"),
        pytest.param(None, id="null"),
        pytest.param(True, id="true"),
        pytest.param(4096.5, id="a fraction"),
        pytest.param(float("nan"), id="NaN"),
        pytest.param(float("inf"), id="Infinity"),
        pytest.param(10**30, id="huge"),
        pytest.param([4096], id="a list"),
    ],
)
@pytest.mark.parametrize(
    ("kind", "at"),
    [
        pytest.param(ServerKind.LLAMA_CPP, lambda v: {"/props": props(v, v)}, id="llama.cpp"),
        pytest.param(
            ServerKind.VLLM, lambda v: {"/v1/models": models(owned_by="vllm", max_model_len=v)}, id="vLLM"
        ),
        pytest.param(
            ServerKind.OLLAMA,
            lambda v: {"/api/ps": {"models": [{"name": MODEL, "context_length": v}]}},
            id="Ollama",
        ),
    ],
)
async def test_nonsense_is_not_believed(kind: ServerKind, at: Any, value: object) -> None:
    fake = Pages(at(value))
    found = await discover(fake.ask, MODEL, KEY)
    assert (found.kind, found.window, found.window_source, found.slots) == (kind, None, "", None)


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(Page(status=401, body=b'{"error": "key"}'), id="no key"),
        pytest.param(Page(status=500, body=b"oops"), id="a fault"),
        pytest.param(Page(status=302, headers={"location": "http://elsewhere.invalid/"}), id="a redirect"),
        pytest.param(Page(body=b"<html>hello</html>"), id="HTML"),
        pytest.param(Page(body=b"[" * 100_000), id="deep nesting"),
        pytest.param(Page(body=b'{"data": 5, "models": {}, "default": null}'), id="other shapes"),
        pytest.param(
            Page(body=b'{"data": [null, 3, {"id": [], "owned_by": {}}], "models": [1]}'), id="odd entries"
        ),
        pytest.param(Page(body=b"\xff\xfe"), id="no text"),
        pytest.param(Page(body=b'{"error": "Unexpected endpoint"}'), id="a 200 for everything"),
    ],
)
async def test_whatever_comes_back_nothing_is_raised(page: Page) -> None:
    async with upstream_of(Pages({}, missing=page)) as upstream:
        found = await discover(upstream.ask, MODEL, KEY)
    assert found.answered
    assert found.window is None


async def test_a_server_that_is_loading_is_known_by_its_header() -> None:
    loading = Page(
        status=503, body=b'{"error": {"message": "Loading model"}}', headers={"server": "llama.cpp"}
    )
    async with upstream_of(Pages({}, missing=loading)) as upstream:
        found = await discover(upstream.ask, MODEL, KEY)
    assert (found.kind, found.window) == (ServerKind.LLAMA_CPP, None)


async def test_nobody_there() -> None:
    async with upstream_of(Pages({})) as upstream:
        url = upstream.target.root
    gone = Upstream(url=url)
    assert await discover(gone.ask, MODEL, KEY) == Found(answered=False)
    await gone.close()


async def test_who_is_silent_is_asked_once() -> None:
    asked: list[str] = []

    async def ask(
        method: str, path: str, *, headers: Headers = (), body: bytes = b"", timeout_seconds: float = 5.0
    ) -> Answer:
        asked.append(path)
        raise UpstreamStalled("nothing came")

    assert not (await discover(ask, MODEL)).answered
    assert len(asked) == 1


async def test_a_configured_kind_is_not_looked_for() -> None:
    fake = Pages({"/v1/models": models(owned_by="someone", max_model_len=4096)})
    found = await discover(fake.ask, MODEL, KEY, kind=ServerKind.VLLM)
    assert (found.kind, found.window, found.count_path) == (ServerKind.VLLM, 4096, "/tokenize")
    assert fake.asked == ["/v1/models"]


SEVERAL = {
    "data": [
        {"id": "large", "owned_by": "vllm", "max_model_len": 32768},
        {"id": "small", "owned_by": "vllm", "max_model_len": 4096},
    ]
}


@pytest.mark.parametrize(
    ("model", "window"),
    [
        pytest.param("small", 4096, id="its own"),
        pytest.param("", None, id="not named"),
        pytest.param("other", None, id="not listed"),
    ],
)
async def test_among_several_models_only_the_named_one_counts(model: str, window: int | None) -> None:
    fake = Pages({"/v1/models": SEVERAL})
    assert (await discover(fake.ask, model, KEY)).window == window


@pytest.mark.parametrize("model", ["other", "qwen:7b"])
async def test_the_window_of_another_loaded_model_says_nothing(model: str) -> None:
    pages = {"/v1/models": models(owned_by="library"), "/api/ps": OLLAMA_PS}
    fake = Pages(pages)
    assert (await discover(fake.ask, model, KEY)).window is None
    assert (await discover(fake.ask, "", KEY)).window == 4096


@pytest.mark.parametrize(
    ("kind", "enforces", "keeps"),
    [
        pytest.param(ServerKind.LLAMA_CPP, False, True, id="llama.cpp"),
        pytest.param(ServerKind.VLLM, True, True, id="vLLM"),
        pytest.param(ServerKind.OPENAI, True, True, id="OpenAI"),
        pytest.param(ServerKind.SGLANG, True, False, id="SGLang removes the tools"),
        pytest.param(ServerKind.OLLAMA, False, False, id="Ollama"),
        pytest.param(ServerKind.OTHER, False, False, id="a stranger"),
    ],
)
def test_what_follows_from_the_kind(kind: ServerKind, enforces: bool, keeps: bool) -> None:
    found = Found(kind=kind)
    assert (found.enforces_limit, found.keeps_tools_with_none) == (enforces, keeps)


LLAMA = Found(kind=ServerKind.LLAMA_CPP, count_path="/v1/chat/completions/input_tokens")
VLLM = Found(kind=ServerKind.VLLM, count_path="/tokenize")
REQUEST = {"model": MODEL, "messages": [{"role": "user", "content": "\udc8d"}], "tools": [], "stream": True}


@pytest.mark.parametrize(
    ("found", "path", "asked", "answer", "sent"),
    [
        pytest.param(
            LLAMA,
            "/v1/chat/completions",
            "/v1/chat/completions/input_tokens",
            {"input_tokens": 12},
            REQUEST,
            id="llama.cpp takes the whole body",
        ),
        pytest.param(
            LLAMA,
            "/chat/completions",
            "/v1/chat/completions/input_tokens",
            {"input_tokens": 12},
            REQUEST,
            id="without v1",
        ),
        pytest.param(
            LLAMA,
            "/v1/responses",
            "/v1/responses/input_tokens",
            {"input_tokens": 12},
            REQUEST,
            id="responses",
        ),
        pytest.param(
            LLAMA, "/v1/messages", "/v1/messages/count_tokens", {"input_tokens": 12}, REQUEST, id="messages"
        ),
        pytest.param(
            VLLM,
            "/v1/chat/completions",
            "/tokenize",
            {"count": 12, "tokens": []},
            {key: REQUEST[key] for key in ("model", "messages", "tools")},
            id="vLLM takes what reaches the template",
        ),
    ],
)
async def test_a_prompt_is_counted(found: Found, path: str, asked: str, answer: Any, sent: Any) -> None:
    fake = Pages({asked: answer})
    async with upstream_of(fake) as upstream:
        assert await count(upstream.ask, found, path, json.dumps(REQUEST).encode(), KEY) == 12
    assert fake.bodies == [sent]


@pytest.mark.parametrize(
    ("found", "path", "page"),
    [
        pytest.param(Found(), "/v1/chat/completions", {"input_tokens": 12}, id="a server that cannot"),
        pytest.param(LLAMA, "/v1/embeddings", {"input_tokens": 12}, id="another endpoint"),
        pytest.param(VLLM, "/v1/messages", {"count": 12}, id="vLLM knows chat alone"),
        pytest.param(LLAMA, "/v1/chat/completions", Page(status=404), id="an older build"),
        pytest.param(LLAMA, "/v1/chat/completions", Page(body=b"nonsense"), id="no JSON"),
        pytest.param(LLAMA, "/v1/chat/completions", {"input_tokens": "12"}, id="a string"),
        pytest.param(LLAMA, "/v1/chat/completions", {"input_tokens": 0}, id="zero"),
        pytest.param(LLAMA, "/v1/chat/completions", [1], id="another shape"),
    ],
)
async def test_where_nothing_is_counted_there_is_no_number(found: Found, path: str, page: Any) -> None:
    fake = Pages({}, missing=Page() if not isinstance(page, Page) else page)
    assert await count(fake.ask, found, path, b"{}", KEY) is None
    pages = {"/v1/chat/completions/input_tokens": page, "/tokenize": page}
    fake = Pages(pages)
    assert await count(fake.ask, found, path, b"{}", KEY) is None


@pytest.mark.parametrize("body", [b"", b"nonsense", b"[]", b"\xff", b"[" * 100_000])
async def test_a_body_that_is_none_does_not_make_counting_fail(body: bytes) -> None:
    fake = Pages({}, missing=Page(status=400))
    assert await count(fake.ask, VLLM, "/v1/chat/completions", body, KEY) is None
