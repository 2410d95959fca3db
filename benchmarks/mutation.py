"""
Does a test fail for every change that can be made to a line of `proxy/core/`?

    python -m benchmarks.mutation                    all of it
    python -m benchmarks.mutation splice plan        these modules
    python -m benchmarks.mutation splice --write     and put their rows into docs/mutation.md
    python -m benchmarks.mutation splice --own       quick: show what its own tests let live

mutmut makes the mutants and runs the tests that touch each. The module's own tests come first; what
they let live is run against everything that `WIDER` names. What lives then is either one of the
equivalents in `equivalent_mutants.toml`, or a test is missing: it is shown, and the exit status is 1.
"""

import argparse
import ast
import json
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).parent.parent
CORE = ROOT / "proxy" / "core"
PAGE = ROOT / "docs" / "mutation.md"
EQUIVALENTS = Path(__file__).parent / "equivalent_mutants.toml"
# All that is quick: mutmut runs each once for itself, and again for every mutant that it touches.
WIDER = ("tests/core", "tests/dialects/test_views.py", "tests/laws/test_notes_and_identity.py")
_NEEDED = ("proxy", "tests", "benchmarks", "pyproject.toml", "config.toml")
# mutmut's exit codes of a mutant that no test noticed: tests passed, or none touches it.
_ALIVE = (0, 5, 33)

_CONFIG = """
[tool.mutmut]
source_paths = ["proxy"]
only_mutate = {modules}
pytest_add_cli_args_test_selection = {tests}
pytest_add_cli_args = ["-p", "no:cacheprovider", "-p", "no:randomly"]
also_copy = ["benchmarks", "config.toml"]
"""

# A killed mutant needs no smallest example, and each must meet the same ones.
_PROFILE = """

from hypothesis import Phase, settings

settings.register_profile(
    "mutation", deadline=None, derandomize=True, database=None, phases=(Phase.explicit, Phase.generate)
)
settings.load_profile("mutation")
"""

# As `mutmut show` does, for many at once.
_DIFFS = """
import json, sys
from mutmut.mutation.diff_apply import get_diff_for_mutant
print(json.dumps({name: get_diff_for_mutant(name) for name in sys.argv[1:]}))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """
    One that no test noticed.

    Attributes:
        module: Below `proxy/core/`.
        function: As mutmut names it, without the number, which moves with the code.
        was: The lines that were changed, stripped and joined by a blank.
        becomes: What they were changed into.
    """

    module: str
    function: str
    was: str
    becomes: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The counts of one module, and what of it lives without being named an equivalent."""

    module: str
    mutants: int
    by_own: int
    equivalent: int
    alive: tuple[Mutant, ...]
    by_wider: int = 0

    def row(self) -> str:
        """Its line of the table."""
        cells = (self.module, self.mutants, self.by_own, self.by_wider, self.equivalent, len(self.alive))
        return "| " + " | ".join(map(str, cells)) + " |"


def measure(modules: Sequence[str], *, only_own: bool = False) -> Iterator[Result]:
    """
    Run *modules*, each against its own tests.

    What lives and is no equivalent is then run against the wider ones, unless *only_own* says otherwise.
    """
    seen: list[Result] = []
    left: dict[str, Mutant] = {}
    for module in modules:
        tests = [f"tests/core/test_{name}.py" for name in (module, f"{module}_exactly")]
        tests = [path for path in tests if (ROOT / path).exists()]
        with tempfile.TemporaryDirectory() as made:
            codes = _run(Path(made), [module], tests)
            living = _show(Path(made), module, [name for name, code in codes.items() if code in _ALIVE])
        alive = {name: mutant for name, mutant in living.items() if not is_equivalent(mutant)}
        result = Result(
            module=module,
            mutants=len(codes),
            by_own=len(codes) - len(living),
            equivalent=len(living) - len(alive),
            alive=tuple(alive.values()),
        )
        if only_own or not alive:
            yield result
        else:
            seen.append(result)
            left |= alive
    if left:
        with tempfile.TemporaryDirectory() as made:
            codes = _run(Path(made), [result.module for result in seen], WIDER, list(left))
        for result in seen:
            own = {name: mutant for name, mutant in left.items() if mutant.module == result.module}
            alive = {name: mutant for name, mutant in own.items() if codes.get(name) in _ALIVE}
            yield replace(result, by_wider=len(own) - len(alive), alive=tuple(alive.values()))


def is_equivalent(mutant: Mutant) -> bool:
    """Whether no test can see it, for a reason that is written down."""
    # Python takes the name of an encoding in any case.
    if mutant.was == mutant.becomes.replace('"UTF-8"', '"utf-8"'):
        return True
    found = (mutant.module, mutant.function, mutant.was, mutant.becomes)
    return any(found == (e["module"], e["function"], e["was"], e["becomes"]) for e in equivalents())


def equivalents() -> list[dict[str, str]]:
    """Those that change nothing that could be seen, each with its reason."""
    if not EQUIVALENTS.exists():
        return []
    found: list[dict[str, str]] = tomllib.loads(EQUIVALENTS.read_text(encoding="utf-8"))["mutant"]
    return found


def _run(
    made: Path, modules: Sequence[str], tests: Sequence[str], names: Sequence[str] = ()
) -> dict[str, int]:
    """The exit code of each mutant of *modules*, or of *names* only, in a copy of the checkout: *made*."""
    for needed in _NEEDED:
        source = ROOT / needed
        if source.is_dir():
            shutil.copytree(source, made / needed, ignore=shutil.ignore_patterns("__pycache__", "*.png"))
        else:
            shutil.copy(source, made / needed)
    for module in modules:
        path = made / "proxy" / "core" / f"{module}.py"
        path.write_text(without_property_decorators(path.read_text(encoding="utf-8")), encoding="utf-8")
    paths = [f"proxy/core/{module}.py" for module in modules]
    with (made / "pyproject.toml").open("a", encoding="utf-8") as config:
        config.write(_CONFIG.format(modules=json.dumps(paths), tests=json.dumps(list(tests))))
    with (made / "tests" / "conftest.py").open("a", encoding="utf-8") as conftest:
        conftest.write(_PROFILE)
    ran = subprocess.run(
        [sys.executable, "-m", "mutmut", "run", "--max-children", "1", *names],
        cwd=made,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    codes: dict[str, int] = {}
    for path in paths:
        meta = made / "mutants" / f"{path}.meta"
        if not meta.exists():
            raise SystemExit(f"mutmut made nothing of {path}:\n{ran.stdout.decode()[-3000:]}")
        read = json.loads(meta.read_text(encoding="utf-8"))["exit_code_by_key"]
        codes |= {key: code for key, code in read.items() if not names or key in names}
    if None in codes.values():
        raise SystemExit(f"mutmut did not finish:\n{ran.stdout.decode()[-3000:]}")
    return codes


def without_property_decorators(source: str) -> str:
    """The same code with `x = property(_read_x)` for its properties: mutmut leaves out what is decorated."""
    lines = source.split("\n")
    found = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef) and [ast.unparse(d) for d in node.decorator_list] == ["property"]
    ]
    # From the last to the first, so that the numbers of those before stay right.
    for node in sorted(found, key=lambda node: -node.lineno):
        assert node.end_lineno is not None
        indent = " " * node.col_offset
        lines.insert(node.end_lineno, f"{indent}{node.name} = property(_read_{node.name})")
        at = node.lineno - 1
        lines[at] = lines[at].replace(f"def {node.name}(", f"def _read_{node.name}(", 1)
        del lines[node.decorator_list[0].lineno - 1]
    return "\n".join(lines)


def _show(made: Path, module: str, names: Sequence[str]) -> dict[str, Mutant]:
    """What was changed in each of *names*."""
    said = subprocess.run(
        [sys.executable, "-c", _DIFFS, *names], cwd=made, capture_output=True, text=True, check=True
    )
    shown: dict[str, Mutant] = {}
    for name, diff in json.loads(said.stdout.splitlines()[-1]).items():
        lines = [line for line in diff.split("\n") if not line.startswith(("---", "+++"))]
        function = re.sub(r"__mutmut_\d+$", "", name.rpartition(".")[2]).replace("ǁ", ".")
        function = function.removeprefix("x_").removeprefix("x.")
        shown[name] = Mutant(
            module=module, function=function, was=_lines(lines, "-"), becomes=_lines(lines, "+")
        )
    return shown


def _lines(diff: Iterable[str], sign: str) -> str:
    return " ".join(line[1:].strip() for line in diff if line.startswith(sign))


_TEXT = """\
# Mutation testing of the core
Made by `python -m benchmarks.mutation --write`: mutmut changes one thing in a function of `proxy/core/`, and
some test has to fail. A row counts as it was when its module was run last; where tests were written for what
had lived, only that was run again.

- **killed by its own tests**: those of the module alone, `tests/core/test_<module>.py` and
  `test_<module>_exactly.py`.
- **by wider tests**: {wider}.
- **equivalent**: no test can see it; each is named below, with the reason.
- **alive**: a test is missing.

Not changed are tables and constants outside of functions, fields of dataclasses with their defaults,
annotations, and what `len` and `isinstance` are asked.

| module | mutants | killed by its own tests | by wider tests | equivalent | alive |
|---|---|---|---|---|---|
{rows}
| **{count} modules** | {sums} |

{missing}## Equivalent mutants
And wherever the name of an encoding is written in capitals, which Python takes as well.

{named}
"""


def page(rows: Mapping[str, str]) -> str:
    """The page with *rows*, by module."""
    cells = [[int(cell) for cell in row.strip("| ").split(" | ")[1:]] for row in rows.values()]
    sums = " | ".join(str(sum(column)) for column in zip(*cells, strict=True))
    missing = ", ".join(module for module in all_modules() if module not in rows)
    named = "\n".join(
        f"- `{e['module']}.{e['function']}`: `{e['was']}` becomes `{e['becomes']}`. {e['reason']}"
        for e in sorted(equivalents(), key=lambda e: (e["module"], e["function"]))
    )
    return _TEXT.format(
        wider=", ".join(f"`{path}`" for path in WIDER),
        rows="\n".join(rows[module] for module in sorted(rows)),
        count=len(rows),
        sums=sums,
        missing=f"Not run yet: {missing}.\n\n" if missing else "",
        named=named or "None.",
    )


def all_modules() -> list[str]:
    """The names of what stands in `proxy/core/`."""
    return sorted(path.stem for path in CORE.glob("*.py") if path.stem != "__init__")


def _rows() -> dict[str, str]:
    """Those of the page as it stands."""
    text = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    return {
        row.split(" | ")[0].strip("| "): row for row in re.findall(r"^\| \w+ \|(?: \d+ \|){5}$", text, re.M)
    }


def _say(line: str) -> None:
    print(line, flush=True)


def main(arguments: Sequence[str]) -> int:
    """Run, show what lives, and write the page where that is asked for."""
    parser = argparse.ArgumentParser(description="mutation testing of proxy/core/")
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="without .py; all where none is named")
    parser.add_argument("--write", action="store_true", help="put the rows into docs/mutation.md")
    parser.add_argument("--own", action="store_true", help="leave the wider tests out, and the page alone")
    asked = parser.parse_args(arguments)
    rows = _rows()
    alive = 0
    for result in measure(asked.modules or all_modules(), only_own=asked.own):
        _say(result.row())
        for mutant in result.alive:
            alive += 1
            _say(f"  {mutant.function}\n    - {mutant.was}\n    + {mutant.becomes}")
        rows[result.module] = result.row()
    if asked.write and not asked.own:
        PAGE.write_text(page(rows), encoding="utf-8")
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
