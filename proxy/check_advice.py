"""
What could be better about a server, and what helps where it will not do?

The numbers were measured on llama.cpp's build 11549; they say how much a flag can matter,
not how much it will.
"""

from collections.abc import Iterator
from typing import Any

from proxy.discovery import Found, ServerKind

_LARGER = {
    ServerKind.LLAMA_CPP: "start llama-server with a larger -c (it is divided among the slots of -np)",
    ServerKind.VLLM: "start vLLM with a larger --max-model-len",
    ServerKind.SGLANG: "start SGLang with a larger --context-length",
    ServerKind.OLLAMA: "start Ollama with a larger OLLAMA_CONTEXT_LENGTH, or set num_ctx in the Modelfile",
    ServerKind.LM_STUDIO: "load the model with a larger context length",
    ServerKind.TGI: "start TGI with a larger --max-total-tokens",
}
_SET_WINDOW = (
    "set it to what the server really holds: [context] window = 32768 in the file given with --config, or "
    "COMPACTION_PROXY_CONTEXT_WINDOW=32768 in the environment"
)


def enlarge(kind: ServerKind) -> str:
    """How to give such a server a larger window."""
    return _LARGER.get(kind, "give it a larger context")


def without_window(found: Found) -> str:
    """What to do where the window is not known."""
    if found.kind in (ServerKind.OLLAMA, ServerKind.LM_STUDIO, ServerKind.LLAMA_CPP):
        return (
            "its window is not known, because no model is loaded or it is loading still: send it one request "
            f"and check again, or {_SET_WINDOW}"
        )
    return f"its window is not known, and it does not say: {_SET_WINDOW}"


def advice(found: Found, props: dict[str, Any], window: int | None) -> Iterator[str]:
    """
    What could be better.

    Args:
        found: What the server is.
        props: What llama.cpp says at /props.
        window: That the proxy will go by.
    """
    if window and found.window and window > found.window:
        yield (
            f"context.window is {window}, but the server says {found.window}: longer prompts will be "
            "refused; leave it out, or lower it"
        )
    match found.kind:
        case ServerKind.LLAMA_CPP:
            yield from _advice_for_llama_cpp(found, props)
        case ServerKind.OLLAMA:
            yield (
                "Ollama drops the oldest messages without a word where a prompt does not fit; make sure that "
                "the window above is that of the model as the agent loads it"
            )
        case ServerKind.VLLM:
            yield (
                "vLLM counts a request's max_tokens into the window: an agent that asks for less leaves more "
                "room for its prompt; --enable-prefix-caching keeps the cache between turns"
            )
        case ServerKind.OTHER:
            yield "if you know what it is, say so in upstream.kind"
        case _:
            return


def _advice_for_llama_cpp(found: Found, props: dict[str, Any]) -> Iterator[str]:
    yield (
        "start it with -sps 0.5: at the default of 0.1 a short side request that shares the system prompt "
        "takes the conversation's slot (measured: 2330 of 3386 tokens processed again, with 0.5 only 357)"
    )
    if found.slots == 1:
        yield (
            "one slot serves one agent; for N at once start it with -np N and -c N times as large, or they "
            "take the cache from each other"
        )
    elif found.slots:
        yield (
            f"{found.slots} slots: where -np was not given they share one context, and long prompts in all "
            "of them at once overflow it together; give -np the number of agents, and 1 for a single one"
        )
    yield (
        "try it with --cache-ram 0 and without: the host-memory cache does not always help (measured with "
        "other requests in between: 0 tokens of a returning prompt cached with it, 1413 with it off)"
    )
    if props.get("endpoint_metrics") is False:
        yield "start it with --metrics to see its own figures at /upstream/metrics of the proxy"
