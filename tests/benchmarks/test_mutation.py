"""The page of mutation testing is what the command writes, and its counts add up. Nothing is run for it."""

import ast

import pytest

from benchmarks import mutation

ROWS = mutation._rows()


def test_the_page_is_what_the_command_writes_of_its_rows() -> None:
    assert mutation.page(ROWS) == mutation.PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("module", sorted(ROWS))
def test_every_mutant_of_a_module_is_accounted_for(module: str) -> None:
    mutants, *parts = (int(cell) for cell in ROWS[module].strip("| ").split(" | ")[1:])
    assert mutants == sum(parts)
    assert module in mutation.all_modules()


def test_every_equivalent_has_a_reason_and_changes_something() -> None:
    for named in mutation.equivalents():
        assert named["was"] != named["becomes"]
        assert named["reason"].endswith(".")
        assert named["module"] in mutation.all_modules()


def test_properties_are_made_plain_functions_that_mutmut_changes() -> None:
    source = "class A:\n    @property\n    def b(self) -> int:\n        return 1\n\n    def c(self): ...\n"
    plain = mutation.without_property_decorators(source)
    ast.parse(plain)
    assert "@property" not in plain
    assert "b = property(_read_b)" in plain
    namespace: dict[str, type] = {}
    exec(plain, namespace)
    assert namespace["A"]().b == 1
