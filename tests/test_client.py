"""A client that leaves ends the work for it; what it sends has a limit."""

from collections.abc import Callable

import pytest

from tests.support import wire_bytes
from tests.support.fronted import BODY, BOTH, CHAT, STREAMED, fronted, playing, sample, saying
from tests.support.raw_client import RawRequest, ask
from tests.support.raw_upstream import Send, Stall, Step
from tests.support.recorded import Recorded

LEAVING = pytest.mark.parametrize(
    "leave", [pytest.param(RawRequest.close, id="FIN"), pytest.param(RawRequest.reset, id="RST")]
)


@BOTH
@LEAVING
@pytest.mark.parametrize("body", [pytest.param(STREAMED, id="stream"), pytest.param(BODY, id="no stream")])
async def test_a_client_that_leaves_before_the_answer_ends_the_upstreams_work(
    path: str, leave: Callable[[RawRequest], None], body: bytes
) -> None:
    async with (
        playing(lambda _: [Stall()]).running() as upstream,
        fronted(upstream.url) as url,
        RawRequest(url, path, body=body) as request,
    ):
        await upstream.until(lambda u: any(r.path == path for r in u.requests))
        leave(request)
        await upstream.until(lambda u: u.requests[-1].is_cancelled)


@BOTH
@LEAVING
async def test_a_client_that_leaves_a_stream_ends_the_upstreams_work(
    path: str, leave: Callable[[RawRequest], None]
) -> None:
    async with (
        playing(lambda _: wire_bytes.stall_in_stream()).running() as upstream,
        fronted(upstream.url) as url,
        RawRequest(url, path, body=STREAMED) as request,
    ):
        await anext(aiter((await request.answer()).chunks()))
        leave(request)
        await upstream.until(lambda u: u.requests[-1].is_cancelled)


@BOTH
async def test_twenty_clients_that_leave_are_followed_by_one_that_is_served(path: str) -> None:
    def script(request: Recorded) -> list[Step]:
        return [Send(wire_bytes.response(b"served"))] if request.header("x-last") else [Stall()]

    async with playing(script).running() as upstream, fronted(upstream.url) as url:
        for n in range(1, 21):
            async with RawRequest(url, path, body=STREAMED) as request:
                await upstream.until(lambda u, n=n: len([r for r in u.requests if r.path == path]) == n)  # type: ignore[misc]
                request.reset()
        await upstream.until(lambda u: all(r.is_done for r in u.requests))
        _, body = await ask(url, path, body=STREAMED, headers=[("X-Last", "1")])
    assert body == b"served"


@BOTH
@pytest.mark.parametrize("size", [2_000_000, 1_000], ids=["passed on", "read first"])
async def test_a_client_that_leaves_in_the_middle_of_its_upload_is_no_error(path: str, size: int) -> None:
    async with saying().running() as upstream, fronted(upstream.url) as url:
        headers = [("Content-Length", str(size + 1))]
        async with RawRequest(url, path, body=b"x" * size, headers=headers) as request:
            request.reset()
        dialect, endpoint = ("chat", "/chat/completions") if path == CHAT else ("none", "other")
        labels = f'dialect="{dialect}",endpoint="{endpoint}",status="client_gone"'
        while not await sample(url, f"proxy_requests_total{{{labels}}}"):
            pass
        assert await sample(url, 'proxy_refused_total{code="upstream_unreachable"}') == 0
        assert await sample(url, 'proxy_refused_total{code="proxy_error"}') == 0


@BOTH
@pytest.mark.parametrize("chunked", [False, True], ids=["declared", "chunked"])
async def test_a_body_over_the_limit_is_a_413(path: str, chunked: bool) -> None:
    headers = [("Transfer-Encoding", "chunked")] if chunked else []
    body = wire_bytes.chunk(b"x" * 60) * 3 + wire_bytes.LAST_CHUNK if chunked else b"x" * 101
    async with saying().running() as upstream, fronted(upstream.url, server={"max_body_bytes": 100}) as url:
        answer, raw = await ask(url, path, body=body, headers=headers)
    assert answer.status == 413
    assert raw == (
        b'{"error":{"message":"the request body is over 100 bytes; raise `server.max_body_bytes` of the '
        b'proxy if it is meant to be","type":"invalid_request_error","param":null,"code":"body_too_large"}}'
    )
    assert [r for r in upstream.requests if r.path == path] == []


@BOTH
async def test_a_body_that_says_it_will_be_too_large_is_not_asked_for(path: str) -> None:
    headers = [("Content-Length", "99999999999"), ("Expect", "100-continue")]
    async with (
        saying().running() as upstream,
        fronted(upstream.url) as url,
        RawRequest(url, path, headers=headers) as request,
    ):
        assert (await request.answer()).status == 413
    assert [r for r in upstream.requests if r.path == path] == []


@BOTH
async def test_a_body_at_the_limit_goes_through(path: str) -> None:
    async with (
        saying().running() as upstream,
        fronted(upstream.url, server={"max_body_bytes": len(BODY)}) as url,
    ):
        answer, _ = await ask(url, path, body=BODY)
    assert answer.status == 200
