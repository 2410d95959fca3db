"""What a whole session moves, and that nothing of its content is told."""

import io
import json
import logging
from collections.abc import AsyncIterator
from types import SimpleNamespace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from proxy.events import JsonLines, Plain
from tests.support.raw_client import ask
from tests.watching.session import AHEAD, CANARY, GOOD, SILENT, SLOW, Watched, begin, play, watched


class Logged:
    """The proxy's log goes to *stream* as well while this is open."""

    def __init__(self, stream: io.StringIO, style: logging.Formatter) -> None:
        self._handler = logging.StreamHandler(stream)
        self._handler.setFormatter(style)

    def __enter__(self) -> None:
        log = logging.getLogger("proxy")
        self._before = log.level
        log.setLevel(logging.DEBUG)
        log.addHandler(self._handler)

    def __exit__(self, *_: object) -> None:
        log = logging.getLogger("proxy")
        log.removeHandler(self._handler)
        log.setLevel(self._before)


@pytest.fixture(scope="module")
async def session(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SimpleNamespace]:
    """What a session left behind: the page before and after, and the log in both styles."""
    streams = [io.StringIO(), io.StringIO()]
    with Logged(streams[0], JsonLines()), Logged(streams[1], Plain()):
        async with watched(tmp_path_factory.mktemp("watched")) as it:
            await begin(it)
            await play(it)
            await _hostile(it)
            page, kind = await it.metrics()
            open_page, open_kind = await it.metrics("application/openmetrics-text; version=1.0.0")
            readiness = await _page(it, "/readyz")
            yield SimpleNamespace(
                page=page,
                kind=kind,
                open_page=open_page,
                open_kind=open_kind,
                readiness=readiness,
                log=streams[0].getvalue(),
                plain_log=streams[1].getvalue(),
                value=it.proxy.metrics.registry.get_sample_value,
            )


async def _page(it: Watched, path: str) -> str:
    answer, page = await ask(it.url, path, method="GET")
    assert answer.status == 200
    return page.decode()


async def _hostile(it: Watched) -> None:
    """Canaries where errors could quote them."""
    c = CANARY
    for body in (
        f'{{"model": "good", "messages": "{c}"}}',
        f'{{"messages": [{{"role": "{c}", "content": [1, {{"{c}": "{c}"}}]}}]}}',
        f'{{"messages": [{{"role": "user", "content": {{"{c}": 1}}}}], "tools": "{c}"}}',
        f'{{"messages": [{{"role": "user", "content": "\\ud800{c}"}}], "max_tokens": "{c}"}}',
        f'{{"messages": [{{"role": "tool", "tool_call_id": "{c}", "content": "{c}"}}], "stream": "{c}"}}',
        f"{c} is no JSON",
        f'{{"messages": [{{"role": "assistant", "tool_calls": [{{"function": {{"arguments": "{c}"}}}}]}}]}}',
    ):
        await it.send(body.encode())
        await it.send(body.encode(), url=it.broken_url)


@pytest.mark.parametrize(
    "seen", ["page", "open_page", "log", "plain_log", "readiness"], ids=lambda seen: seen.replace("_", " ")
)
async def test_no_content_is_told(session: SimpleNamespace, seen: str) -> None:
    assert getattr(session, seen)
    assert CANARY not in getattr(session, seen)


async def test_open_metrics_on_request(session: SimpleNamespace) -> None:
    assert session.kind.startswith("text/plain")
    assert session.open_kind.startswith("application/openmetrics-text")
    assert session.open_page.endswith("# EOF\n")


@pytest.mark.parametrize(
    ("name", "labels", "least"),
    [
        ("context_compacted_total", {"model": GOOD, "trigger": "threshold", "folded": "false"}, 1),
        ("context_compacted_total", {"model": GOOD, "trigger": "threshold", "folded": "true"}, 1),
        ("context_compaction_failed_total", {"model": SILENT, "reason": "empty"}, 2),
        ("context_trim_before_tokens_count", {"model": SILENT}, 2),
        ("context_prefix_rewrites_total", {"model": GOOD, "cause": "compaction"}, 3),
        ("context_prefix_rewrites_total", {"model": SILENT, "cause": "trim"}, 2),
        ("context_prefix_rewrites_total", {"model": GOOD, "cause": "client"}, 1),
        ("context_overflow_answers_total", {"model": GOOD, "outcome": "recovered"}, 1),
        ("context_overflow_answers_total", {"model": GOOD, "outcome": "relayed"}, 1),
        ("context_over_budget_total", {"model": GOOD}, 1),
        ("context_runs_saved_total", {"model": GOOD}, 2),
        ("context_runs_saved_total", {"model": SILENT}, 1),
        ("context_notes_seconds_count", {"model": SLOW}, 1),
        ("context_notes_prompt_tokens_total", {"model": GOOD, "state": "cached"}, 10_000),
        ("context_notes_completion_tokens_total", {"model": GOOD}, 100),
        ("context_compacted_total", {"model": AHEAD, "trigger": "ahead", "folded": "false"}, 1),
        ("context_notes_ahead_total", {"model": AHEAD, "outcome": "used"}, 1),
        ("context_prewarms_total", {"model": AHEAD, "outcome": "done"}, 1),
        ("context_prewarm_prompt_tokens_total", {"model": AHEAD, "state": "processed"}, 100),
        ("proxy_config_reloads_total", {"outcome": "applied"}, 2),
        ("proxy_config_reloads_total", {"outcome": "refused"}, 1),
        ("proxy_keepalives_total", {}, 1),
        ("proxy_untouched_requests_total", {"dialect": "chat", "reason": "switched_off"}, 1),
        ("proxy_overhead_seconds_count", {}, 50),
        ("upstream_prompt_tokens_total", {"model": GOOD, "state": "cached"}, 10_000),
        ("upstream_window_tokens", {"model": GOOD}, 8192),
        ("upstream_first_byte_seconds_count", {"model": GOOD}, 40),
        ("token_estimate_error_ratio_count", {"model": GOOD}, 40),
        ("context_budget_share_ratio_count", {"model": GOOD}, 40),
        ("upstream_up", {}, 1),
        ("store_up", {}, 1),
        ("store_entries", {}, 5),
        ("store_size_bytes", {}, 1000),
    ],
    ids=lambda value: " ".join(value.values()) if isinstance(value, dict) else str(value),
)
async def test_a_session_moves(
    session: SimpleNamespace, name: str, labels: dict[str, str], least: float
) -> None:
    assert session.value(name, labels) >= least


async def test_a_trim_is_one_rewrite(session: SimpleNamespace) -> None:
    trims = session.value("context_trim_before_tokens_count", {"model": SILENT})
    rewrites = session.value("context_prefix_rewrites_total", {"model": SILENT, "cause": "trim"})
    assert trims == rewrites


async def test_an_agent_that_only_appends_rewrites_nothing(session: SimpleNamespace) -> None:
    assert session.value("context_prefix_rewrites_total", {"model": SILENT, "cause": "client"}) == 0


async def test_events_and_counters_agree(session: SimpleNamespace) -> None:
    events = [json.loads(line) for line in session.log.splitlines()]
    made = sum(1 for event in events if event["event"] == "context.compacted")
    families = text_string_to_metric_families(session.page)
    counted = [s.value for f in families for s in f.samples if s.name == "context_compacted_total"]
    assert sum(counted) == made > 0


@pytest.mark.parametrize("style", [JsonLines(), Plain()], ids=["JSON", "plain"])
def test_a_fault_is_logged_without_what_it_quotes(style: logging.Formatter) -> None:
    stream = io.StringIO()
    with Logged(stream, style):
        try:
            int(CANARY)
        except ValueError:
            logging.getLogger("proxy").exception("compaction.fault")
    assert "test_metrics_of_a_session.py" in stream.getvalue() and "ValueError" in stream.getvalue()
    assert f"'{CANARY}'" not in stream.getvalue()
