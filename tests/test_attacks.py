"""
What somebody would try who wants in, or wants another's request: raw bytes, over real sockets.

Each holds whatever reads the bytes: one request is answered once, nothing that was hidden in it
reaches the upstream, and nothing that was said in it becomes more than a value.
"""

import asyncio
import json
import logging
import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

import proxy
from proxy.events import JsonLines, Plain
from proxy.renamed import Renamed
from tests.support import wire_bytes
from tests.support.agent_sessions import AgentSession, remembering_upstream
from tests.support.formats import FORMATS, Format
from tests.support.fronted import CHAT, fronted, playing, saying
from tests.support.raw_client import ask
from tests.support.raw_upstream import RawUpstream, Send
from tests.support.recorded import Recorded
from tests.support.watched import watched

HIDDEN = b"GET /hidden HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
BODY = b'{"messages":[]}'


async def exchange(url: str, sent: bytes) -> bytes:
    """What comes back for these bytes until the server has no more to say; the client says no more either."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
    writer.write(sent)
    got = b""
    try:
        async with asyncio.timeout(0.5):
            while piece := await reader.read(65536):
                got += piece
    except (TimeoutError, ConnectionError):
        pass
    writer.close()
    return got


def reached(upstream: RawUpstream) -> list[Recorded]:
    """What reached the upstream of all that a test sent."""
    own = ("/props", "/v1/models", "/api/", "/info", "/get_", "/health")
    return [request for request in upstream.requests if not request.path.startswith(own)]


def answers(got: bytes) -> list[int]:
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", got)]


# A second request, hidden in the first


def head(*lines: bytes, method: bytes = b"POST", target: bytes = CHAT.encode()) -> bytes:
    return b"\r\n".join([method + b" " + target + b" HTTP/1.1", b"Host: 127.0.0.1", *lines, b"", b""])


LENGTH = b"Content-Length: %d" % len(b"0\r\n\r\n" + HIDDEN)
SMUGGLED = {
    "both lengths, chunked last": head(LENGTH, b"Transfer-Encoding: chunked") + b"0\r\n\r\n" + HIDDEN,
    "both lengths, chunked first": head(b"Transfer-Encoding: chunked", LENGTH) + b"0\r\n\r\n" + HIDDEN,
    "both lengths, in capitals": head(b"TRANSFER-ENCODING: CHUNKED", LENGTH) + b"0\r\n\r\n" + HIDDEN,
    "both lengths, the short one wins": head(b"Content-Length: 4", b"Transfer-Encoding: chunked")
    + b"%x\r\n" % len(HIDDEN)
    + HIDDEN
    + b"\r\n0\r\n\r\n",
    "two lengths": head(b"Content-Length: 0", LENGTH) + b"0\r\n\r\n" + HIDDEN,
    "two lengths in one": head(b"Content-Length: 0, %d" % len(HIDDEN)) + HIDDEN,
    "a coding that is nearly chunked": head(b"Transfer-Encoding: xchunked", LENGTH) + b"0\r\n\r\n" + HIDDEN,
    "chunked that is not the last": head(b"Transfer-Encoding: chunked, identity") + b"0\r\n\r\n" + HIDDEN,
    "chunked twice": head(b"Transfer-Encoding: chunked", b"Transfer-Encoding: x") + b"0\r\n\r\n" + HIDDEN,
    "a space before the colon": head(b"Transfer-Encoding : chunked", LENGTH) + b"0\r\n\r\n" + HIDDEN,
    "a tab before the colon": head(b"Content-Length\t: 0", LENGTH) + b"0\r\n\r\n" + HIDDEN,
    "a vertical tab in the coding": head(b"Transfer-Encoding:\x0bchunked", LENGTH) + b"0\r\n\r\n" + HIDDEN,
    "a length with a sign": head(b"Content-Length: +0") + HIDDEN,
    "a length in hexadecimal": head(b"Content-Length: 0x0") + HIDDEN,
    "a length with an underscore": head(b"Content-Length: 1_0") + HIDDEN,
    "a length below zero": head(b"Content-Length: -1") + HIDDEN,
    "a length in other digits": head("Content-Length: \u0660".encode()) + HIDDEN,
    "a folded coding": head(b"Transfer-Encoding:", b" chunked", LENGTH) + b"0\r\n\r\n" + HIDDEN,
    "a header that begins with a space": head(b" Transfer-Encoding: chunked", LENGTH) + b"0\r\n\r\n" + HIDDEN,
    "a carriage return alone": head(b"X: y\rTransfer-Encoding: chunked", LENGTH) + b"0\r\n\r\n" + HIDDEN,
    "a line feed alone in a value": head(b"X: y\nContent-Length: 0", LENGTH) + b"0\r\n\r\n" + HIDDEN,
    "a null in a name": head(b"Content-\x00Length: 0", b"Transfer-Encoding: chunked", LENGTH) + HIDDEN,
    "a chunk size with a sign": head(b"Transfer-Encoding: chunked") + b"+0\r\n\r\n" + HIDDEN,
    "a chunk size that overflows": head(b"Transfer-Encoding: chunked") + b"10000000000000000\r\n" + HIDDEN,
    "a chunk longer than it says": head(b"Transfer-Encoding: chunked") + b"1\r\nxx\r\n0\r\n\r\n" + HIDDEN,
    "a chunk ended by a line feed": head(b"Transfer-Encoding: chunked") + b"0\n\n" + HIDDEN,
}


@pytest.mark.parametrize("sent", SMUGGLED.values(), ids=SMUGGLED)
async def test_what_is_hidden_in_a_body_is_not_a_request(sent: bytes) -> None:
    async with saying(b"yes").running() as upstream, fronted(upstream.url) as url:
        for target in (CHAT, "/v1/files", "/livez"):
            got = await exchange(url, sent.replace(CHAT.encode(), target.encode(), 1))
            assert [request.path for request in reached(upstream) if "hidden" in request.path] == []
            # A line that begins with a space goes on with the one before: a strange host.
            assert answers(got) in ([], [400], [403])


@pytest.mark.parametrize(
    "folded",
    [
        b"X-Folded: a\r\n b",
        b"X-Folded: a\r\n\tGET /hidden HTTP/1.1",
        b"X-Folded: a\r\n  Transfer-Encoding: chunked",
    ],
    ids=["a value", "a request", "a header"],
)
async def test_a_folded_header_goes_on_as_one_line_or_not_at_all(folded: bytes) -> None:
    async with saying(b"yes").running() as upstream, fronted(upstream.url) as url:
        got = await exchange(url, head(folded, b"Content-Length: %d" % len(BODY)) + BODY + HIDDEN)
    posts = [request for request in reached(upstream) if request.method == "POST"]
    assert len(posts) == answers(got)[:1].count(200)
    for request in posts:
        assert request.body == BODY
        assert [n for n, _ in request.headers if n.lower() in ("transfer-encoding", "get")] == []


async def test_line_feeds_alone_are_one_request() -> None:
    sent = (head(b"Content-Length: %d" % len(BODY)) + BODY).replace(b"\r\n", b"\n")
    async with saying(b"yes").running() as upstream, fronted(upstream.url) as url:
        got = await exchange(url, sent)
    assert len(answers(got)) == 1 and len(reached(upstream)) == answers(got).count(200)
    assert [request.body for request in reached(upstream)] in ([], [BODY])


async def test_two_requests_are_two_and_are_answered_in_order() -> None:
    first = head(b"Content-Length: %d" % len(BODY)) + BODY
    echoing = playing(lambda r: [Send(wire_bytes.response(r.path.encode()))])
    async with echoing.running() as upstream, fronted(upstream.url) as url:
        got = await exchange(url, first + HIDDEN)
    assert [request.path for request in reached(upstream)] == [CHAT, "/hidden"]
    assert got.index(CHAT.encode()) < got.index(b"/hidden")


@pytest.mark.parametrize(
    "response",
    [
        pytest.param(
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"14\r\nHTTP/1.1 200 Hidden\r\r\n0\r\n\r\n",
            id="both lengths",
        ),
        pytest.param(b"HTTP/1.1 200 OK\r\nX: a\r\n b\r\nContent-Length: 2\r\n\r\n{}", id="a folded header"),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nX: a\rSet-Cookie: b\r\nContent-Length: 2\r\n\r\n{}", id="a return alone"
        ),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nX: a\nSet-Cookie: b\r\nContent-Length: 2\r\n\r\n{}", id="a feed alone"
        ),
        pytest.param(b"HTTP/1.1 200 OK\r\nX: a\x00b\x01\r\nContent-Length: 2\r\n\r\n{}", id="controls"),
        pytest.param(b"HTTP/1.1 200 OK\r\nX Y: a\r\nContent-Length: 2\r\n\r\n{}", id="a space in a name"),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}HTTP/1.1 200 Hidden\r\n\r\n", id="one more"
        ),
    ],
)
@pytest.mark.parametrize("path", [CHAT, "/v1/files"])
async def test_an_answer_of_the_upstream_is_one_answer(path: str, response: bytes) -> None:
    async with playing(lambda _: [Send(response)]).running() as upstream, fronted(upstream.url) as url:
        got = await exchange(url, head(b"Content-Length: %d" % len(BODY), target=path.encode()) + BODY)
    assert answers(got) in ([200], [502])
    top = got.partition(b"\r\n\r\n")[0]
    assert (
        b"Hidden" not in top
        and b"\nSet-Cookie" not in top
        and not re.search(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]", top)
    )


# Where a path leads


CLIMBING = (
    "/v1/../metrics",
    "/v1/..",
    "/..",
    "/../../etc/passwd",
    "/v1/%2e%2e/metrics",
    "/v1/.%2E/metrics",
    "/v1/..%2fmetrics",
    "/v1%2f..%2fmetrics",
    "/v1/..%5cmetrics",
    "/v1/..\\metrics",
    "/v1/..;/metrics",
    "/v1/..%3bx=y/metrics",
    "/v1/..%00/metrics",
    "http://127.0.0.1/v1/../metrics",
    "//v1//..//metrics",
)


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_path_does_not_climb(method: str) -> None:
    async with saying().running() as upstream, fronted(f"{upstream.url}/team/v1") as url:
        for target in CLIMBING:
            answer, raw = await ask(url, target, method=method)
            assert (answer.status, json.loads(raw)["error"]["code"]) == (400, "bad_path"), target
    assert reached(upstream) == []


async def test_any_other_path_goes_on_as_it_is() -> None:
    upstream = RawUpstream(script=lambda _: [Send(wire_bytes.response(b"{}"))])
    async with upstream.running(), fronted(upstream.url) as url:
        for target in (
            "/v1/models/..a",
            "/v1/models/a..",
            "/v1/models/a..b",
            "/v1/models/...",
            "/v1/models/.",
            "/v1/models/org%2Fmodel-1.5",
            "/v1/files/%252e%252e",
            "/v1/x?path=/../y",
            "/%0d%0aX-Injected:%20y",
            "/v1/caf%C3%A9",
        ):
            answer, _ = await ask(url, target, method="GET")
            assert (answer.status, upstream.requests[-1].path) == (200, target)
            assert upstream.requests[-1].header("x-injected") is None


async def test_no_target_leads_to_another_host() -> None:
    async with saying(b"here").running() as upstream, fronted(upstream.url) as url:
        for target in (
            "http://elsewhere.example/v1/files",
            "http://user@elsewhere.example:81/v1/files",
            "HTTPS://elsewhere.example/v1/files",
            "//elsewhere.example/v1/files",
            "/\\elsewhere.example/v1/files",
            "/@elsewhere.example/v1/files",
            "http:/elsewhere.example/v1/files",
            "/http://elsewhere.example/v1/files",
        ):
            answer, raw = await ask(url, target, method="GET")
            assert (answer.status, raw) == (200, b"here"), target
            assert reached(upstream)[-1].header("host") == upstream.url.removeprefix("http://")


WRITTEN = (
    "/{}",
    "//{}",
    "///{}",
    "http://127.0.0.1/{}",
    "http://127.0.0.1//{}",
    "HTTP://elsewhere.example/{}",
)


@pytest.mark.parametrize(
    ("page", "status"),
    [
        ("livez", 200),
        ("readyz", 200),
        ("metrics", 401),
        ("status", 401),
        ("status.json", 401),
        ("upstream/metrics", 401),
    ],
)
async def test_a_page_of_ours_is_ours_however_it_is_written(page: str, status: int) -> None:
    escaped = "".join(f"%{ord(c):02x}" if c.isalpha() else c for c in page)
    async with saying(b"theirs").running() as upstream, fronted(upstream.url, server=ADMIN) as url:
        for written in (*(form.format(page) for form in WRITTEN), f"/{escaped}", f"//{escaped}"):
            answer, raw = await ask(url, written, method="GET")
            assert (answer.status, raw != b"theirs") == (status, True), written
    assert [request for request in reached(upstream) if "metrics" in request.path] == []


ADMIN = {"admin_keys": ("a-key-for-the-admin",)}


# What a request says, and where that turns up

EVIL = {
    "a line": "m\r\nX-Evil: 1\r\n\r\n",
    "markup": "<script>alert(1)</script><img src=x onerror=alert(1)>",
    "a label": 'm"} 1\nevil_total{x="',
    "a terminal": "\x1b]0;owned\x07\x1b[2J\x9b2J",
    "a log line": '"}\n{"time":"2020","level":"info","event":"evil"}',
    "other line ends": "a\u2028{}\u2029b\u0085c\x0bd\x0ce",
    "right to left": "\u202egnp.exe",
    "half a pair": "\ud800",
    "a null": "a\0b",
    "a path": "../../etc/passwd",
    "endless": "m" * 300_000,
}


@pytest.mark.parametrize(
    ("model", "form"),
    [
        *(pytest.param(text, FORMATS[0], id=name) for name, text in EVIL.items()),
        *(pytest.param(EVIL["endless"], form, id=f"endless, {form.name}") for form in FORMATS[1:]),
    ],
)
async def test_a_models_name_is_a_value_wherever_it_turns_up(model: str, form: Format) -> None:
    good = remembering_upstream(window=4096)
    body = json.dumps(form.write(AgentSession(name="alice").step(16).body() | {"model": model})).encode()
    lines: list[str] = []
    async with good.running(), watched(good.url) as running:
        log = _Lines(lines)
        log.attach()
        try:
            answer, _ = await ask(
                running.url, form.path, body=body, headers=[("Content-Type", "application/json")]
            )
        finally:
            log.detach()
        _, page = await ask(running.url, "/metrics", method="GET")
        state_answer, state = await ask(running.url, "/status.json", method="GET")
        compacted = running.counted("context_compacted_total")
    assert (answer.status, compacted) == (200, 1)
    assert answer.header("x-evil") is None and set(answer.headers) == set(dict(answer.headers).items())
    names = {s.name for family in text_string_to_metric_families(page.decode()) for s in family.samples}
    assert "context_compacted_total" in names and "evil_total" not in names and len(page) < 500_000
    [told] = json.loads(state)["conversations"]
    assert (len(told["model"]) <= 100 and told["model"].isprintable()) or "\ufffd" in told["model"]
    assert (state_answer.header("content-type"), state_answer.header("x-content-type-options")) == (
        "application/json", "nosniff",
    )  # fmt: skip
    assert "default-src 'none'" in (state_answer.header("content-security-policy") or "")
    assert lines and all(line.isprintable() and len(line) < 5000 for line in lines)
    events = [json.loads(line)["event"] for line in lines if line.startswith("{")]
    assert "context.compacted" in events and "evil" not in events


class _Lines:
    """Writes down what each form of the log would write."""

    def __init__(self, lines: list[str]) -> None:
        class Handler(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                lines.extend(form.format(record) for form in (JsonLines(), Plain()))

        self._handler = Handler()
        self._log = logging.getLogger("proxy")

    def attach(self) -> None:
        self._log.addHandler(self._handler)

    def detach(self) -> None:
        self._log.removeHandler(self._handler)


@pytest.mark.parametrize(
    "text", [EVIL["a line"], EVIL["a terminal"], EVIL["half a pair"]], ids=["line", "terminal", "half"]
)
async def test_ids_and_names_of_calls_are_values_too(text: str) -> None:
    good = remembering_upstream(window=4096)
    body = AgentSession(name="alice").step(16).body()
    for message in body["messages"]:
        for call in message.get("tool_calls", ()):
            call["id"] = text
            call["function"]["name"] = text
        if "tool_call_id" in message:
            message["tool_call_id"] = text
    async with good.running(), watched(good.url) as running:
        got = await running.send(body)
        assert got.status == 200 and "x-evil" not in got.headers
        assert running.counted("context_faults_total") == 0
        told = json.dumps(running.log, default=str)
    assert "Evil" not in told and "owned" not in told


@pytest.mark.parametrize("theirs", ["../x", "a/b", "a\r\nX: y", "a b", "a?b", "", "x" * 300, "\ud800"])
def test_an_upstreams_id_that_is_more_than_an_id_is_not_put_into_paths(theirs: str) -> None:
    renamed = Renamed()
    announced = "resp_waited_" + "0" * 32
    renamed.remember((), announced, theirs)
    assert renamed.restored((), announced.encode()) == announced.encode()


@pytest.mark.parametrize("name", ["x-compaction", "host", "transfer-encoding", "x-request-id"])
async def test_a_header_with_a_line_in_it_is_refused(name: str) -> None:
    sent = head(name.encode() + b": a\r\n\r\nb", b"Content-Length: 0")
    async with saying().running() as upstream, fronted(upstream.url) as url:
        got = await exchange(url, sent)
    # What follows the empty line is the next request, and is none.
    assert answers(got)[-1:] == [400]
    assert all(request.body == b"" for request in reached(upstream))


def test_the_status_page_puts_nothing_into_markup() -> None:
    """Texts become text nodes; nothing that is told is parsed as HTML, or run."""
    folder = Path(proxy.__file__).parent / "status_page"
    sinks = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|createContextualFragment|DOMParser|srcdoc"
        r"|\beval\b|new Function|setTimeout\(\s*[\"'`]|javascript:|\.on\w+\s*=\s*[\"'`]"
    )
    for file in sorted(folder.iterdir()):
        assert sinks.findall(file.read_text(encoding="utf-8")) == [], file.name
    page = (folder / "page.html").read_text(encoding="utf-8")
    assert re.findall(r"<script(?![^>]*\bsrc=)[^>]*>|\son\w+=|style=", page) == []
