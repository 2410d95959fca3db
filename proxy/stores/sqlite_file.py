"""
Open the store's file: its folder, its modes, and what to do with one that is damaged.

A file that is no database, or a broken one, is renamed and never deleted; one of another
program, or of a newer version, is left alone. Everything here blocks.
"""

import os
import sqlite3
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from proxy.errors import StoreError
from proxy.stores.sqlite_errors import failed, is_busy, is_corrupt
from proxy.stores.sqlite_schema import Damaged, is_ours, migrate, read_secret

# The entries are a person's conversations.
FILE_MODE = 0o600
FOLDER_MODE = 0o700

# The write-ahead log first: were the process killed in between, a log of the old file beside
# a new one would be worse than an old file without its log.
_COMPANIONS = ("-wal", "-shm", "-journal")

# A disk that breaks every new file must not be filled with them.
MOST_SET_ASIDE = 10

_RETRY_SECONDS = 0.02

# We hold the lock for a few renames only; a stranger who locks the folder gets an error out of us, no hang.
_FOLDER_LOCK_SECONDS = 2.0

if sys.platform != "win32":
    import fcntl

Identity = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenFile:
    """
    A connection in autocommit mode, for use on the thread that opened it.

    Attributes:
        connection: Write-ahead log, NORMAL synchronisation.
        identity: Device and inode: tells whether the path still leads to this file.
        secret: The file's.
        set_aside: Where a damaged file went that was in the way, or None.
        damage: What was wrong with that one.
    """

    connection: sqlite3.Connection
    identity: Identity
    secret: bytes
    set_aside: Path | None = None
    damage: str = ""


def open_file(path: Path, *, new_secret: bytes | None, wait_seconds: float) -> OpenFile:
    """
    Open the file at *path*, made or brought up to date where needed.

    Args:
        path: Without symbolic links in its last part.
        new_secret: 32 bytes for a file that has no secret yet; None for random ones.
        wait_seconds: How long another process may keep it locked.

    Raises:
        StoreError: It cannot be used; the text says why and what helps.
    """
    deadline = time.monotonic() + wait_seconds
    set_aside: Path | None = None
    damage = ""
    while True:
        try:
            identity = _create(path)
        except OSError as error:
            raise failed("opening", path, error) from error
        try:
            connection, secret = _connect(path, identity, new_secret, wait_seconds)
        except (sqlite3.Error, Damaged, _Replaced) as error:
            if isinstance(error, Damaged) or is_corrupt(error):
                set_aside = move_aside(path, identity) or set_aside
                damage = str(error)
                continue
            # Two processes that make the same file meet in locks for which SQLite does not wait by
            # itself, and one may set a damaged file aside under the other's hands.
            if time.monotonic() >= deadline or (is_in_place(path, identity) and not is_busy(error)):
                raise failed("opening", path, error) from error
            time.sleep(_RETRY_SECONDS)
            continue
        return OpenFile(
            connection=connection, identity=identity, secret=secret, set_aside=set_aside, damage=damage
        )


def is_in_place(path: Path, identity: Identity) -> bool:
    """Whether *path* still leads to the file that was opened; SQLite itself would not notice."""
    try:
        return _identity(os.stat(path)) == identity
    except OSError:
        return False


def move_aside(path: Path, identity: Identity) -> Path | None:
    """
    Rename a damaged file and its companions; None if another process has done so.

    Raises:
        StoreError: It cannot be renamed, or too many lie there already.
    """
    try:
        with _alone_in(path.parent):
            if not is_in_place(path, identity):
                return None
            for number in range(1, MOST_SET_ASIDE + 1):
                aside = path.with_name(f"{path.name}.corrupt-{number}")
                if not os.path.lexists(aside):
                    break
            else:
                raise StoreError(
                    f"store {path}: it is damaged, and so were {MOST_SET_ASIDE} files before it; "
                    f"check the disk, then remove {path.name}.corrupt-*"
                )
            for suffix in _COMPANIONS:
                with suppress(FileNotFoundError):
                    os.replace(f"{path}{suffix}", f"{aside}{suffix}")
            os.replace(path, aside)
            return aside
    except OSError as error:
        raise failed("setting a damaged file aside", path, error) from error


class _Replaced(Exception):
    """Another process has put another file there; it is worth another look."""


def _create(path: Path) -> Identity:
    missing = [folder for folder in path.parents if not folder.exists()]
    for folder in reversed(missing):
        # Not `parents=True`: that would give all but the last the mode of the umask.
        folder.mkdir(mode=FOLDER_MODE, exist_ok=True)
    # Only ever opened when new: closing any descriptor of a file drops all locks that this
    # process has on it, those of an open connection too.
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, FILE_MODE))
    found = os.stat(path)
    if not stat.S_ISREG(found.st_mode):
        raise StoreError(f"store {path}: it is no regular file; give the path of a file, not of a folder")
    return _identity(found)


def _connect(
    path: Path, identity: Identity, new_secret: bytes | None, wait_seconds: float
) -> tuple[sqlite3.Connection, bytes]:
    # mode=rw: a file that vanished meanwhile is not made again with other modes.
    uri = f"file:{quote(os.fspath(path))}?mode=rw"
    connection = sqlite3.connect(uri, uri=True, timeout=wait_seconds, isolation_level=None)
    try:
        if not is_ours(connection, path):
            # Takes effect before the first table only; lets the file shrink after pruning.
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        _narrow_modes(path)
        # Readers never wait, and a commit survives kill -9. Where the file system has no shared
        # memory SQLite stays with its rollback journal: slower, and as safe.
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        migrate(connection, path)
        secret = read_secret(connection, new_secret)
        if not is_in_place(path, identity):
            raise _Replaced("another file was put there meanwhile")
    except BaseException:
        connection.close()
        raise
    return connection, secret


def _narrow_modes(path: Path) -> None:
    for name in (path, *(Path(f"{path}{suffix}") for suffix in _COMPANIONS)):
        # Someone else's file, or a file system without modes: no reason not to use it.
        with suppress(OSError):
            if stat.S_IMODE(os.stat(name).st_mode) & ~FILE_MODE:
                os.chmod(name, FILE_MODE)


def _identity(found: os.stat_result) -> Identity:
    return found.st_dev, found.st_ino


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """One process at a time: else a second would rename the new file that the first has made."""
    if sys.platform == "win32":  # there a file that is open cannot be renamed at all
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        deadline = time.monotonic() + _FOLDER_LOCK_SECONDS
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(_RETRY_SECONDS)
        yield
    finally:
        os.close(descriptor)
