"""What a file holds is known without asking it for each digest, and never wrongly denied."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.stores import sqlite_entries as entries
from proxy.stores.base import Shelf
from proxy.stores.sqlite_file import open_file
from proxy.stores.sqlite_index import Index

Connections = tuple[sqlite3.Connection, sqlite3.Connection]


@pytest.fixture
def connections(tmp_path: Path) -> Iterator[Connections]:
    """Two to one file, as two processes have them."""
    opened = [open_file(tmp_path / "store.db", new_secret=None, wait_seconds=1.0) for _ in range(2)]
    yield opened[0].connection, opened[1].connection
    for file in opened:
        file.connection.close()


def add(connection: sqlite3.Connection, *digests: bytes, shelf: Shelf = Shelf.SEEN) -> None:
    for digest in digests:
        entries.add(connection, shelf, digest, b"value", now=1.0)


def test_what_the_file_holds_is_found_on_its_shelf_alone(connections: Connections) -> None:
    here, _ = connections
    add(here, b"a", b"c")
    add(here, b"b", shelf=Shelf.FAILED)
    index = Index()
    assert index.among(here, Shelf.SEEN, [b"a", b"b", b"c", b"d"]) == [0, 2]
    assert index.among(here, Shelf.FAILED, [b"a", b"b"]) == [1]
    assert index.among(here, Shelf.RANGE, [b"a", b"b"]) == []


@pytest.mark.parametrize("writer", [0, 1], ids=["added by this process", "added by another"])
def test_what_is_added_later_is_found(connections: Connections, writer: int) -> None:
    here, index = connections[0], Index()
    assert index.among(here, Shelf.SEEN, [b"a", b"b"]) == []
    for known, digest in enumerate((b"a", b"b"), 1):
        add(connections[writer], digest)
        assert len(index.among(here, Shelf.SEEN, [b"a", b"b"])) == known


def test_a_file_that_holds_too_much_is_asked_itself(connections: Connections) -> None:
    here, other = connections
    index = Index(most=2)
    add(here, b"a", b"b")
    assert index.among(here, Shelf.SEEN, [b"a", b"x"]) == [0]
    add(other, b"c")
    assert index.among(here, Shelf.SEEN, [b"a", b"x"]) == [0, 1]
    assert index.among(here, Shelf.SEEN, [b"d", b"x"]) == [0, 1]
