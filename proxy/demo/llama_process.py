"""
Start the demo's llama.cpp server in a process of its own, and end it.

The process ends when its standard input is closed (see `llama_server`), so that it
never outlives this one, not even where this one is killed.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from proxy.errors import ProxyError


class ServerFailed(ProxyError):
    """The model server did not start; the message says what it said last."""

    code = "demo_server"


class LlamaProcess:
    """
    A running server. Use as a context manager, or call `stop`.

    Args:
        arguments: As for `python -m proxy.demo.llama_server`.
        say: Told what is being done while it starts.
        log: A file for the server's log; without one it is dropped.

    Attributes:
        url: Base URL, without `/v1`.

    Raises:
        ServerFailed: If it ends, or says that it cannot start, before it listens.
    """

    def __init__(
        self, arguments: list[str], say: Callable[[str], None] = lambda _: None, log: Path | None = None
    ) -> None:
        log_file: int | IO[bytes] = subprocess.DEVNULL if log is None else log.open("ab")
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "proxy.demo.llama_server", *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log_file,
                text=True,
                # Ctrl-C in a terminal is for us to handle.
                start_new_session=True,
            )
        finally:
            if not isinstance(log_file, int):
                log_file.close()
        try:
            self.url = self._await_url(say)
        except BaseException:
            self.stop()
            raise

    @property
    def pid(self) -> int:
        """Of the server's process."""
        return self._process.pid

    def stop(self) -> None:
        """End it and wait until it has ended; a second call does nothing."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _await_url(self, say: Callable[[str], None]) -> str:
        assert self._process.stdout is not None
        doing = "starting"
        for line in self._process.stdout:
            told = json.loads(line)
            if "url" in told:
                return str(told["url"])
            if "error" in told:
                raise ServerFailed(f"the model server failed while {doing}: {told['error']}")
            doing = str(told["doing"])
            say(doing)
        status = self._process.wait()
        raise ServerFailed(
            f"the model server ended (status {status}) while {doing}; "
            "run `python -m proxy.demo.llama_server` to see its log"
        )
