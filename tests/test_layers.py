"""
A file imports only from the rows above its own; within a row nothing goes in circles.

A new file gets its place in `ROWS`. Imports for types alone and imports inside functions
count as well: what a file knows of is what it names.
"""

import ast
import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parent.parent

# Patterns; a row may name files that are not written yet.
ROWS: tuple[tuple[str, ...], ...] = (
    # The version, and what may go wrong.
    ("proxy/__init__.py", "proxy/errors.py"),
    # Arithmetic.
    ("proxy/core/*.py",),
    # One wire format each.
    ("proxy/dialects/*.py",),
    # What is asked of the proxy, what it makes of it, and what it announced.
    ("proxy/asked.py", "proxy/renamed.py"),
    # One way to keep things each.
    ("proxy/stores/*.py",),
    # One kind of input or output each.
    (
        "proxy/admission.py",
        "proxy/board.py",
        "proxy/board_*.py",
        "proxy/callers.py",
        "proxy/circuit.py",
        "proxy/config.py",
        "proxy/config_*.py",
        "proxy/connecting.py",
        "proxy/counting.py",
        "proxy/discovery.py",
        "proxy/discovery_*.py",
        "proxy/encodings.py",
        "proxy/events.py",
        "proxy/headers.py",
        "proxy/metrics.py",
        "proxy/metrics_*.py",
        "proxy/origins.py",
        "proxy/paths.py",
        "proxy/sharing.py",
        "proxy/tokenizer.py",
        "proxy/turnstile.py",
        "proxy/upstream.py",
        "proxy/upstream_*.py",
        "proxy/way_out.py",
    ),
    # Steps of the compactor that need one or two of them.
    ("proxy/notes_call.py", "proxy/rewrites.py", "proxy/sizing.py", "proxy/windows.py"),
    # A view and its size, then notes, then a compaction.
    ("proxy/looking.py",),
    ("proxy/telling.py",),
    ("proxy/deciding.py", "proxy/notes_views.py"),
    ("proxy/noting.py",),
    ("proxy/compaction.py", "proxy/masking.py", "proxy/trimming.py"),
    # The same between an answer and the next request.
    ("proxy/ahead_attempt.py", "proxy/ahead_fates.py", "proxy/prewarm.py"),
    ("proxy/ahead.py",),
    # How requests are read and answers written.
    ("proxy/connections.py", "proxy/connections_*.py"),
    # Where core meets them all.
    ("proxy/compactor.py", "proxy/compactor_*.py"),
    # The client's side, then one exchange, then the server.
    ("proxy/client.py", "proxy/client_*.py", "proxy/entrance.py", "proxy/relay.py", "proxy/status.py"),
    ("proxy/understanding.py", "proxy/exchange.py", "proxy/exchange_*.py", "proxy/token_count.py"),
    ("proxy/app.py", "proxy/app_*.py"),
    # The commands, and the line that calls them.
    (
        "proxy/terminal.py",
        "proxy/serve.py",
        "proxy/serve_*.py",
        "proxy/check.py",
        "proxy/check_*.py",
        "proxy/top.py",
    ),
    ("proxy/replay.py", "proxy/replay_*.py"),
    ("proxy/demo/*.py",),
    ("proxy/__main__.py",),
)

# What would make the core's results depend on more than its arguments.
NOT_IN_CORE = set(
    """
    asyncio concurrent http io locale logging multiprocessing os pathlib platform random secrets select shutil
    signal socket sqlite3 ssl subprocess sys tempfile threading time urllib uuid
    """.split()  # noqa: SIM905 (one name a line would hide the table above)
)

FILES = sorted(path.relative_to(CHECKOUT).as_posix() for path in (CHECKOUT / "proxy").rglob("*.py"))


def row_of(file: str) -> int:
    """Index of the row of *file*. AssertionError where it has none, or several."""
    rows = [i for i, patterns in enumerate(ROWS) if any(fnmatchcase(file, pattern) for pattern in patterns)]
    assert len(rows) == 1, (
        f"{file} is in {len(rows)} rows of ROWS in tests/test_layers.py, expected one: place it"
    )
    return rows[0]


def imported(source: str) -> Iterator[str]:
    """
    Dotted names of what *source* imports, at any depth.

    `from a import b` gives `a.b`, for b may be a module; relative imports give a leading dot.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            yield from (f"{base}.{alias.name}" for alias in node.names)


def file_of(name: str, files: list[str]) -> str | None:
    """The file of ours that a dotted *name* leads to, or None where it is not ours."""
    parts = name.split(".")
    if parts[0] != "proxy":
        return None
    for end in range(len(parts), 0, -1):
        stem = "/".join(parts[:end])
        for file in (f"{stem}.py", f"{stem}/__init__.py"):
            if file in files:
                return file
    return None


def source_of(file: str) -> str:
    return (CHECKOUT / file).read_text(encoding="utf-8")


@pytest.mark.parametrize("file", FILES)
def test_a_file_imports_only_from_rows_above_it(file: str) -> None:
    own = row_of(file)
    targets = {target for name in imported(source_of(file)) if (target := file_of(name, FILES))}
    assert [target for target in sorted(targets) if row_of(target) > own] == []


@pytest.mark.parametrize("file", FILES)
def test_imports_are_written_in_full(file: str) -> None:
    assert [name for name in imported(source_of(file)) if name.startswith(".")] == []


def test_no_imports_go_in_circles() -> None:
    graph = {
        file: {
            target
            for name in imported(source_of(file))
            if (target := file_of(name, FILES)) and target != file
        }
        for file in FILES
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(reversed(error.args[1])))


@pytest.mark.parametrize("file", [file for file in FILES if file.startswith("proxy/core/")])
def test_the_core_is_arithmetic(file: str) -> None:
    tops = {name.partition(".")[0] for name in imported(source_of(file))} - {"proxy"}
    assert sorted((tops - sys.stdlib_module_names) | (tops & NOT_IN_CORE)) == []


# The test itself


@pytest.mark.parametrize(
    ("source", "names"),
    [
        pytest.param("import a.b as c", ["a.b"], id="a module under another name"),
        pytest.param(
            "from proxy.core import plan, trim", ["proxy.core.plan", "proxy.core.trim"], id="modules"
        ),
        pytest.param("def f():\n    import time", ["time"], id="inside a function"),
        pytest.param("if TYPE_CHECKING:\n    from proxy.app import App", ["proxy.app.App"], id="for types"),
        pytest.param("from . import x", ["..x"], id="relative"),
    ],
)
def test_every_import_is_found(source: str, names: list[str]) -> None:
    assert list(imported(source)) == names


@pytest.mark.parametrize(
    ("name", "file"),
    [
        pytest.param("proxy.core.plan.Plan", "proxy/core/plan.py", id="a name of a module"),
        pytest.param("proxy.core.plan", "proxy/core/plan.py", id="a module"),
        pytest.param("proxy.core", "proxy/core/__init__.py", id="a package"),
        pytest.param("proxy.__version__", "proxy/__init__.py", id="a name of the package"),
        pytest.param("time", None, id="not ours"),
    ],
)
def test_a_name_leads_to_its_file(name: str, file: str | None) -> None:
    assert file_of(name, ["proxy/__init__.py", "proxy/core/__init__.py", "proxy/core/plan.py"]) == file
