"""One request in each format and what is made of it, byte for byte as it was when a person looked."""

import json

import pytest

from tests.dialects.make_golden import GOLDEN, made
from tests.support.formats import FORMATS, Format


@pytest.mark.parametrize("format_", FORMATS, ids=lambda f: f.name)
def test_what_is_made_of_a_request_is_what_it_was(format_: Format) -> None:
    now = made(format_)
    kept = {path.name: path.read_bytes() for path in (GOLDEN / format_.name).iterdir()}
    assert sorted(now) == sorted(kept)
    changed = [name for name in now if now[name] != kept[name]]
    assert changed == [], "if this is meant: python -m tests.dialects.make_golden, and look at the difference"


@pytest.mark.parametrize("format_", FORMATS, ids=lambda f: f.name)
def test_the_golden_views_are_valid_requests(format_: Format) -> None:
    for name in ("compacted.json", "notes.json", "trimmed.json"):
        raw = (GOLDEN / format_.name / name).read_bytes()
        assert format_.dialect.parse(raw).conversation.messages
        assert json.loads(raw)["model"] == "m"
