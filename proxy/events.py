"""
Log what happened as one JSON object a line, without any message content.

Events are ordinary records of the logger `proxy`; their fields ride along in `extra`.
"""

import json
import logging
import sys
import time
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from types import TracebackType
from typing import TextIO

import orjson

_ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]

_log = logging.getLogger("proxy")


def emit(event: str, *, level: int = logging.INFO, **fields: object) -> None:
    """Log *event*, such as `context.compacted`, with its fields."""
    _log.log(level, event, extra={"fields": fields})


def log_fault(where: str, on_fault: Callable[[], None] = lambda: None) -> None:
    """
    Log the exception being handled as `compaction.fault`, and have it counted.

    For faults of our own that must not become the client's: *where* says what was left out.
    """
    _log.exception("compaction.fault", extra={"fields": {"where": where}})
    on_fault()


class JsonLines(logging.Formatter):
    """`{"time", "level", "event", …}`; what other loggers say stands in `event` too."""

    def format(self, record: logging.LogRecord) -> str:
        """One line; control characters are escaped by JSON."""
        entry: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
        }
        entry |= getattr(record, "fields", {})
        if record.exc_info:
            entry["error"] = _trace(record.exc_info)
        try:
            line = orjson.dumps(entry, default=str).decode()
        except TypeError:
            # Half a surrogate pair, or a number that is too large: a client may send both.
            return json.dumps(entry, default=str)
        # Some take more characters for the end of a line than JSON does, and a terminal obeys some.
        return line if line.isprintable() else _escaped(line)


def _escaped(line: str) -> str:
    """JSON with everything escaped that cannot be printed; that only stands inside its strings."""
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in line)


class Plain(logging.Formatter):
    """`12:00:01 info context.compacted tokens_before=2410 …` for a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """One line; a value's line breaks are escaped."""
        fields: dict[str, object] = getattr(record, "fields", {})
        said = " ".join(f"{k}={str(v)!r}" if isinstance(v, str) else f"{k}={v}" for k, v in fields.items())
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        event = record.getMessage().replace("\n", "\\n").replace("\r", "\\r")
        line = f"{clock} {record.levelname.lower()} {event}" + (f" {said}" if said else "")
        return f"{line}\n{_trace(record.exc_info)}" if record.exc_info else line


def _trace(exc_info: _ExcInfo) -> str:
    """Where an exception came from and what it is, but not what it says: that may quote a message."""
    kind, _, frames = exc_info
    where = "".join(traceback.format_tb(frames))
    return f"Traceback (most recent call last):\n{where}{kind.__name__ if kind else 'no exception'}"


def log_to(stream: TextIO | None = None, *, level: str = "info", style: str = "json") -> None:
    """Send the proxy's log to *stream* (standard error); replaces what was set before."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines() if style == "json" else Plain())
    _log.handlers[:] = [handler]
    _log.setLevel(level.upper())
    _log.propagate = False
