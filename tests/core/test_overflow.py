"""An overflow is recognised in whatever form it comes, and nothing else is taken for one."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.error_bodies import MOST_BODY_BYTES
from proxy.core.overflow import MOST_WINDOW, Overflow, read_overflow, sane_window


def error(message: str, **fields: object) -> bytes:
    """An OpenAI-style error object."""
    return json.dumps({"error": {"message": message, "type": "invalid_request_error", **fields}}).encode()


def fits(window: int | None = None, prompt: int | None = None) -> Overflow:
    return Overflow(window=window, prompt=prompt)


VLLM = "This model's maximum context length is 4096 tokens. However, "
LLAMA = "request (4390 tokens) exceeds the available context size (4096 tokens), try increasing it"


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        pytest.param(LLAMA, fits(4096, 4390), id="llama.cpp in words alone"),
        pytest.param(
            "the request exceeds the available context size. try increasing the context size",
            fits(),
            id="llama.cpp, older, without numbers",
        ),
        pytest.param(VLLM + "your messages resulted in 5000 tokens.", fits(4096, 5000), id="OpenAI"),
        pytest.param(
            VLLM + "you requested 4500 tokens (4300 in the messages, 200 in the completion).",
            fits(4096, 4300),
            id="OpenAI with output: the prompt, not the sum",
        ),
        pytest.param(
            VLLM + "you requested 9000 tokens (8000 in your prompt; 1000 for the completion).",
            fits(4096, 8000),
            id="OpenAI completions",
        ),
        pytest.param("Your input exceeds the context window of this model.", fits(), id="OpenAI responses"),
        pytest.param(
            VLLM + "you requested 5000 tokens in the messages, Please reduce the length of the messages.",
            fits(4096, 5000),
            id="vLLM",
        ),
        pytest.param(
            VLLM + "you requested 100 output tokens and your prompt contains at least 5000 input tokens.",
            fits(4096, 5000),
            id="vLLM, newer",
        ),
        pytest.param(
            VLLM + "your request has 5000 input tokens. (parameter=input_tokens, value=5000)",
            fits(4096, 5000),
            id="vLLM, newest",
        ),
        pytest.param(
            "'max_tokens' is too large: 2048. This model's maximum context length is 4096 tokens and your "
            "request has 3000 input tokens (2048 > 4096 - 3000).",
            fits(4096, 3000),
            id="vLLM: only with the output too long",
        ),
        pytest.param(
            "You passed 5000 input tokens and requested 10 output tokens. However, the model's context "
            "length is only 4096 tokens. Please reduce the length of the input prompt.",
            fits(4096, 5000),
            id="vLLM: passed",
        ),
        pytest.param(
            "The decoder prompt (length 5000) is longer than the maximum model length of 4096.",
            fits(4096, 5000),
            id="vLLM: decoder prompt",
        ),
        pytest.param(
            "The prompt (total length 5000) is too long to fit into the model (context length 4096).",
            fits(4096, 5000),
            id="vLLM: total length",
        ),
        pytest.param("max_tokens must be at least 1, got -186.", fits(), id="vLLM in disguise"),
        pytest.param(
            "The input (5000 tokens) is longer than the model's context length (4096 tokens).",
            fits(4096, 5000),
            id="SGLang",
        ),
        pytest.param(
            "Requested token count exceeds the model's maximum context length of 4096 tokens. You requested "
            "a total of 5100 tokens: 5000 tokens from the input messages and 100 tokens for the completion.",
            fits(4096, 5000),
            id="SGLang with output",
        ),
        pytest.param(
            "Input length (5000 tokens) exceeds the maximum allowed length (4096 tokens).",
            fits(4096, 5000),
            id="SGLang: allowed length",
        ),
        pytest.param("input length exceeds maximum context length", fits(), id="Ollama"),
        pytest.param(
            "prompt too long; exceeded max context length by 12 tokens", fits(), id="Ollama's cloud"
        ),
        pytest.param(
            "Trying to keep the first 5000 tokens when context the overflows. However, the model is loaded "
            "with context length of only 4096 tokens, which is not enough.",
            fits(4096, 5000),
            id="LM Studio",
        ),
        pytest.param(
            "This endpoint's maximum context length is 131,072 tokens. However, you requested about 140000 "
            "tokens (138000 of text input, 2000 in the output).",
            fits(131072, 138000),
            id="OpenRouter, number with a comma",
        ),
        pytest.param(
            "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 "
            "`inputs` tokens and 20 `max_new_tokens`",
            fits(4096, 5000),
            id="TGI",
        ),
        pytest.param(
            "`inputs` must have less than 4096 tokens. Given: 5000", fits(4096, 5000), id="TGI inputs"
        ),
        pytest.param(
            "prompt is too long: 210000 tokens > 200000 maximum", fits(200000, 210000), id="Anthropic"
        ),
        pytest.param(
            "input length and `max_tokens` exceed context limit: 197202 + 21333 > 200000, decrease it",
            fits(200000, 197202),
            id="Anthropic with output",
        ),
        pytest.param(
            "This model's maximum prompt length is 131072 but the request contains 140000 tokens.",
            fits(131072, 140000),
            id="xAI",
        ),
        pytest.param(
            "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
            fits(1048576, 1200000),
            id="Gemini",
        ),
        pytest.param(
            "Prompt contains 40000 tokens, too large for model with 32768 maximum context length",
            fits(32768, 40000),
            id="Mistral",
        ),
        pytest.param(
            "Invalid request: Your request exceeded model token limit: 8192 (requested: 9000)",
            fits(8192),
            id="Kimi",
        ),
        pytest.param(
            "prompt token count of 130000 exceeds the limit of 128000", fits(128000, 130000), id="Copilot"
        ),
        pytest.param("Input is too long for requested model.", fits(), id="Bedrock"),
    ],
)
def test_every_wording_is_recognised(message: str, expected: Overflow) -> None:
    assert read_overflow(400, error(message)) == expected


LM_STUDIO = (
    "The number of tokens to keep from the initial prompt is greater than the context length "
    "(n_keep: 13055>= n_ctx: 4096)."
)
FIELDS = {
    "error": {
        "code": 400,
        "message": "x",
        "type": "exceed_context_size_error",
        "n_prompt_tokens": 9,
        "n_ctx": 7,
    }
}


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        pytest.param(400, json.dumps(FIELDS).encode(), fits(7, 9), id="llama.cpp's own fields"),
        pytest.param(500, error(LLAMA), fits(4096, 4390), id="another status"),
        pytest.param(200, error(LLAMA), fits(4096, 4390), id="an error object in a 200"),
        pytest.param(
            400, json.dumps({"error": LM_STUDIO}).encode(), fits(4096, 13055), id="error as a string"
        ),
        pytest.param(
            400,
            json.dumps({"object": "error", "message": VLLM, "code": 400}).encode(),
            fits(4096),
            id="error object at the top",
        ),
        pytest.param(
            422,
            json.dumps(
                {"error": "`inputs` must have less than 9 tokens. Given: 10", "error_type": "validation"}
            ).encode(),
            fits(9, 10),
            id="TGI's 422",
        ),
        pytest.param(
            400, json.dumps([{"error": {"message": LLAMA}}]).encode(), fits(4096, 4390), id="in a list"
        ),
        pytest.param(400, json.dumps({"detail": LLAMA}).encode(), fits(4096, 4390), id="as detail"),
        pytest.param(400, json.dumps(LLAMA).encode(), fits(4096, 4390), id="a JSON string"),
        pytest.param(400, LLAMA.encode(), fits(4096, 4390), id="plain text"),
        pytest.param(400, error(LLAMA)[:-2], fits(4096, 4390), id="truncated JSON"),
        pytest.param(
            400,
            error("Your request is invalid.", code="context_length_exceeded"),
            fits(),
            id="the code alone",
        ),
        pytest.param(
            502,
            error("upstream said 400: " + json.dumps(FIELDS)),
            fits(7, 9),
            id="an error inside an error's message",
        ),
        pytest.param(
            200,
            error("Provider returned error", metadata={"raw": error(VLLM + "x").decode()}),
            fits(4096),
            id="a provider's error in OpenRouter's",
        ),
        pytest.param(
            200,
            b"error: " + json.dumps(FIELDS["error"]).encode() + b"\n\ndata: [DONE]\n\n",
            fits(7, 9),
            id="error: field",
        ),
        pytest.param(200, b"data: " + error(LLAMA) + b"\n\n", fits(4096, 4390), id="first event of a stream"),
        pytest.param(200, b"data:" + error(LLAMA) + b"\r\n\r\n", fits(4096, 4390), id="CRLF and no space"),
        pytest.param(
            200, b": ping\n\ndata: " + error(LLAMA), fits(4096, 4390), id="after a comment, cut off"
        ),
        pytest.param(
            200,
            b"event: error\ndata: " + error("x", code="context_length_exceeded") + b"\n\n",
            fits(),
            id="error event",
        ),
        pytest.param(200, b"event: error\ndata: prompt is too long\n\n", fits(), id="error event in words"),
        pytest.param(
            200,
            b'event: response.failed\ndata: {"type":"response.failed","response":'
            b'{"error":{"code":"context_length_exceeded","message":"x"}}}\n\n',
            fits(),
            id="a failed response",
        ),
        pytest.param(
            200,
            b'data: {"choices":[{"delta":{"content":"a"}}]}\n\ndata: ' + error(LLAMA) + b"\n\n",
            fits(4096, 4390),
            id="in mid-stream",
        ),
        pytest.param(
            500,
            error("Context size has been exceeded.", code=500),
            Overflow(pool_full=True),
            id="pool full: nothing to learn",
        ),
        pytest.param(
            200,
            b"data: " + error("Context size has been exceeded.", code=500) + b"\n\n",
            Overflow(pool_full=True),
            id="pool full in mid-stream",
        ),
    ],
)
def test_every_form_is_recognised(status: int, body: bytes, expected: Overflow) -> None:
    assert read_overflow(status, body) == expected


TALK = "prompt is too long: 9000 tokens > 8192 maximum"


@pytest.mark.parametrize(
    ("status", "body"),
    [
        pytest.param(429, error("Too many tokens, please wait before trying again."), id="throttled"),
        pytest.param(
            400, error("ThrottlingException: Too many tokens, please wait."), id="throttled, as 400"
        ),
        pytest.param(429, error(LLAMA), id="429 is never one"),
        pytest.param(503, error(LLAMA), id="503 is never one"),
        pytest.param(200, error("maximum context length is 9 tokens", code=429), id="429 inside a 200"),
        pytest.param(200, error("maximum context length is 9 tokens", code="429"), id="429 as a string"),
        pytest.param(
            413,
            error("Request too large for model on tokens per minute (TPM): Limit 6000, Requested 8000"),
            id="rate limit as 413",
        ),
        pytest.param(400, error("maximum context length is 9. Rate limit reached"), id="rate limit in words"),
        pytest.param(503, error("Loading model"), id="loading"),
        pytest.param(413, b"<html><h1>413 Request Entity Too Large</h1></html>", id="body too large"),
        pytest.param(400, error("max_tokens must be at least 1, got -1."), id="a client's own -1"),
        pytest.param(
            400, error("max_tokens is too large: 99999. At most 16384 completion tokens."), id="output limit"
        ),
        pytest.param(401, error("Incorrect API key provided"), id="key"),
        pytest.param(500, error("Failed to parse tool call arguments as JSON"), id="another fault"),
        pytest.param(
            200, json.dumps({"choices": [{"message": {"content": TALK}}]}).encode(), id="the model says so"
        ),
        pytest.param(
            200,
            b"data: " + json.dumps({"choices": [{"delta": {"content": TALK}}]}).encode(),
            id="the stream says so",
        ),
        pytest.param(200, TALK.encode(), id="text in a 200"),
        pytest.param(200, json.dumps({"error": None, "choices": []}).encode(), id="no error"),
        pytest.param(
            422,
            json.dumps(
                {"detail": [{"type": "missing", "msg": "Field required", "input": {"messages": [TALK]}}]}
            ).encode(),
            id="an echo of the request",
        ),
        pytest.param(
            400,
            error("[{'type': 'missing', 'msg': 'Field required', 'input': '" + TALK + "'}]"),
            id="an echo as text",
        ),
        pytest.param(400, b"", id="empty"),
        pytest.param(400, b"\xff\xfe\x00", id="no text"),
        pytest.param(400, b'{"error": 5}', id="a number"),
        pytest.param(400, b'{"error": [[], {}, null, true, 1e999]}', id="odd values"),
    ],
)
def test_what_is_no_overflow(status: int, body: bytes) -> None:
    assert read_overflow(status, body) is None


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"[" * 200_000, id="deep lists"),
        pytest.param(b'{"error":' * 30_000, id="deep objects"),
        pytest.param(b'{"error":' * 5_000 + b"1" + b"}" * 5_000, id="deep and complete"),
        pytest.param(error('{"error":"' * 5_000), id="errors in errors"),
        pytest.param(error("1," * 500_000), id="digits"),
        pytest.param(error("model's max " * 100_000), id="words that repeat"),
        pytest.param(b"data: {\n" * 100_000, id="events without end"),
        pytest.param(json.dumps({"error": [["x"] * 20] * 3000}).encode(), id="many texts"),
    ],
)
def test_hostile_bodies_are_no_overflow(body: bytes) -> None:
    assert read_overflow(400, body) is None


def test_what_comes_after_64_kib_is_not_read() -> None:
    assert read_overflow(200, b":" + b"x" * MOST_BODY_BYTES + b"\n\ndata: " + error(LLAMA)) is None


@given(st.sampled_from([200, 400, 500]), st.binary(max_size=300))
def test_no_body_makes_it_fail(status: int, body: bytes) -> None:
    read_overflow(status, body)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["error", "message", "code", "n_ctx", "raw", "response"]), inner, max_size=4
        )
    ),
    max_leaves=20,
)


@given(
    st.sampled_from([200, 400]), JSON, st.sampled_from([b"", b"data: ", b"error: ", b"event: error\ndata: "])
)
def test_no_object_makes_it_fail(status: int, value: object, prefix: bytes) -> None:
    read_overflow(status, prefix + json.dumps(value).encode() + b"\n\n")


@pytest.mark.parametrize(
    ("overflow", "output_limit", "worked", "window"),
    [
        pytest.param(fits(4096, 5000), None, 0, 4096, id="as it says"),
        pytest.param(fits(None, 5000), 100, 0, None, id="it does not say"),
        pytest.param(Overflow(window=4096, pool_full=True), None, 0, None, id="pool full"),
        pytest.param(fits(3, 8), None, 0, None, id="too small for an agent"),
        pytest.param(fits(1023), None, 0, None, id="just too small"),
        pytest.param(fits(1024), None, 0, 1024, id="just large enough"),
        pytest.param(fits(3, 8), 2045, 0, 2048, id="the output limit was left out"),
        pytest.param(fits(3, 8), 500, 0, None, id="too small even so"),
        pytest.param(fits(4096), None, 6000, None, id="a longer prompt worked"),
        pytest.param(fits(4096), 4096, 6000, 8192, id="a longer prompt worked, the sum explains it"),
        pytest.param(fits(4096), None, 4096, 4096, id="just as long a prompt worked"),
        pytest.param(fits(10**12), None, 0, None, id="larger than any"),
        pytest.param(fits(-5), 9000, 0, 8995, id="negative without the output limit"),
        pytest.param(fits(4096), -1, 0, 4096, id="an output limit that is none"),
    ],
)
def test_only_a_sane_window_is_learned(
    overflow: Overflow, output_limit: int | None, worked: int, window: int | None
) -> None:
    assert sane_window(overflow, output_limit=output_limit, largest_prompt_that_worked=worked) == window


@pytest.mark.parametrize(
    ("number", "window"),
    [
        pytest.param("4_096", 4096, id="underscores"),
        pytest.param("4,096", 4096, id="commas"),
        pytest.param("1", 1, id="one"),
        pytest.param("0", None, id="nothing is no number of tokens"),
    ],
)
def test_how_a_number_is_written(number: str, window: int | None) -> None:
    message = f"the prompt exceeds the available context size ({number} tokens)"
    assert read_overflow(400, error(message)) == fits(window)


@pytest.mark.parametrize(
    ("window", "output_limit", "learned"),
    [
        pytest.param(MOST_WINDOW, None, MOST_WINDOW, id="the largest"),
        pytest.param(MOST_WINDOW + 1, None, None, id="larger"),
        pytest.param(1023, 1, 1024, id="an output of one token counts"),
        pytest.param(1023, 0, None, id="one of none does not"),
    ],
)
def test_the_edges_of_what_is_believed(window: int, output_limit: int | None, learned: int | None) -> None:
    assert sane_window(Overflow(window=window), output_limit) == learned
