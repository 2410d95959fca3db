"""Which control tokens are made harmless."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.neutral import neutralise

TOKENS = (
    "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|start_header_id|>", "<|eot_id|>", "<|user|>",
    "<|channel|>", "<|return|>", "<|/inst|>", "<｜begin▁of▁sentence｜>", "<｜User｜>", "<start_of_turn>",
    "<end_of_turn>", "<bos>", "<eos>", "<unk>", "<pad>", "<|turn>", "<turn|>", "[INST]", "[/INST]",
    "<s>", "</s>", "<<SYS>>", "<</SYS>>", "[SYSTEM_PROMPT]", "[TOOL_CALLS]", "[AVAILABLE_TOOLS]",
    "[/AVAILABLE_TOOLS]", "[ARGS]", "[gMASK]", "<sop>", "<think>", "</think>", "<tool_call>",
    "</tool_call>", "]~b]", "[e~[", "<fim_prefix>", "<__media__>", "<start_of_image>",
)  # fmt: skip


@pytest.mark.parametrize("token", TOKENS)
def test_a_control_token_is_broken_by_one_space(token: str) -> None:
    broken = neutralise(f"a{token}b")
    assert token not in broken
    assert broken.replace(" ", "") == f"a{token}b"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("a < b | c > d", id="operators"),
        pytest.param("xs |> f <| y", id="pipes of F# and Elixir"),
        pytest.param("<b>bold</b> <span> [x] [1] [ ]", id="markup and brackets"),
        pytest.param("[INSTALL] <strong> <set>", id="longer words"),
    ],
)
def test_other_text_stays_as_it_is(text: str) -> None:
    assert neutralise(text) == text


@given(st.lists(st.sampled_from([*TOKENS, "<", "|", ">", "[", "]", "~", "a"]), max_size=12).map("".join))
def test_no_control_token_is_left_and_twice_is_once(text: str) -> None:
    once = neutralise(text)
    assert neutralise(once) == once
    assert not any(token in once for token in TOKENS)
