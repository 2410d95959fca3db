"""
Did an answer end with tool calls, so that the agent is busy with them now?
"""

import re

from proxy.dialects.base import Dialect
from proxy.dialects.sse import Events

# In the last event of a response, which repeats it whole and may be cut at its beginning. Quotes
# inside texts are escaped there.
_CALL = re.compile(rb'"type"\s*:\s*"[a-z_]{1,40}_call"')


def has_called(dialect: Dialect, tail: bytes, *, is_stream: bool) -> bool:
    """
    Args:
        dialect: Of the answer.
        tail: The end of a stream, which may begin in the middle of an event, or a whole JSON body.
        is_stream: Whether it is a stream.
    """
    if not is_stream:
        whole = dialect.read_whole(tail)
        return whole.called or whole.finish == "tool"
    reader = Events()
    datas = [event.data for event in (*reader.feed(tail), *reader.end()) if event.data]
    pieces = [dialect.read_event(data) for data in datas]
    if any(piece.error for piece in pieces):
        return False
    return any(piece.called or piece.finish == "tool" for piece in pieces) or bool(_CALL.search(tail))
