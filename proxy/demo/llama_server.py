"""
Run llama.cpp's own HTTP server with the demo's model, as a process of its own.

`python -m proxy.demo.llama_server --window 4096` writes one JSON object a line to
standard output: {"doing": "..."} while it starts, then {"url": "http://..."}, or
{"error": "..."}. The server's log goes to standard error. It ends when its standard
input is closed, so it never outlives the process that started it, however that ended.
"""

import argparse
import json
import os
import signal
import sys
from importlib.resources import files
from typing import Any

TEMPLATE = files("proxy.demo").joinpath("template.jinja")


def main() -> None:
    """Serve until standard input closes."""
    arguments = _arguments()
    # Ctrl-C in a terminal reaches every process there; the parent closes our input.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    tell = _only_writer_to_stdout()
    try:
        server = _start(arguments, tell)
    except (ImportError, OSError, ValueError, RuntimeError) as error:
        tell({"error": f"{type(error).__name__}: {error}"})
        sys.exit(1)
    tell({"url": server.listening_address})
    sys.stdin.buffer.read()
    # Requests under way would hold an orderly end up.
    os._exit(0)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--window", type=int, default=4096, help="tokens that one slot holds")
    parser.add_argument("--parallel", type=int, default=1, help="slots")
    parser.add_argument("--unified", action="store_true", help="slots share one window instead of one each")
    parser.add_argument("--port", type=int, default=0, help="0 for a free one")
    parser.add_argument("--threads", type=int, default=0, help="0 for what the cores allow")
    parser.add_argument("--similarity", type=float, default=0.1, help="llama.cpp's -sps")
    parser.add_argument("--cache-ram", type=int, default=0, help="MiB for prompts that lost their slot")
    parser.add_argument("--sliding", action="store_true", help="keep only the sliding window's cache")
    return parser.parse_args()


def _start(arguments: argparse.Namespace, tell: Any) -> Any:
    from proxy.demo.model import cached_model  # noqa: PLC0415 - after the output is redirected

    tell({"doing": "loading llama.cpp"})
    import xllamacpp  # noqa: PLC0415 - optional, and it may write to standard output

    path = cached_model(lambda doing: tell({"doing": doing}))
    tell({"doing": "loading the model"})
    slots = 1 if arguments.unified else arguments.parallel
    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.model_alias = {"gemma-3-270m"}
    params.n_ctx = arguments.window * slots
    params.n_parallel = arguments.parallel
    params.kv_unified = arguments.unified
    params.hostnames = ["127.0.0.1"]
    params.port = arguments.port
    params.slot_prompt_similarity = arguments.similarity
    params.cache_ram_mib = arguments.cache_ram
    # The whole cache is kept: the model then behaves like one with full attention, and
    # what the server reports as cached is the common prefix.
    params.swa_full = not arguments.sliding
    params.warmup = False
    cores = os.cpu_count() or 1
    # Threads wait for one another at every layer of every token: with the agent and the
    # proxy on the same cores, one too many makes an answer a hundred times slower.
    params.cpuparams.n_threads = arguments.threads or min(4, max(1, cores // 2))
    params.cpuparams_batch.n_threads = arguments.threads or min(8, cores)
    params.use_jinja = True
    # What a model of this size writes is words even where it looks like a call: parsing
    # would answer some requests with a 500.
    params.force_pure_content_parser = True
    params.chat_template = TEMPLATE.read_text(encoding="utf-8")
    return xllamacpp.Server(params)


def _only_writer_to_stdout() -> Any:
    """Keep standard output for our lines: the C++ side writes to descriptor 1 as it likes."""
    lines = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def tell(line: dict[str, str]) -> None:
        lines.write(json.dumps(line) + "\n")
        lines.flush()

    return tell


if __name__ == "__main__":
    main()
