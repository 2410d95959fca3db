"""
Take a configuration that was read again, as far as that is possible without a restart.

A request that is under way ends with what it began with. What sockets, files and whole
pages depend on is not changed; it is named, so that a person knows what a restart would do.
"""

import logging
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from enum import StrEnum
from typing import Any

from proxy.app_process import Proxy
from proxy.callers import Access
from proxy.config import Config
from proxy.config_exposure import exposures
from proxy.errors import ConfigError
from proxy.events import emit, log_to
from proxy.origins import Origins

# By table; None for all of its keys.
AT_RUN_TIME: dict[str, frozenset[str] | None] = {
    "server": frozenset(
        (
            "admin_keys", "allowed_hosts", "allowed_origins", "drain_seconds", "keys", "max_body_bytes",
            "open",
        )
    ),
    "upstream": frozenset(("connect_timeout_seconds", "idle_timeout_seconds")),
    "context": None,
    "limits": None,
    "log": None,
    "status": frozenset(("show_content",)),
}  # fmt: skip


class Reloaded(StrEnum):
    """What became of a configuration that was read again; label values."""

    APPLIED = "applied"
    REFUSED = "refused"


class Reloading:
    """
    For one event loop.

    Args:
        proxy: What is configured.
        read: Reads the configuration again.
    """

    def __init__(self, proxy: Proxy, read: Callable[[], Config]) -> None:
        self._proxy = proxy
        self._read = read
        for outcome in Reloaded:
            proxy.metrics.reloads.labels(outcome.value)

    def run(self) -> None:
        """Read it and apply it; one that cannot be used changes nothing."""
        try:
            read = self._read()
            config = _allowed(self._proxy.config, read)
        except ConfigError as error:
            self._proxy.metrics.reloads.labels(Reloaded.REFUSED.value).inc()
            why = str(error).replace("nothing was started", "nothing was changed")
            emit("config.refused", level=logging.ERROR, why=why)
            return
        changed = list(_different(self._proxy.config, config))
        needs_restart = list(_different(config, read))
        _apply(self._proxy, config)
        self._proxy.metrics.reloads.labels(Reloaded.APPLIED.value).inc()
        level = logging.WARNING if needs_restart else logging.INFO
        emit("config.reloaded", level=level, changed=changed, needs_restart=needs_restart)


def _allowed(now: Config, read: Config) -> Config:
    """The configuration in force with what of *read* can be taken."""
    tables: dict[str, Any] = {}
    for table, keys in AT_RUN_TIME.items():
        new, old = getattr(read, table), getattr(now, table)
        names = [field.name for field in fields(new) if keys is None or field.name in keys]
        tables[table] = replace(old, **{name: getattr(new, name) for name in names})
    config = replace(now, **tables)
    # The file may name an address that is not listened on yet; keys count for the one that is.
    problems = exposures(
        config.server, shows_content=config.status.show_content, where=lambda *_: "without a restart"
    )
    for problem in problems:
        raise ConfigError(problem)
    return config


def _different(old: Config, new: Config) -> Iterator[str]:
    """The keys whose values differ, never the values: some are secrets."""
    for table in fields(old):
        was, becomes = getattr(old, table.name), getattr(new, table.name)
        for key in fields(was):
            if getattr(was, key.name) != getattr(becomes, key.name):
                yield f"{table.name}.{key.name}"


def _apply(proxy: Proxy, config: Config) -> None:
    old, proxy.config = proxy.config, config
    limits, server = config.limits, config.server
    proxy.places.most, proxy.places.line = limits.requests_at_once, limits.requests_waiting
    proxy.room.most = limits.bodies_at_once_bytes
    proxy.turnstile.notes.most = limits.notes_at_once
    proxy.access, proxy.origins = Access(server), Origins(server)
    proxy.board.show_content = config.status.show_content
    proxy.upstream.wait_at_most(
        connect_timeout_seconds=config.upstream.connect_timeout_seconds,
        idle_timeout_seconds=config.upstream.idle_timeout_seconds,
    )
    if config.log != old.log:
        log_to(level=config.log.level, style=config.log.format)
    if config.context != old.context:
        proxy.windows.configure(config.context.known_window)
    proxy.renew(config, is_new_context=config.context != old.context)
