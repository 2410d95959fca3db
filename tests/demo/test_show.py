"""The demo runs from one command, also into a pipe, and leaves nothing behind."""

import contextlib
import io
import os
import re
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from proxy.demo import show as demo_show
from proxy.demo.show import Screen, look_of
from proxy.errors import ConfigError

ROOT = Path(__file__).parents[2]
DEMO = [sys.executable, "-m", "proxy", "demo"]


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("window", [0, 1024, 65536])
def test_a_window_that_cannot_work_is_refused_with_the_remedy(window: int) -> None:
    with pytest.raises(ConfigError, match=f"--window {window}: .*choose one between"):
        demo_show.show(window, None)


@pytest.mark.parametrize(
    ("environ", "colour"),
    [
        pytest.param({}, True, id="a terminal"),
        pytest.param({"NO_COLOR": "1"}, False, id="NO_COLOR"),
        pytest.param({"TERM": "dumb"}, False, id="a dumb terminal"),
    ],
)
def test_colour_only_where_it_is_wanted(environ: dict[str, str], colour: bool) -> None:
    assert look_of(Terminal(), environ).colour is colour
    assert look_of(io.StringIO(), environ).colour is False


def test_what_passes_is_left_out_of_a_pipe() -> None:
    piped, terminal = io.StringIO(), Terminal()
    for stream in (piped, terminal):
        screen = Screen(stream, {"NO_COLOR": "1"})
        screen.passing("loading")
        screen.line("done")
    assert piped.getvalue() == "done\n"
    assert terminal.getvalue() == "\r\x1b[K  loading ...\r\x1b[Kdone\n"


@pytest.mark.slow
def test_into_a_pipe_it_shows_every_turn_and_a_summary() -> None:
    done = subprocess.run([*DEMO, "--turns", "5"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Gemma Terms of Use" in done.stdout and "\x1b" not in done.stdout
    assert [int(n) for n in re.findall(r"^ +(\d+)  [█·┊#.|]", done.stdout, re.MULTILINE)] == [1, 2, 3, 4, 5]
    assert "turns       5, 0 errors" in done.stdout


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finds processes through /proc")
def test_ctrl_c_ends_everything_it_started_quietly() -> None:
    mark = uuid.uuid4().hex
    running = subprocess.Popen(
        DEMO,
        cwd=ROOT,
        env={**os.environ, "DEMO_MARK": mark},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # As in a terminal, where the signal reaches the demo alone: its server has a session of its own.
        start_new_session=True,
    )
    assert running.stdout is not None and running.stderr is not None
    with running.stdout, running.stderr:
        for line in running.stdout:
            if line.startswith("   1  "):
                break
        assert len(_marked(mark)) == 2
        os.killpg(running.pid, signal.SIGINT)
        assert running.wait() == 130
        assert running.stderr.read() == ""
    assert _marked(mark) == []


def _marked(mark: str) -> list[int]:
    """The processes whose environment carries *mark*."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark.encode() in (folder / "environ").read_bytes():
                found.append(int(folder.name))
    return found
