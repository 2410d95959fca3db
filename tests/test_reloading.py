"""At a SIGHUP the configuration is read again: what can be is changed, and the rest is named."""

import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from proxy.app_reloading import AT_RUN_TIME, Reloading
from proxy.config import Config, load, settings
from proxy.errors import ConfigError
from tests.support import wire_bytes
from tests.support.agent_sessions import AgentSession, remembering_upstream
from tests.support.fronted import BODY, CHAT, OTHER, playing, saying
from tests.support.gate import Gate
from tests.support.raw_client import ask
from tests.support.raw_upstream import Send, Stall, Wait
from tests.support.watched import Watched, watched

Change = Callable[[Config], Config]


def changed(**tables: dict[str, Any]) -> Change:
    """A configuration with other values for some keys."""
    return lambda config: replace(
        config, **{name: replace(getattr(config, name), **keys) for name, keys in tables.items()}
    )


def reload(proxy: Watched, change: Change) -> dict[str, Any]:
    """Have it read again; the fields of the event that tells of it."""
    before = len(proxy.log)
    Reloading(proxy.proxy, lambda: change(proxy.proxy.config)).run()
    [(event, fields)] = [entry for entry in proxy.log[before:] if entry[0].startswith("config.")]
    return {"event": event, **fields}


# What it does


async def test_what_can_be_is_changed_and_named() -> None:
    async with saying().running() as upstream, watched(upstream.url) as proxy:
        told = reload(proxy, changed(server={"max_body_bytes": 10}, context={"compact_at": 0.5}))
        answer, _ = await ask(proxy.url, OTHER, body=BODY)
        assert proxy.counted("proxy_config_reloads_total", outcome="applied") == 1
    assert told == {
        "event": "config.reloaded",
        "changed": ["server.max_body_bytes", "context.compact_at"],
        "needs_restart": [],
    }
    assert answer.status == 413


async def test_what_needs_a_restart_is_named_and_stays() -> None:
    async with saying(b"yes").running() as upstream, watched(upstream.url) as proxy:
        change = changed(
            upstream={"url": "http://127.0.0.1:9"}, store={"max_age_days": 1}, status={"enabled": False}
        )
        told = reload(proxy, change)
        assert told["changed"] == []
        assert told["needs_restart"] == ["upstream.url", "store.max_age_days", "status.enabled"]
        assert (await ask(proxy.url, OTHER, body=BODY))[1] == b"yes"


async def test_a_configuration_that_cannot_be_read_changes_nothing_and_says_so() -> None:
    def fail() -> Config:
        raise ConfigError("1 fault in the configuration; nothing was started:\n  - x.toml, line 3: nonsense")

    async with saying().running() as upstream, watched(upstream.url) as proxy:
        before = (proxy.proxy.config, proxy.proxy.services)
        Reloading(proxy.proxy, fail).run()
        assert (proxy.proxy.config, proxy.proxy.services) == before
        [told] = proxy.events("config.refused")
        assert told == {
            "why": "1 fault in the configuration; nothing was changed:\n  - x.toml, line 3: nonsense"
        }
        assert proxy.counted("proxy_config_reloads_total", outcome="refused") == 1


async def test_keys_are_not_taken_away_from_an_address_that_others_can_reach() -> None:
    """The file may name another address by now, but it is still listened on the old one."""
    async with saying().running() as upstream, watched(upstream.url) as proxy:
        running = changed(server={"listen": "0.0.0.0:8400", "keys": ("a-long-enough-key",)})(
            proxy.proxy.config
        )
        proxy.proxy.config = running
        told = reload(proxy, changed(server={"listen": "127.0.0.1:8400", "keys": ()}))
        assert told["event"] == "config.refused"
        assert "0.0.0.0:8400" in told["why"] and "a-long" not in told["why"]
        assert proxy.proxy.config is running


async def test_no_value_is_told() -> None:
    async with saying().running() as upstream, watched(upstream.url) as proxy:
        told = reload(
            proxy, changed(server={"keys": ("a-secret-of-somebody",), "admin_keys": ("another-secret-here",)})
        )
    assert "secret" not in json.dumps(told)
    assert told["changed"] == ["server.keys", "server.admin_keys"]


async def test_other_keys_count_at_once() -> None:
    async with saying().running() as upstream, watched(upstream.url) as proxy:
        reload(proxy, changed(server={"keys": ("a-secret-of-somebody",)}))
        without, _ = await ask(proxy.url, CHAT, body=BODY)
        auth = [("Authorization", "Bearer a-secret-of-somebody")]
        with_it, _ = await ask(proxy.url, CHAT, body=BODY, headers=auth)
    assert (without.status, with_it.status) == (401, 200)


async def test_another_log_level_counts_at_once() -> None:
    log = logging.getLogger("proxy")
    kept = (log.level, log.handlers[:], log.propagate)
    try:
        async with saying().running() as upstream, watched(upstream.url) as proxy:
            Reloading(proxy.proxy, lambda: changed(log={"level": "error"})(proxy.proxy.config)).run()
            assert log.level == logging.ERROR
    finally:
        log.setLevel(kept[0])
        log.handlers[:], log.propagate = kept[1], kept[2]


async def test_other_timeouts_count_at_once() -> None:
    async with playing(lambda _: [Stall()]).running() as upstream, watched(upstream.url) as proxy:
        reload(proxy, changed(upstream={"idle_timeout_seconds": 0.1}))
        assert (await ask(proxy.url, OTHER, body=BODY))[0].status == 504


async def test_other_limits_count_at_once() -> None:
    gate = Gate()
    script = [Wait(gate), Send(wire_bytes.response(b"there"))]
    async with playing(lambda _: script).running() as upstream, watched(upstream.url) as proxy:
        reload(
            proxy, changed(limits={"requests_at_once": 1, "requests_waiting": 0, "bodies_at_once_bytes": 5})
        )
        first = asyncio.ensure_future(ask(proxy.url, OTHER, body=BODY))
        await upstream.until(lambda u: any(r.path == OTHER for r in u.requests))
        assert (await ask(proxy.url, OTHER, body=BODY))[0].status == 503
        gate.open()
        assert (await first)[0].status == 200
        assert (proxy.proxy.room.most, proxy.proxy.turnstile.notes.most) == (5, 16)


async def test_a_session_goes_on_by_other_settings_and_with_what_is_stored() -> None:
    good = remembering_upstream(window=4096)
    async with good.running(), watched(good.url) as proxy:
        session = AgentSession(name="alice")
        assert (await proxy.send(session.step(16).body())).outcome == "compacted"
        reload(proxy, changed(context={"window": 8192, "compact_at": 0.9}))
        got = await proxy.send(session.step(1).body())
        assert got.outcome == "reused"
        assert got.headers["x-context-tokens"].endswith(f"/{8192 - 1024}")
        assert proxy.counted("upstream_window_tokens") == 8192
        assert len(good.notes) == 1


async def test_a_request_under_way_ends_with_what_it_began_with() -> None:
    gate = Gate()
    good = remembering_upstream(window=4096)
    async with good.running():
        held = playing(lambda _: [])
        held.script = lambda r: (
            [Wait(gate), Send(wire_bytes.response(wire_bytes.completion("Done. " * 40)))]
            if good.is_notes(r)
            else None
        )
        held.behind = good.url
        async with held.running(), watched(held.url) as proxy:
            waiting = asyncio.ensure_future(proxy.send(AgentSession(name="alice").step(16).body()))
            await held.until(lambda u: any(r.is_chat and good.is_notes(r) for r in u.requests))
            reload(proxy, changed(context={"compact_at": 0.0}))
            gate.open()
            assert (await waiting).outcome == "compacted"
            # And who comes now has it switched off.
            assert (await proxy.send(AgentSession(name="bob").step(16).body())).outcome == "none"


# The table of what can be changed


@pytest.mark.parametrize("table", sorted(AT_RUN_TIME))
def test_the_table_names_keys_that_there_are(table: str) -> None:
    assert (AT_RUN_TIME[table] or set()) <= set(settings()[table])


def test_the_shipped_file_says_which_keys_need_a_restart() -> None:
    text = (Path(__file__).parent.parent / "config.toml").read_text()
    comment = text.partition("\n\n[server]")[0].replace("\n# ", " ")
    said = comment.partition("need a restart:")[2].partition(". ")[0]
    fixed = {
        f"{table}.{key}"
        for table, keys in settings().items()
        for key in keys
        if table not in AT_RUN_TIME or key not in (AT_RUN_TIME[table] or {key})
    }
    named = {word.strip(" ,") for word in said.replace(" and ", ", ").split(",")}
    expected = {name for name in fixed if name.partition(".")[0] != "store"} | {"[store]"}
    assert named == expected


# As a process


async def test_a_sighup_reads_the_file_again(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    async with saying().running() as upstream:
        text = f'[server]\nlisten = "127.0.0.1:0"\n[upstream]\nurl = "{upstream.url}"\n'
        text += '[store]\nkind = "memory"\n'
        file.write_text(text)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "proxy", "serve", "--config", str(file),
            env={k: v for k, v in os.environ.items() if not k.startswith("COMPACTION_PROXY")},
            stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert process.stderr is not None

        async def line(has: bytes) -> str:
            assert process.stderr is not None
            while has not in (said := await process.stderr.readline()):
                assert said, f"it ended before it said {has!r}"
            return said.decode()

        try:
            async with asyncio.timeout(30):
                url = (await line(b"listens on")).split()[-1]
                file.write_text(text.replace("[server]", "[server]\nmax_body_bytes = 10"))
                process.send_signal(signal.SIGHUP)
                told = json.loads(await line(b"config."))
                assert (told["event"], told["changed"]) == ("config.reloaded", ["server.max_body_bytes"])
                assert (await ask(url, OTHER, body=BODY))[0].status == 413
                file.write_text("nonsense")
                process.send_signal(signal.SIGHUP)
                told = json.loads(await line(b"config."))
                assert told["event"] == "config.refused" and f"{file}" in told["why"]
                assert (await ask(url, OTHER, body=BODY))[0].status == 413
        finally:
            process.terminate()
            await process.wait()


def test_a_file_that_is_read_again_is_judged_as_at_the_start(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text("[server]\nlisten = '0.0.0.0:1'\n")
    with pytest.raises(ConfigError):
        load(file, {}, {})
