"""
How much of anything is taken at once: the table `[limits]`.

The defaults are where no agent that is meant comes; each says what happens beyond it. What a
body is too large for, or too odd, passes through untouched wherever it can.
"""

from dataclasses import dataclass
from typing import Annotated

from proxy.config_rules import Number, Whole

_MEBIBYTE = 1024 * 1024
_AN_HOUR = 3600.0  # seconds; a client that needs longer for its request is not there


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsConfig:
    """
    Sizes are in bytes where the name says so, else counts.

    Attributes:
        requests_at_once: Worked on side by side; a local server has few slots, and vLLM takes 256.
        requests_waiting: In line behind them; more are answered with 503.
        notes_at_once: Sets of notes that are being written; more wait.
        bodies_at_once_bytes: Of all request bodies held in memory together; more are answered with 503.
        understood_bytes: Of a body that is looked into, also once its coding is undone; a larger
            one passes through untouched, without being held in memory.
        understood_messages: Of a conversation; with more it passes through untouched.
        understood_values: About how many values the JSON of a body may hold. Small ones take fifty
            times their size in memory.
        head_bytes: Of a request's line and headers; longer ones are answered with 431.
        head_seconds: From its first byte, or the connection's beginning, to the end of the head.
        body_silence_seconds: Between two pieces of a body; then it is answered with 408.
    """

    requests_at_once: Annotated[int, Whole(least=1)] = 512
    requests_waiting: Annotated[int, Whole(least=0)] = 1024
    notes_at_once: Annotated[int, Whole(least=1)] = 16
    bodies_at_once_bytes: Annotated[int, Whole(least=1)] = 1024 * _MEBIBYTE
    understood_bytes: Annotated[int, Whole(least=1)] = 64 * _MEBIBYTE
    understood_messages: Annotated[int, Whole(least=1)] = 50_000
    understood_values: Annotated[int, Whole(least=1)] = 2_000_000
    head_bytes: Annotated[int, Whole(least=1024, most=16 * _MEBIBYTE)] = 65536
    head_seconds: Annotated[float, Number(above=0, most=_AN_HOUR)] = 60.0
    body_silence_seconds: Annotated[float, Number(above=0, most=_AN_HOUR)] = 60.0
