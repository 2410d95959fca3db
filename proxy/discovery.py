"""
What is the server behind the proxy, how much does it hold, and can it count?

Asks the endpoints by which each kind of server gives itself away. What is not sane is
not believed: a wrong window is worse than none, because an overflow answer teaches the
right one. Nothing here raises; a server that does not say is `OTHER`.

Sizes are in tokens. Paths count from the server's root, without the `/v1` of its URL.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from proxy import discovery_windows as windows
from proxy.discovery_answers import MOST_TOKENS, Ask, Server, dict_of, dicts_of, entry_of, parsed, whole
from proxy.upstream import Headers

__all__ = ["Ask", "Found", "ServerKind", "count", "discover"]

MOST_SLOTS = 4096


class ServerKind(StrEnum):
    """Which server it is, by the names of `upstream.kind`."""

    LLAMA_CPP = "llama.cpp"
    VLLM = "vllm"
    SGLANG = "sglang"
    OLLAMA = "ollama"
    LM_STUDIO = "lmstudio"
    OPENAI = "openai"
    OPENROUTER = "openrouter"
    TGI = "tgi"
    OTHER = "other"


# They refuse a prompt where prompt + output limit do not fit; the others run out later.
_ENFORCING = frozenset(
    {ServerKind.VLLM, ServerKind.SGLANG, ServerKind.TGI, ServerKind.OPENAI, ServerKind.OPENROUTER}
)
# SGLang takes the tools out of the prompt at tool_choice "none"; of the rest it is not known.
_TOOLS_KEPT = frozenset({ServerKind.LLAMA_CPP, ServerKind.VLLM, ServerKind.OPENAI})
_COUNT_PATHS = {
    ServerKind.LLAMA_CPP: "/v1/chat/completions/input_tokens",
    ServerKind.VLLM: "/tokenize",
}
_OWNERS = {
    "llamacpp": ServerKind.LLAMA_CPP,
    "vllm": ServerKind.VLLM,
    "sglang": ServerKind.SGLANG,
    "library": ServerKind.OLLAMA,
    "organization_owner": ServerKind.LM_STUDIO,
}
# Endpoints that only one kind of server has; the window in the model list, where there is
# one, is as good.
_OWN_ENDPOINTS = (
    (ServerKind.LM_STUDIO, windows.lm_studio),
    (ServerKind.OLLAMA, windows.ollama),
    (ServerKind.TGI, windows.tgi),
    (ServerKind.SGLANG, windows.sglang),
)
# What of a chat request vLLM's /tokenize takes: all that reaches the chat template.
_TOKENIZE_FIELDS = (
    "model",
    "messages",
    "tools",
    "chat_template",
    "chat_template_kwargs",
    "add_generation_prompt",
    "continue_final_message",
    "add_special_tokens",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """
    What is known of the upstream.

    Attributes:
        kind: Which server it is.
        window: Prompt and completion together, for one request; None where it does not say.
        window_source: Endpoint and field that said so; empty without a window.
        slots: Requests that are worked on at once, or None.
        count_path: Where it counts a prompt exactly, or None.
        answered: Whether anything answered at all, if only with an error.
    """

    kind: ServerKind = ServerKind.OTHER
    window: int | None = None
    window_source: str = ""
    slots: int | None = None
    count_path: str | None = None
    answered: bool = True

    @property
    def enforces_limit(self) -> bool:
        """Whether a request is refused where prompt + output limit are over the window."""
        return self.kind in _ENFORCING

    @property
    def keeps_tools_with_none(self) -> bool:
        """Whether `tool_choice` "none" leaves the rendered prompt alone."""
        return self.kind in _TOOLS_KEPT


async def discover(ask: Ask, model: str, headers: Headers = (), *, kind: ServerKind | None = None) -> Found:
    """
    Find out what the upstream says of itself and of *model*.

    Where a server is still loading, or holds its window back, a later call may find more.

    Args:
        ask: How to reach it.
        model: As requests name it; empty where it is not known yet.
        headers: Credentials.
        kind: As configured; None to find out.
    """
    server = Server(ask, model, headers)
    props = dict_of(await server.get("/props")) if kind in (None, ServerKind.LLAMA_CPP) else {}
    models = dict_of(await server.get("/v1/models"))
    entry = entry_of(models.get("data"), model, ("id", "aliases"))
    known = kind or _kind(server, props, models)
    window, source = None, ""
    if known is ServerKind.LLAMA_CPP:
        window, source = await windows.llama_cpp(server, props, entry)
    elif known is ServerKind.OPENROUTER:
        window, source = windows.openrouter(entry)
    elif known not in (ServerKind.LM_STUDIO, ServerKind.OLLAMA):
        # These two hold less than a model can do, and say it elsewhere.
        window, source = windows.stated(entry)
    for own, look in _OWN_ENDPOINTS:
        if known is own and window is None:
            window, source = await look(server)
        elif known is None:
            # There without a window has said what it is, too.
            found, place = await look(server)
            if place:
                known = own
                window, source = (found, place) if found else (window, source)
    return Found(
        kind=known or ServerKind.OTHER,
        window=window,
        window_source=source if window else "",
        slots=whole(props.get("total_slots"), MOST_SLOTS),
        count_path=_COUNT_PATHS.get(known or ServerKind.OTHER),
        answered=server.answered,
    )


async def count(ask: Ask, found: Found, path: str, body: bytes, headers: Headers = ()) -> int | None:
    """
    The tokens of a request's prompt as the upstream counts them, None where it does not.

    Args:
        ask: How to reach it.
        found: As `discover` has it.
        path: Of the request, with or without `/v1`.
        body: Of the request, as it would be sent.
        headers: Credentials.
    """
    endpoint = path.rstrip("/").removeprefix("/v1")
    if found.kind is ServerKind.LLAMA_CPP and found.count_path:
        suffixes = {
            "/chat/completions": "input_tokens",
            "/responses": "input_tokens",
            "/messages": "count_tokens",
        }
        if endpoint not in suffixes:
            return None
        asked, field = f"/v1{endpoint}/{suffixes[endpoint]}", "input_tokens"
    elif found.kind is ServerKind.VLLM and found.count_path and endpoint == "/chat/completions":
        request = dict_of(parsed(body))
        body = json.dumps({key: request[key] for key in _TOKENIZE_FIELDS if key in request}).encode()
        asked, field = found.count_path, "count"
    else:
        return None
    reply = dict_of(await Server(ask, "", headers).post(asked, body))
    return whole(reply.get(field), MOST_TOKENS)


def _kind(server: Server, props: Mapping[str, Any], models: Mapping[str, Any]) -> ServerKind | None:
    """Which server it is, by what it answered so far; None where that says nothing."""
    if "default_generation_settings" in props or server.seen_headers.get("server") == "llama.cpp":
        return ServerKind.LLAMA_CPP
    # Others that answer in OpenAI's name say owned_by "openai", but not this.
    if "openai-version" in server.seen_headers:
        return ServerKind.OPENAI
    listed = dicts_of(models.get("data"))
    for entry in listed:
        owner = entry.get("owned_by")
        if isinstance(owner, str) and owner in _OWNERS:
            return _OWNERS[owner]
    if any("top_provider" in entry for entry in listed):
        return ServerKind.OPENROUTER
    return None
