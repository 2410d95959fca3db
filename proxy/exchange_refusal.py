"""
What does a client get where an answer says "too long" behind a 200, and nothing shorter can be sent?

A status that says so: clients bring their own history down by it, while a 200 without a word of
an answer looks like a model that had nothing to say.
"""

import json
from typing import Any

from proxy.dialects.sse import Events
from proxy.exchange_beginning import Beginning, plain
from proxy.relay import is_stream
from proxy.upstream_response import Response


def refusal_behind_200(response: Response, beginning: Beginning) -> bytes | None:
    """
    The upstream's own error as a body of its own; None where the answer is to be relayed as it is.

    Args:
        response: Of which nothing was passed on.
        beginning: What was read of it, as far as the error.
    """
    if response.status != 200 or beginning.overflow is None:
        return None
    held = b"".join(beginning.held)
    if not is_stream(response):
        return plain(response, held)
    reader = Events()
    said = [event.data for event in (*reader.feed(held), *reader.end()) if event.data]
    error = _json(said[0]) if said else None
    if not isinstance(error, dict):
        return (
            json.dumps({"error": {"message": said[0].decode("utf-8", "replace")}}).encode() if said else None
        )
    if "response" in error:
        # In the Responses format this is how a stream fails; its clients look for it there.
        return None
    return said[0] if isinstance(error.get("error"), dict | str) else json.dumps({"error": error}).encode()


def _json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None
