"""
Where does each kind of server say how many tokens it holds?

The window is prompt and completion together, for one request. `n_ctx_train` and the
like are what a model was trained for, and never the window. Each look-up gives the
window and the place that said so.
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from proxy.discovery_answers import MOST_TOKENS, Server, dict_of, dicts_of, entry_of, whole

# Strangers name their window in one of these.
_STATED = ("max_model_len", "context_length", "context_window", "max_context_length")

Window = tuple[int | None, str]


async def llama_cpp(server: Server, props: dict[str, Any], entry: dict[str, Any]) -> Window:
    """The window of one slot: `n_ctx` is per slot already."""
    window = _n_ctx(props)
    if window:
        return window, "/props default_generation_settings.n_ctx"
    if server.model:
        # With several models (router mode) /props needs to know which one.
        path = f"/props?model={quote(server.model, safe='')}"
        ours = dict_of(await server.get(path))
        window = _n_ctx(ours)
        if window:
            props |= ours
            return window, f"{path} default_generation_settings.n_ctx"
    window = whole(dict_of(entry.get("meta")).get("n_ctx"), MOST_TOKENS)
    return window, "/v1/models meta.n_ctx" if window else ""


def _n_ctx(props: Mapping[str, Any]) -> int | None:
    return whole(dict_of(props.get("default_generation_settings")).get("n_ctx"), MOST_TOKENS)


async def lm_studio(server: Server) -> Window:
    """Of the model as loaded; the source stands without a window where none is loaded."""
    path = "/api/v0/models"
    listed = [e for e in dicts_of(dict_of(await server.get(path)).get("data")) if "state" in e]
    loaded = [e for e in listed if e.get("state") == "loaded"]
    found = entry_of(loaded, server.model, ("id",), only=not server.model)
    window = whole(found.get("loaded_context_length"), MOST_TOKENS)
    return window, f"{path} loaded_context_length" if listed else ""


async def ollama(server: Server) -> Window:
    """Of the model as loaded; the source stands without a window where none is loaded."""
    path = "/api/ps"
    listed = dict_of(await server.get(path)).get("models")
    found = entry_of(listed, server.model, ("name", "model"), only=not server.model)
    if not found and server.model:
        found = entry_of(listed, f"{server.model}:latest", ("name", "model"), only=False)
    window = whole(found.get("context_length"), MOST_TOKENS)
    return window, f"{path} context_length" if isinstance(listed, list) else ""


async def tgi(server: Server) -> Window:
    """Prompt and completion together, as it was started."""
    info = dict_of(await server.get("/info"))
    window = whole(info.get("max_total_tokens"), MOST_TOKENS)
    return window, "/info max_total_tokens" if "model_id" in info and window else ""


async def sglang(server: Server) -> Window:
    """As it was started; newer ones say it in the model list. The source stands without a window."""
    path = "/get_server_info"
    info = dict_of(await server.get(path))
    window = whole(info.get("context_length"), MOST_TOKENS)
    return window, f"{path} context_length" if "model_path" in info and "context_length" in info else ""


def openrouter(entry: Mapping[str, Any]) -> Window:
    """The smaller of what the model can do and what its first provider offers."""
    offered = {
        "/v1/models context_length": entry.get("context_length"),
        "/v1/models top_provider.context_length": dict_of(entry.get("top_provider")).get("context_length"),
    }
    windows = [(window, at) for at, value in offered.items() if (window := whole(value, MOST_TOKENS))]
    return min(windows) if windows else (None, "")


def stated(entry: Mapping[str, Any]) -> Window:
    """What the model list itself says of the model's window."""
    for name in _STATED:
        window = whole(entry.get(name), MOST_TOKENS)
        if window:
            return window, f"/v1/models {name}"
    return None, ""
