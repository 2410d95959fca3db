"""
What can become of what is made ahead of need: label values.
"""

from enum import StrEnum


class Fate(StrEnum):
    """
    What became of notes that were begun ahead of need.

    `ABORTED` and `UNUSED` are wasted: a request came first that fitted without them, or none
    came that needed them.
    """

    USED = "used"
    ABORTED = "aborted"
    UNUSED = "unused"
    FAILED = "failed"


class Prewarmed(StrEnum):
    """What became of a prewarm; `ABORTED` where a request came before it was done."""

    DONE = "done"
    ABORTED = "aborted"
    FAILED = "failed"
