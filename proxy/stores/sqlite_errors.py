"""Say what a failure of the store's file means for the person who runs the proxy."""

import sqlite3
from pathlib import Path

from proxy.errors import StoreError

# https://www.sqlite.org/rescode.html; the primary code is the low byte.
_PRIMARY = 0xFF
_DBMOVED = sqlite3.SQLITE_READONLY_DBMOVED

_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_CORRUPT = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}

_REMEDIES = {
    sqlite3.SQLITE_FULL: "free space on its disk",
    sqlite3.SQLITE_BUSY: "end the program that keeps it locked",
    sqlite3.SQLITE_LOCKED: "end the program that keeps it locked",
    sqlite3.SQLITE_READONLY: "make the file and its folder writable for this user",
    sqlite3.SQLITE_PERM: "make the file and its folder writable for this user",
    sqlite3.SQLITE_CANTOPEN: "make the file and its folder readable and writable for this user",
    sqlite3.SQLITE_IOERR: "check its disk: free space, limits on file size, faults",
    sqlite3.SQLITE_TOOBIG: "this entry is larger than SQLite allows and is not kept",
}


def failed(doing: str, path: Path, error: Exception) -> StoreError:
    """The `StoreError` for *error*, met while *doing* ("reading", "opening") the store at *path*."""
    if isinstance(error, OSError):
        said = error.strerror or type(error).__name__
        return StoreError(
            f"store {path}: {doing} failed: {said}; make the path a file that this user can "
            f"write, or set `path` in [store] to another"
        )
    remedy = _REMEDIES.get(_code(error) & _PRIMARY, "move the file away to begin a new one")
    return StoreError(f"store {path}: {doing} failed: {error}; {remedy}")


def is_busy(error: Exception) -> bool:
    """Whether another process held the lock for too long."""
    return _code(error) & _PRIMARY in _BUSY


def is_corrupt(error: Exception) -> bool:
    """Whether the file is no database, or a damaged one."""
    return _code(error) & _PRIMARY in _CORRUPT


def is_moved(error: Exception) -> bool:
    """Whether the file was deleted or renamed while it was open."""
    return _code(error) == _DBMOVED


def _code(error: Exception) -> int:
    # Errors that Python's own binding raises carry no code.
    code = getattr(error, "sqlite_errorcode", 0)
    return code if isinstance(code, int) else 0
