"""Where upstream a client's path leads, however client and upstream are written."""

import pytest

from proxy.errors import ConfigError
from proxy.paths import Target, endpoint, normal_path, takes_slot

ROOT = "http://h:1"


@pytest.mark.parametrize(
    ("base", "path", "url"),
    [
        pytest.param(ROOT, "/v1/models", "/v1/models", id="both with v1, upstream without"),
        pytest.param(f"{ROOT}/v1", "/v1/models", "/v1/models", id="v1 is not doubled"),
        pytest.param(f"{ROOT}/v1/", "/models", "/v1/models", id="an API path without v1 to an API base"),
        pytest.param(ROOT, "/models", "/models", id="a path without v1 stays, for llama.cpp has both"),
        pytest.param(ROOT, "/completion", "/completion", id="llama.cpp's own completion"),
        pytest.param(ROOT, "/chat/completions", "/v1/chat/completions", id="a chat goes to v1"),
        pytest.param(f"{ROOT}/v1", "/chat/completions", "/v1/chat/completions", id="a chat to an API base"),
        pytest.param(f"{ROOT}/v1", "/props", "/props", id="the server's own pages stand at the root"),
        pytest.param(f"{ROOT}/v1", "/health", "/health", id="health at the root"),
        pytest.param(f"{ROOT}/api/paas/v4", "/v1/models", "/api/paas/v4/models", id="another API base"),
        pytest.param(
            f"{ROOT}/v1beta/openai", "/chat/completions", "/v1beta/openai/chat/completions", id="beta"
        ),
        pytest.param(f"{ROOT}/llm", "/v1/models", "/llm/v1/models", id="a prefix"),
        pytest.param(ROOT, "/v1", "/v1", id="v1 alone"),
        pytest.param(ROOT, "/v10/models", "/v10/models", id="v10 is not v1"),
    ],
)
def test_a_path_leads_to(base: str, path: str, url: str) -> None:
    assert Target.of(base).url(path) == ROOT + url


def test_a_query_is_kept() -> None:
    assert Target.of(ROOT).url("/x", "a=%20&b") == f"{ROOT}/x?a=%20&b"


@pytest.mark.parametrize("text", ["", "h:1", "ftp://h", "http://", "http://h:99999", "http://[::1", "://"])
def test_what_is_no_url_is_an_error_that_shows_the_form(text: str) -> None:
    with pytest.raises(ConfigError) as error:
        Target.of(text)
    assert str(error.value) == (
        f"upstream.url: {text!r} is not a URL of a server; expected http://host:port or https://host/v1"
    )


@pytest.mark.parametrize(
    ("raw", "path"),
    [
        pytest.param("", "/", id="nothing"),
        pytest.param("//v1///models", "/v1/models", id="doubled slashes"),
        pytest.param("/v1/models/", "/v1/models/", id="a trailing slash that may mean something"),
        pytest.param("/v1/chat/completions//", "/v1/chat/completions", id="a trailing slash of a chat"),
        pytest.param(
            "/v1/messages/batches/", "/v1/messages/batches/", id="below an endpoint that is compacted"
        ),
        pytest.param("/v1/messages/count_tokens/", "/v1/messages/count_tokens", id="a count"),
        pytest.param("/files/a%2F%2Fb", "/files/a%2F%2Fb", id="escaped slashes"),
    ],
)
def test_normal_path(raw: str, path: str) -> None:
    assert normal_path(raw) == path


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/v1/chat/completions", "/chat/completions"),
        ("/chat/completions", "/chat/completions"),
        ("/v1/v1/chat/completions", ""),
        ("/v1/chat/completions/input_tokens", ""),
        ("/v1/chat", ""),
        ("/v1/completions", ""),
        ("/", ""),
    ],
)
def test_which_endpoints_are_compacted(path: str, name: str) -> None:
    assert endpoint(path) == name


@pytest.mark.parametrize(
    ("path", "is_at_work"),
    [
        ("/v1/completions", True),
        ("/completion", True),
        ("/v1/embeddings/", True),
        ("/v1/chat/completions", True),
        ("/infill", True),
        ("/tokenize", False),
        ("/v1/chat/completions/input_tokens", False),
        ("/v1/models", False),
        ("/", False),
    ],
)
def test_which_requests_have_a_model_at_work(path: str, is_at_work: bool) -> None:
    assert takes_slot(path) is is_at_work
