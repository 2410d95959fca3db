"""What a person sees of the proxy: headers, metrics, readiness, the log; and what must not be in them."""

import gzip
import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from proxy.config import StoreConfig
from proxy.events import emit, log_fault, log_to
from tests.support import wire_bytes
from tests.support.agent_sessions import NOTES_MARKER, AgentSession
from tests.support.answers import Answer, error
from tests.support.fronted import BODY, CHAT, OTHER, fronted, playing, sample, saying, sent
from tests.support.raw_client import ask
from tests.support.raw_upstream import RawUpstream, Send
from tests.support.recorded import Recorded
from tests.support.scripted import ScriptedUpstream


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """Everything that the proxy logs, down to debug."""
    logger = logging.getLogger("proxy")
    before = (logger.handlers[:], logger.level, logger.propagate)
    stream = io.StringIO()
    log_to(stream, level="debug")
    yield stream
    logger.handlers[:], logger.level, logger.propagate = before


def events(log: io.StringIO, name: str) -> list[dict[str, Any]]:
    entries = [json.loads(line) for line in log.getvalue().splitlines()]
    return [entry for entry in entries if entry["event"] == name]


def long_session(turns: int = 40) -> AgentSession:
    """Almost two windows of 4096; one with 14 turns is just long enough for notes."""
    return AgentSession(name="alice").step(turns)


# Headers


async def test_every_chat_is_told_its_outcome_and_its_size() -> None:
    async with ScriptedUpstream(window=4096).running() as upstream, fronted(upstream.url) as url:
        session = AgentSession(name="alice")
        short, _ = await ask(url, CHAT, body=session.body())
        session.step(40)
        compacted, _ = await ask(url, CHAT, body=session.body())
        reused, _ = await ask(url, CHAT, body=session.step().body())
    assert [a.header("x-compaction") for a in (short, compacted, reused)] == ["none", "compacted", "reused"]
    size = upstream.count(AgentSession(name="alice").body())
    told = [(a.header("x-context-tokens") or "").split("/") for a in (short, compacted, reused)]
    # 4096 less the reserve of 1024.
    assert {budget for _, budget in told} == {"3072"}
    assert abs(int(told[0][0]) - size) < size / 2
    assert all(int(tokens) < 3072 for tokens, _ in told)


async def test_the_off_switch_passes_a_request_by() -> None:
    session = long_session()
    raw = json.dumps(session.body()).encode()
    async with ScriptedUpstream(window=4096).running() as upstream, fronted(upstream.url) as url:
        for off in ("off", " OFF "):
            answer, _ = await ask(url, CHAT, body=raw, headers=[("X-Compaction", off)])
            # Too long, and the upstream's own words come back.
            assert (answer.status, answer.header("x-compaction")) == (400, "none")
            assert answer.header("x-context-tokens") is None
            assert upstream.chats[-1].body == raw
            assert upstream.chats[-1].header("x-compaction") is None
        assert upstream.notes == []


# Metrics


async def test_metrics_come_as_text_and_as_openmetrics() -> None:
    async with ScriptedUpstream(window=4096).running() as upstream, fronted(upstream.url) as url:
        await ask(url, CHAT, body=long_session().body())
        text, page = await ask(url, "/metrics", method="GET")
        wanted = "application/openmetrics-text; version=1.0.0"
        openmetrics, other = await ask(url, "/metrics", method="GET", headers=[("Accept", wanted)])
    assert (text.header("content-type") or "").startswith("text/plain")
    assert (openmetrics.header("content-type") or "").startswith("application/openmetrics-text")
    names = {family.name for family in parse_text(page.decode())}
    assert names == {family.name for family in parse_openmetrics(other.decode())}
    assert names >= {"context_compacted", "context_trimmed", "context_compaction_failed"}


async def test_what_happens_is_counted() -> None:
    async with ScriptedUpstream(window=4096).running() as upstream, fronted(upstream.url) as url:
        await ask(url, CHAT, body=long_session(14).body())
        labels = 'folded="false",model="scripted",trigger="threshold"'
        assert await sample(url, f"context_compacted_total{{{labels}}}") == 1
        labels = 'dialect="chat",endpoint="/chat/completions",status="200"'
        assert await sample(url, f"proxy_requests_total{{{labels}}}") == 1
        assert await sample(url, 'upstream_window_tokens{model="scripted"}') == 4096


async def test_a_model_whose_name_is_no_text_breaks_no_scrape() -> None:
    bodies = [rb"\ud800", rb"a\nb", b'\\"', b"x" * 5000, rb"\u0000"]
    async with ScriptedUpstream(window=4096).running() as upstream, fronted(upstream.url) as url:
        for name in bodies:
            raw = b'{"model":"%s","messages":[{"role":"user","content":"hello"}]}' % name
            assert (await ask(url, CHAT, body=raw))[0].status == 200
        answer, page = await ask(url, "/metrics", method="GET")
    assert answer.status == 200
    assert list(parse_text(page.decode()))


async def test_metrics_that_are_switched_off_are_the_upstreams() -> None:
    async with saying(b"theirs 1\n").running() as upstream, fronted(upstream.url, metrics=False) as url:
        _, page = await ask(url, "/metrics", method="GET")
    assert (page, sent(upstream).path) == (b"theirs 1\n", "/metrics")


@pytest.mark.parametrize("base", ["", "/v1"])
async def test_the_upstreams_own_metrics_stand_beside_ours(base: str) -> None:
    async with saying(b"theirs 1\n").running() as upstream, fronted(upstream.url + base) as url:
        _, page = await ask(url, "/upstream/metrics?x=1", method="GET")
    assert (page, sent(upstream).path) == (b"theirs 1\n", "/metrics?x=1")


# Readiness


async def test_live_and_ready() -> None:
    async with saying(b"{}").running() as upstream, fronted(upstream.url) as url:
        live, body = await ask(url, "/livez", method="GET")
        ready, told = await ask(url, "/readyz", method="GET")
    assert (live.status, body) == (200, b"ok\n")
    assert (ready.status, json.loads(told)) == (200, {"ready": True, "upstream": "ok", "store": "ok"})


async def test_an_upstream_that_is_down_is_not_ready_but_live() -> None:
    closed = wire_bytes.closed_port()
    async with fronted(closed) as url:
        live, _ = await ask(url, "/livez", method="GET")
        ready, told = await ask(url, "/readyz", method="GET")
    assert (live.status, ready.status) == (200, 503)
    said = json.loads(told)
    assert said["ready"] is False and said["store"] == "ok"
    assert said["upstream"].startswith(f"no answer from the upstream at {closed}")


async def test_an_upstream_that_is_loading_is_not_ready() -> None:
    script = [Send(wire_bytes.status(503))]
    async with RawUpstream(script=lambda _: script).running() as upstream, fronted(upstream.url) as url:
        ready, told = await ask(url, "/readyz", method="GET")
    assert (ready.status, json.loads(told)["upstream"]) == (503, "loading")


async def test_a_broken_store_is_told_and_fails_nothing(tmp_path: Path) -> None:
    blocked = tmp_path / "a file"
    blocked.write_text("not a folder")
    store = StoreConfig(path=str(blocked / "store.sqlite3"))
    async with ScriptedUpstream(window=4096).running() as upstream, fronted(upstream.url, store=store) as url:
        answer, _ = await ask(url, CHAT, body=long_session().body())
        ready, told = await ask(url, "/readyz", method="GET")
    assert (answer.status, answer.header("x-compaction")) == (200, "compacted")
    said = json.loads(told)
    assert (ready.status, said["ready"]) == (200, True)
    assert said["store"] != "ok" and str(blocked) in said["store"]


# The log


async def test_a_compaction_is_one_event_with_its_numbers(log: io.StringIO) -> None:
    async with ScriptedUpstream(window=4096).running() as upstream, fronted(upstream.url) as url:
        answer, _ = await ask(url, CHAT, body=long_session(14).body())
    (event,) = events(log, "context.compacted")
    after = (answer.header("x-context-tokens") or "").split("/")[0]
    assert event["model"] == "scripted" and event["folded"] is False
    assert event["tokens_before"] > event["tokens_after"] > 0
    assert str(event["tokens_after"]) == after
    assert set(event) >= {
        "time", "level", "event", "conversation", "model", "tokens_before", "tokens_after", "seconds",
        "replaced_from", "replaced_to", "turns", "calls", "notes_tokens", "notes_cached_tokens", "folded",
    }  # fmt: skip


async def test_failed_notes_and_the_trim_after_them_are_events(log: io.StringIO) -> None:
    upstream = ScriptedUpstream(window=4096, notes_marker=NOTES_MARKER)
    upstream.script = lambda r: error(500, "no notes today") if upstream.is_notes(r) else None
    async with upstream.running(), fronted(upstream.url) as url:
        answer, _ = await ask(url, CHAT, body=long_session().body())
    assert answer.status == 200
    (failed,) = events(log, "context.compaction_failed")
    assert failed["retry_after_turns"] == 3 and failed["reason"]
    (trimmed,) = events(log, "context.trimmed")
    assert trimmed["tokens_before"] > trimmed["tokens_after"] and trimmed["what"]


async def test_what_json_lines_cannot_say_is_logged_all_the_same(log: io.StringIO) -> None:
    emit("odd", text="half \ud800", number=10**30, thing=object())
    (event,) = events(log, "odd")
    assert event["number"] == 10**30 and event["text"] == "half \ud800"


CANARY = "xylophone-canary-7431"


async def test_nothing_that_is_said_is_logged_counted_or_put_into_errors(log: io.StringIO) -> None:
    """Every text of the conversation, of the answers and every credential holds the canary."""

    def script(request: Recorded) -> Answer | None:
        if upstream.is_notes(request):
            n = len(upstream.notes)
            # The first fail in different ways.
            failing = {
                1: error(500, f"no notes: {CANARY}"),
                2: Answer(text=CANARY),
                3: Answer(calls=((CANARY, {CANARY: CANARY}),)),
            }
            return failing.get(n) or Answer(text=f"- {CANARY} was read, and what it said was kept.\n" * 8)
        return Answer(text=CANARY)

    upstream = ScriptedUpstream(window=4096, script=script, notes_marker=NOTES_MARKER)
    told: list[bytes] = []
    headers = [("Authorization", f"Bearer {CANARY}"), ("Cookie", CANARY), ("X-Api-Key", CANARY)]
    async with upstream.running(), fronted(upstream.url) as url:
        session = AgentSession(name="alice", task=f"Never say {CANARY}. " * 3).step(20)
        outcomes = set()
        for turn in range(40):
            session.step()
            text = json.dumps(session.body()).replace("mark-", f"{CANARY} mark-").replace("path", CANARY)
            # Now and then something that cannot be read, or not be written again.
            odd = text.replace('"model"', f'"x": "{CANARY}\\ud800", "model"') if turn % 2 else text
            answer, body = await ask(url, CHAT, body=odd.encode(), headers=headers)
            outcomes.add(answer.header("x-compaction"))
        for bad in (f'{{"messages": "{CANARY}', f'{{"messages":[{{"role":"{CANARY}"}}]}}'):
            await ask(url, CHAT, body=bad.encode(), headers=headers)
        for coding in ("gzip", "br", "zstd", CANARY):
            _, body = await ask(
                url, CHAT, body=CANARY.encode(), headers=[("Content-Encoding", coding), *headers]
            )
            if coding != CANARY:
                told.append(body)
        told.append((await ask(url, "/metrics", method="GET"))[1])
        told.append((await ask(url, "/readyz", method="GET"))[1])
    async with fronted(wire_bytes.closed_port(), server={"max_body_bytes": 4000}) as url:
        for size in (1, 1000):
            told.append(
                (await ask(url, f"{CHAT}?key={CANARY}", body=CANARY.encode() * size, headers=headers))[1]
            )
        told.append((await ask(url, f"/{CANARY}", body=CANARY.encode(), headers=headers))[1])
        told.append((await ask(url, "/metrics", method="GET"))[1])
    assert {"compacted", "reused", "failed"} & outcomes >= {"compacted", "reused"}
    assert events(log, "context.compacted") and events(log, "context.compaction_failed")
    assert CANARY not in log.getvalue()
    assert [page for page in told if CANARY.encode() in page] == []


@pytest.mark.parametrize("style", ["json", "text"])
def test_what_an_exception_says_is_not_logged(log: io.StringIO, style: str) -> None:
    log_to(log, style=style)
    try:
        raise ValueError(CANARY)
    except ValueError:
        log_fault("a test")
    assert "ValueError" in log.getvalue() and "test_visible.py" in log.getvalue()
    assert CANARY not in log.getvalue()


# Keys


async def test_the_configured_key_stands_for_the_clients_everywhere() -> None:
    theirs = [("Authorization", "Bearer theirs"), ("X-Api-Key", "theirs"), ("Api-Key", "theirs")]
    upstream = ScriptedUpstream(window=4096)
    async with (
        upstream.running(),
        fronted(upstream.url, reach={"key_env": "OUR_KEY"}, environ={"OUR_KEY": "ours"}) as url,
    ):
        await ask(url, CHAT, body=long_session().body(), headers=theirs)
        await ask(url, OTHER, body=BODY, headers=theirs)
        await ask(url, "/readyz", method="GET")
        await ask(url, "/metrics", method="GET")
        await ask(url, "/upstream/metrics", method="GET", headers=theirs)
    assert upstream.notes and any(r.path.startswith("/props") for r in upstream.requests)
    assert {r.header("authorization") for r in upstream.requests} == {"Bearer ours"}
    assert {r.header("x-api-key") or r.header("api-key") for r in upstream.requests} == {None}


async def test_without_a_configured_key_the_clients_goes_everywhere() -> None:
    upstream = ScriptedUpstream(window=4096)
    async with upstream.running(), fronted(upstream.url) as url:
        headers = [("Authorization", "Bearer theirs")]
        await ask(url, CHAT, body=long_session().body(), headers=headers)
        await ask(url, OTHER, body=BODY, headers=headers)
    assert upstream.notes and any(r.path.startswith("/props") for r in upstream.requests)
    assert {r.header("authorization") for r in upstream.requests} == {"Bearer theirs"}


# Request bodies that are encoded


async def test_an_encoded_request_that_is_compacted_goes_on_plain() -> None:
    raw = json.dumps(long_session().body()).encode()
    headers = [("Content-Encoding", "gzip"), ("Content-MD5", "x"), ("Content-Digest", "y")]
    async with ScriptedUpstream(window=4096).running() as upstream, fronted(upstream.url) as url:
        answer, _ = await ask(url, CHAT, body=gzip.compress(raw), headers=headers)
    request = upstream.turns[-1]
    assert (answer.status, answer.header("x-compaction")) == (200, "compacted")
    names = {name.lower() for name, _ in request.headers}
    assert not names & {"content-encoding", "content-md5", "content-digest"}
    assert request.header("content-length") == str(len(request.body))
    assert request.json["messages"][0] == long_session().messages[0]
    assert all(r.header("content-encoding") is None for r in upstream.requests)


async def test_a_429_is_relayed_with_its_retry_after_and_not_tried_again() -> None:
    async with (
        playing(lambda _: [Send(wire_bytes.status(429, retry_after="30"))]).running() as upstream,
        fronted(upstream.url) as url,
    ):
        answer, _ = await ask(url, CHAT, body=BODY)
    assert (answer.status, answer.header("retry-after")) == (429, "30")
    assert len([r for r in upstream.requests if r.path == CHAT]) == 1
