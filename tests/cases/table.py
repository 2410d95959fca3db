"""One row of a table of cases: the id of the report, its rule in words, and what the test needs."""

from typing import Any

import pytest


def case(number: str, rule: str, *values: Any) -> Any:
    """A parameter set whose id is `S01: the rule`; no hyphens in it, since pytest joins ids by them."""
    assert "-" not in rule
    return pytest.param(*values, id=f"{number}: {rule}")
