"""
Take a request apart and put an `Answer` on the wire, in ASGI's events.
"""

import json
from collections.abc import Iterator
from typing import Any

from tests.support.answers import Answer
from tests.support.recorded import Recorded


async def receive_request(scope: Any, receive: Any) -> Recorded | None:
    """The whole request, or None where the client left before it was there."""
    body = b""
    more = True
    while more:
        event = await receive()
        if event["type"] == "http.disconnect":
            return None
        body += event.get("body", b"")
        more = event.get("more_body", False)
    query = scope["query_string"].decode("latin-1")
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError):
        parsed = None
    return Recorded(
        method=scope["method"],
        path=scope["raw_path"].decode("latin-1") + (f"?{query}" if query else ""),
        headers=[(n.decode("latin-1"), v.decode("latin-1")) for n, v in scope["headers"]],
        body=body,
        json=parsed,
    )


async def disconnected(receive: Any) -> None:
    """Return when the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def accept_lifespan(receive: Any, send: Any) -> None:
    """Say yes to start and shutdown."""
    while True:
        event = await receive()
        await send({"type": f"{event['type']}.complete"})
        if event["type"] == "lifespan.shutdown":
            return


async def send_whole(request: Recorded, send: Any, answer: Answer, body: bytes) -> None:
    """Send *body* with its length, the second half after `answer.midway`."""
    headers = [
        ("server", "scripted"),
        ("content-type", answer.content_type),
        ("content-length", str(len(body))),
    ]
    await _start(request, send, answer, headers)
    if answer.midway is not None:
        half = len(body) // 2
        await send({"type": "http.response.body", "body": body[:half], "more_body": True})
        await answer.midway.wait()
        body = body[half:]
    await send({"type": "http.response.body", "body": body})


async def send_events(request: Recorded, send: Any, answer: Answer, events: Iterator[bytes]) -> None:
    """Send *events* one by one; after the role and one piece of text the rest waits for `answer.midway`."""
    await _start(request, send, answer, [("server", "scripted"), ("content-type", "text/event-stream")])
    for i, event in enumerate(events):
        if i == 2 and answer.midway is not None:
            await answer.midway.wait()
        await send({"type": "http.response.body", "body": event, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def _start(request: Recorded, send: Any, answer: Answer, headers: list[tuple[str, str]]) -> None:
    if answer.before is not None:
        await answer.before.wait()
    request.status = answer.status
    own = {name.lower() for name, _ in answer.headers}
    kept = [(n, v) for n, v in headers if n not in own] + list(answer.headers)
    encoded = [(n.encode("latin-1"), v.encode("latin-1")) for n, v in kept]
    await send({"type": "http.response.start", "status": answer.status, "headers": encoded})
