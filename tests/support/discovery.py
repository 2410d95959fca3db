"""
Answer, as a server of each kind does, what it is and how many tokens it holds and counts.

`None` means that such a server has no such endpoint.
"""

from enum import StrEnum
from typing import Any

from tests.support.prompts import CHARS_PER_TOKEN, count, render
from tests.support.translated import as_chat


class Server(StrEnum):
    """What a scripted upstream passes for. `BARE` has chat completions and nothing else."""

    LLAMA_CPP = "llama.cpp"
    VLLM = "vllm"
    OPENAI = "openai"
    BARE = "bare"


MODEL = "scripted"


def describe(
    server: Server,
    path: str,
    body: Any,
    *,
    window: int,
    slots: int,
    chars_per_token: int = CHARS_PER_TOKEN,
) -> dict[str, Any] | list[Any] | None:
    """The JSON that *server* answers at *path* (without a trailing slash)."""
    asked = body if isinstance(body, dict) else {}
    match server, path.removeprefix("/v1"):
        case Server.LLAMA_CPP, "/props":
            return {
                "default_generation_settings": {"n_ctx": window, "params": {"n_predict": -1}},
                "total_slots": slots,
                "model_path": f"{MODEL}.gguf",
                "chat_template": "scripted",
                "chat_template_caps": {"supports_tools": True, "supports_system_role": True},
                "modalities": {"vision": False, "audio": False},
                "build_info": "b11549-scripted",
            }
        case Server.LLAMA_CPP, "/slots":
            return [{"id": i, "n_ctx": window, "is_processing": False} for i in range(slots)]
        case Server.LLAMA_CPP, "/health":
            return {"status": "ok"}
        case Server.LLAMA_CPP, "/models":
            return _models(owned_by="llamacpp", meta={"n_ctx": window, "n_ctx_train": window * 8})
        case Server.LLAMA_CPP, "/chat/completions/input_tokens" | "/responses/input_tokens":
            return {
                "object": "response.input_tokens",
                "input_tokens": count(render(as_chat(path, body)), chars_per_token),
            }
        case Server.LLAMA_CPP, "/messages/count_tokens":
            return {"input_tokens": count(render(as_chat(path, body)), chars_per_token)}
        case Server.LLAMA_CPP, "/apply-template":
            return {"prompt": "".join(render(asked))}
        case Server.LLAMA_CPP, "/tokenize":
            return {"tokens": list(range(count([str(asked.get("content", ""))], chars_per_token)))}
        case Server.VLLM, "/version":
            return {"version": "0.11.0"}
        case Server.VLLM, "/models":
            return _models(owned_by="vllm", max_model_len=window)
        case Server.VLLM, "/tokenize":
            prompt = render(asked) if "messages" in asked else (str(asked.get("prompt", "")),)
            tokens = count(prompt, chars_per_token)
            return {"count": tokens, "max_model_len": window, "tokens": list(range(tokens))}
        case Server.OPENAI, "/models":
            return _models(owned_by="scripted")
    return None


def overflow(
    server: Server, *, prompt: int, limit: int | None, window: int
) -> tuple[int, dict[str, Any]] | None:
    """
    Status and body of the refusal where *prompt* does not fit, None where it does.

    *limit* is the request's own on output tokens; vLLM and OpenAI count it in.
    """
    if server is Server.LLAMA_CPP or server is Server.BARE:
        if prompt < window:
            return None
        message = (
            f"request ({prompt} tokens) exceeds the available context size ({window} tokens), "
            "try increasing it"
        )
        error = {"code": 400, "message": message, "type": "exceed_context_size_error"}
        return 400, {"error": error | {"n_prompt_tokens": prompt, "n_ctx": window}}
    if prompt + (limit or 0) <= window and prompt < window:
        return None
    if server is Server.VLLM:
        message = (
            f"This model's maximum context length is {window} tokens. However, you requested "
            f"{prompt + (limit or 0)} tokens ({prompt} in the messages, {limit or 0} in the completion). "
            "Please reduce the length of the messages or completion."
        )
        return 400, {"error": {"message": message, "type": "BadRequestError", "param": None, "code": 400}}
    message = (
        f"This model's maximum context length is {window} tokens. However, your messages resulted in "
        f"{prompt} tokens. Please reduce the length of the messages."
    )
    error = {"message": message, "type": "invalid_request_error", "param": "messages"}
    return 400, {"error": error | {"code": "context_length_exceeded"}}


def _models(owned_by: str, **members: Any) -> dict[str, Any]:
    model = {"id": MODEL, "object": "model", "created": 1_700_000_000, "owned_by": owned_by}
    return {"object": "list", "data": [model | members]}
