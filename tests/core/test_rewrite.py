"""What is stored is read back as it was, or not at all."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.messages import Cut
from proxy.core.rewrite import (
    Failure,
    Rewrite,
    backoff_turns,
    failure_from_bytes,
    failure_to_bytes,
    from_bytes,
    to_bytes,
)

TEXTS = st.text(st.characters() | st.sampled_from("\ud800\udfff\x00"), max_size=40)


@given(
    st.integers(0, 9),
    st.integers(0, 9),
    TEXTS,
    TEXTS,
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 3), TEXTS), max_size=4),
    st.booleans(),
)
def test_a_rewrite_is_read_back_as_it_was(  # noqa: PLR0917
    replaced: int, more: int, block: str, notes: str, cuts: list[tuple[int, int, str]], is_trim: bool
) -> None:
    seen = replaced + more
    rewrite = Rewrite(
        seen=seen,
        replaced=replaced,
        block=block,
        notes=notes,
        cuts=tuple(Cut(at=at, text=i, put=put) for at, i, put in cuts if replaced <= at < seen),
        is_trim=is_trim,
    )
    assert from_bytes(to_bytes(rewrite)) == rewrite
    assert to_bytes(rewrite) == to_bytes(rewrite)


GOOD = json.loads(to_bytes(Rewrite(seen=5, replaced=2, block="b", cuts=(Cut(at=3, text=0, put="p"),))))


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"seen": "5"}, id="a number as text"),
        pytest.param({"seen": True}, id="true for a number"),
        pytest.param({"seen": 5.0}, id="a float"),
        pytest.param({"seen": None}, id="null"),
        pytest.param({"replaced": 6}, id="more replaced than seen"),
        pytest.param({"replaced": -1}, id="less than nothing"),
        pytest.param({"block": 7}, id="a block that is no text"),
        pytest.param({"is_trim": 1}, id="a flag that is a number"),
        pytest.param({"cuts": [{"at": 1, "text": 0, "put": "p"}]}, id="a cut in what is replaced"),
        pytest.param({"cuts": [{"at": 5, "text": 0, "put": "p"}]}, id="a cut behind what was seen"),
        pytest.param({"cuts": [{"at": 3, "text": -1, "put": "p"}]}, id="a cut in no text"),
        pytest.param({"cuts": [{"at": 3, "text": 0, "put": None}]}, id="a cut without text"),
        pytest.param({"cuts": [{"at": 3}]}, id="half a cut"),
        pytest.param({"cuts": 3}, id="no list of cuts"),
        pytest.param({"later": "field"}, id="a field of a later version"),
    ],
)
def test_what_another_version_wrote_is_not_guessed_at(change: dict[str, Any]) -> None:
    assert from_bytes(json.dumps(GOOD).encode()) is not None
    assert from_bytes(json.dumps(GOOD | change).encode()) is None


@pytest.mark.parametrize("value", [b"", b"{", b"[]", b"null", b"7", b"\xff", b"{}", b"[" * 100_000])
def test_what_is_no_rewrite_is_none(value: bytes) -> None:
    assert from_bytes(value) is None
    assert failure_from_bytes(value) is None


def test_a_failure_is_read_back_and_nonsense_is_none() -> None:
    failure = Failure(seen=4, attempts=2)
    assert failure_from_bytes(failure_to_bytes(failure)) == failure
    assert failure_from_bytes(b'{"seen":4,"attempts":0}') is None
    assert failure_from_bytes(b'{"seen":"4","attempts":"2"}') is None


@pytest.mark.parametrize(("attempts", "turns"), [(0, 0), (-1, 0), (1, 3), (2, 6), (3, 12), (4, 12), (99, 12)])
def test_every_failure_in_a_row_waits_longer(attempts: int, turns: int) -> None:
    assert backoff_turns(attempts) == turns


def test_what_an_earlier_version_stored_is_read() -> None:
    stored = (
        b'{"seen":5,"replaced":2,"block":"b","notes":"n","cuts":[{"at":3,"text":0,"put":"p"}],"folds":1,'
        b'"is_trim":true,"compacted_at":4}'
    )
    rewrite = Rewrite(
        seen=5,
        replaced=2,
        block="b",
        notes="n",
        cuts=(Cut(at=3, text=0, put="p"),),
        folds=1,
        is_trim=True,
        compacted_at=4,
    )
    assert from_bytes(stored) == rewrite


def test_it_is_stored_without_spaces() -> None:
    """A block may be written thousands of times, and a store has a limit."""
    assert b'"seen":5,"replaced":2' in to_bytes(Rewrite(seen=5, replaced=2))


def test_the_first_failure_is_kept() -> None:
    failure = Failure(seen=3, attempts=1)
    assert failure_from_bytes(failure_to_bytes(failure)) == failure
