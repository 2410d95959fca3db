"""A request that only has its prompt processed: the same prompt, one token, no stream."""

import json
from typing import Any

import pytest

from proxy.core.splice import splice
from tests.support.formats import FORMATS, Format

EACH = pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
TOOLS = [{"type": "function", "function": {"name": "bash", "parameters": {"b": 1, "a": 2}}}]
CALL = {"id": "a", "type": "function", "function": {"name": "bash", "arguments": '{"x": 1.10}'}}
BODY: dict[str, Any] = {
    "messages": [
        {"role": "system", "content": "S"},
        {"role": "user", "content": "task"},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "a", "content": "result"},
    ],
    "tools": TOOLS,
    "model": "m",
    "stream": True,
    "temperature": 0.3,
}


def prewarm(form: Format, **members: Any) -> tuple[bytes, bytes]:
    """A request and its prewarm."""
    raw = form.wire(BODY | members)
    parsed = form.dialect.parse(raw)
    return raw, form.dialect.render_prewarm(parsed, splice(parsed.conversation, None))


@EACH
def test_every_byte_of_the_prompt_stays(form: Format) -> None:
    raw, made = prewarm(form)
    before, after = json.loads(raw), json.loads(made)
    assert form.slices(made) == form.slices(raw)
    limits = {"max_tokens", "max_output_tokens", "stream"}
    assert {k: v for k, v in after.items() if k not in limits} == {
        k: v for k, v in before.items() if k not in limits
    }


@EACH
def test_one_token_is_asked_for_and_no_stream(form: Format) -> None:
    _, made = prewarm(form, max_tokens=900)
    after = json.loads(made)
    assert after["stream"] is False
    assert [v for k, v in after.items() if k in ("max_tokens", "max_output_tokens")] == [1]


@pytest.mark.parametrize("field", ["n_predict", "max_completion_tokens", "max_tokens"])
def test_every_field_that_sets_a_limit_is_set(field: str) -> None:
    _, made = prewarm(FORMATS[0], **{field: 900})
    assert {k: v for k, v in json.loads(made).items() if v == 1} == {field: 1}


@pytest.mark.parametrize("field", [("n", 3), ("stream_options", {"include_usage": True})], ids=lambda f: f[0])
def test_what_would_add_answers_or_describe_a_stream_is_left_out(field: tuple[str, Any]) -> None:
    raw = json.dumps(BODY | {field[0]: field[1]}).encode()
    parsed = FORMATS[0].dialect.parse(raw)
    made = FORMATS[0].dialect.render_prewarm(parsed, splice(parsed.conversation, None))
    assert field[0] not in json.loads(made)
