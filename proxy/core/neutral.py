"""
Make a model's control tokens harmless in text that we put into a prompt.

Servers parse special tokens in message contents too (llama.cpp tokenizes the rendered
prompt with `parse_special`), so a token that a tool printed, quoted in notes or ledger,
could end the block or open a message. The change is one space, which a reader sees and
a tokenizer does not take for the token.
"""

import re

_BROKEN_AFTER_FIRST = (
    # ChatML (Qwen, Yi), Llama 3, Phi, GLM, Kimi, Granite, Command R, gpt-oss: <|name|>.
    # Gemma 4 writes <|turn> and <turn|>: the second form is named below.
    r"<(?=\|[A-Za-z_/])",
    r"<(?=[A-Za-z_]{1,32}\|>)",
    # DeepSeek: the bars are full-width.
    "<(?=/?\N{FULLWIDTH VERTICAL LINE})",
    # Llama 2, Mistral up to v0.3, and most SentencePiece vocabularies.
    r"<(?=/?s>)",
    r"<(?=</?SYS>>)",
    r"\[(?=/?INST\])",
    # Mistral's tokenizer v3 to v13 (mistral-common's special tokens).
    r"\[(?=/?(?:SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_RESULTS|TOOL_CONTENT|MODEL_SETTINGS|THINK|PREFIX|SUFFIX|MIDDLE)\])",
    r"\[(?=(?:TOOL_CALLS|ARGS|CALL_ID|IMG|IMG_BREAK|IMG_END|AUDIO|BEGIN_AUDIO)\])",
    # Gemma 1 to 3.
    r"<(?=(?:start|end)_of_(?:turn|image)>)",
    r"<(?=(?:bos|eos|pad|unk|mask|sop|eop|eod|image_soft_token)>)",
    r"<(?=/?unused\d{1,5}>)",
    # GLM-4.
    r"\[(?=(?:g|s)?MASK\])",
    # Qwen3, DeepSeek-R1, GLM-4.5, MiniMax: reasoning and calls are tokens of the vocabulary.
    r"<(?=/?(?:think|tool_call|tool_response|tool_calls|arg_key|arg_value|minimax:tool_call)>)",
    # MiniMax-M2: ]~b] and ]~!b[ and [e~[.
    r"\](?=~!?b[\]\[])",
    r"\[(?=e~\[)",
    # Fill-in-the-middle tokens of StarCoder and CodeGemma.
    r"<(?=fim_(?:prefix|middle|suffix|pad)>)",
    # No token of any vocabulary, but the envelopes that reminders and our own blocks come in.
    r"<(?=/?(?:system-reminder|record-[0-9a-f]{1,64})\b)",
    # llama.cpp's place for an image (libmtmd): one more than there are images is a 400.
    r"<(?=__(?:media|image)__>)",
)
_BREAK = re.compile("|".join(_BROKEN_AFTER_FIRST))


def neutralise(text: str) -> str:
    """
    *text* with a space inside every control token; text without one comes back as it is.

    Not for user messages, which stay word for word.
    """
    return _BREAK.sub(lambda match: match.group() + " ", text)
