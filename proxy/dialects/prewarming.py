"""
Which fields turn a request into one that only has its prompt processed?

One token is written, since servers write one even where none is asked for. What shapes
the prompt stays.
"""

from collections.abc import Sequence

from proxy.dialects.slices import Body, dump

# Several answers, and what describes a stream: nobody reads this one.
_LEFT_OUT = ("n", "stream_options", "return_progress")


def one_token(body: Body, limits: Sequence[str]) -> dict[str, str | bytes | None]:
    """
    The changes for `put_together`.

    Args:
        body: The request.
        limits: Every field of its format that sets an output limit; the last is added where none stands.
    """
    changed: dict[str, str | bytes | None] = {field: None for field in _LEFT_OUT if field in body.fields}
    present = [field for field in limits if field in body.fields] or [limits[-1]]
    return changed | {"stream": "false"} | dict.fromkeys(present, dump(1))
