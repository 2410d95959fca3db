"""How the scripts set up the checkout, against Pythons that only write down what they are asked."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parent.parent
TOOLS = ("cat", "chmod", "cksum", "cp", "dirname", "flock", "mkdir", "readlink", "rm", "sh")

PYTHON = """\
#!/bin/sh
echo "$*" >>"$CALLS"
case "$*" in
*print*) echo 3.11 ;;
--version) echo Python 3.11.9 ;;
"-m venv "*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
*"-m pip install"*)
    [ -z "$PIP_FAILS" ] || { echo no network >&2; exit 1; }
    printf '#!/bin/sh\\necho "proxy got: $*"\\n' >"${0%/*}/compaction-proxy"
    chmod +x "${0%/*}/compaction-proxy"
    ;;
"-m pytest"*) echo "pytest got: $*" ;;
esac
"""
OLD = "#!/bin/sh\nexit 1\n"
WITHOUT_VENV = '#!/bin/sh\ncase "$*" in *ensurepip*) exit 1 ;; *print*) echo 3.12 ;; esac\n'


@dataclass(frozen=True, slots=True)
class Machine:
    """A checkout with the real scripts, and a PATH that holds nothing but what a test puts there."""

    checkout: Path
    bin: Path
    calls: Path

    def put(self, name: str, script: str) -> None:
        """A program on the PATH."""
        program = self.bin / name
        program.write_text(script)
        program.chmod(0o755)

    def run(self, script: str, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        """Start one of the scripts from another folder."""
        self.calls.write_text("")
        return subprocess.run(
            [self.checkout / script, *arguments],
            cwd=self.bin,
            env={"PATH": str(self.bin), "CALLS": str(self.calls), "PIP_FAILS": "", **environ},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )

    def installs(self) -> list[str]:
        """What the last run asked pip to install."""
        return [line.split()[-1] for line in self.calls.read_text().splitlines() if "pip install" in line]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    checkout = tmp_path / "my checkout"
    shutil.copytree(CHECKOUT / "scripts", checkout / "scripts")
    (checkout / "pyproject.toml").write_text("first\n")
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in TOOLS:
        if found := shutil.which(tool):
            (folder / tool).symlink_to(found)
    return Machine(checkout, folder, tmp_path / "calls")


@pytest.mark.parametrize(
    "script", ["scripts/run", "scripts/test", "scripts/check", "scripts/lock", "scripts/venv.sh"]
)
def test_a_script_is_valid_for_every_shell(script: str) -> None:
    subprocess.run(["sh", "-n", CHECKOUT / script], check=True)


def test_the_script_of_ci_is_valid() -> None:
    subprocess.run(["bash", "-n", CHECKOUT / ".ci/run"], check=True)


@pytest.mark.parametrize("script", ["scripts/run", "scripts/test", "scripts/check", ".ci/run"])
def test_a_script_can_be_started(script: str) -> None:
    assert os.access(CHECKOUT / script, os.X_OK)


# Which Python


@pytest.mark.parametrize(
    ("pythons", "chosen"),
    [
        pytest.param({"python3": PYTHON}, "python3", id="the only one"),
        pytest.param({"python3": PYTHON, "python3.12": PYTHON}, "python3.12", id="the newest by name"),
        pytest.param(
            {"python3.13": OLD, "python3.11": PYTHON}, "python3.11", id="not a shim without its version"
        ),
        pytest.param(
            {"python3.13": WITHOUT_VENV, "python3": PYTHON}, "python3", id="not one without ensurepip"
        ),
    ],
)
def test_the_newest_python_that_works_is_used(machine: Machine, pythons: dict[str, str], chosen: str) -> None:
    for name, script in pythons.items():
        machine.put(name, script.replace("Python 3.11.9", f"Python by the name of {name}"))
    done = machine.run("scripts/run", "serve")
    assert (done.returncode, done.stdout) == (0, "proxy got: serve\n")
    assert f"Making .venv with Python by the name of {chosen} ..." in done.stderr


def test_python_can_be_named(machine: Machine) -> None:
    machine.put("python3", OLD)
    machine.put("mine", PYTHON)
    assert machine.run("scripts/run", "serve", PYTHON=str(machine.bin / "mine")).returncode == 0


def test_without_a_python_it_says_what_to_install(machine: Machine) -> None:
    machine.put("python3", OLD)
    done = machine.run("scripts/run", "serve")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Python 3.11 or newer is needed, and none was found on the PATH.")
    assert "apt install python3 python3-venv" in done.stderr


def test_without_ensurepip_it_names_the_package(machine: Machine) -> None:
    machine.put("python3", WITHOUT_VENV)
    done = machine.run("scripts/run", "serve")
    assert done.returncode == 1
    assert done.stderr.startswith("python3 cannot make virtual environments")
    assert "apt install python3.12-venv" in done.stderr


# When something is installed


@pytest.fixture
def ready(machine: Machine) -> Machine:
    machine.put("python3", PYTHON)
    assert machine.run("scripts/run", "serve").returncode == 0
    assert machine.installs() == ["."]
    return machine


def test_a_second_start_asks_no_python_and_says_nothing(ready: Machine) -> None:
    done = ready.run("scripts/run", "serve", "--listen", "a b")
    assert (done.stdout, done.stderr) == ("proxy got: serve --listen a b\n", "")
    assert ready.calls.read_text() == ""


def test_a_changed_pyproject_is_installed_again(ready: Machine) -> None:
    (ready.checkout / "pyproject.toml").write_text("second\n")
    ready.run("scripts/run", "serve")
    assert ready.installs() == ["."]


@pytest.mark.parametrize(
    ("script", "arguments", "extra"),
    [("scripts/run", ("demo",), ".[demo]"), ("scripts/test", ("-q",), ".[dev]")],
)
def test_what_a_command_needs_more_is_installed_once(
    ready: Machine, script: str, arguments: tuple[str, ...], extra: str
) -> None:
    assert ready.run(script, *arguments).returncode == 0
    assert ready.installs() == [extra]
    assert ready.run(script, *arguments).returncode == 0
    assert ready.installs() == []


def test_what_dev_brought_is_enough_for_the_other_commands(ready: Machine) -> None:
    ready.run("scripts/test")
    for command in ("demo", "serve"):
        ready.run("scripts/run", command)
        assert ready.installs() == []


def test_the_arguments_of_test_go_to_pytest(ready: Machine) -> None:
    assert ready.run("scripts/test", "-k", "a b").stdout == "pytest got: -m pytest -k a b\n"


def test_a_moved_checkout_is_installed_again(ready: Machine) -> None:
    moved = Machine(ready.checkout.rename(ready.checkout.with_name("moved")), ready.bin, ready.calls)
    assert moved.run("scripts/run", "serve").returncode == 0
    assert moved.installs() == ["."]


@pytest.mark.parametrize("broken", ["bin/python", "bin"])
def test_a_broken_environment_is_made_anew(ready: Machine, broken: str) -> None:
    part = ready.checkout / ".venv" / broken
    shutil.rmtree(part) if part.is_dir() else part.unlink()
    done = ready.run("scripts/run", "serve")
    assert (done.returncode, done.stdout) == (0, "proxy got: serve\n")
    assert "Making .venv" in done.stderr


def test_a_failed_installation_says_so_and_is_tried_again(machine: Machine) -> None:
    machine.put("python3", PYTHON)
    done = machine.run("scripts/run", "serve", PIP_FAILS="yes")
    assert (done.returncode, done.stdout) == (1, "")
    assert "no network" in done.stderr
    assert "Installing failed" in done.stderr
    assert machine.run("scripts/run", "serve").returncode == 0


def test_a_script_is_found_through_a_link(ready: Machine) -> None:
    link = ready.bin / "linked"
    link.symlink_to(ready.checkout / "scripts/run")
    done = subprocess.run(
        [link, "serve"], env={"PATH": str(ready.bin)}, capture_output=True, text=True, check=True, timeout=30
    )
    assert done.stdout == "proxy got: serve\n"


def test_check_refuses_arguments_that_are_for_pytest(ready: Machine) -> None:
    done = ready.run("scripts/check", "-k", "x")
    assert done.returncode == 1
    assert "scripts/test takes the arguments of pytest" in done.stderr
