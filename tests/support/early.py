"""
When the sessions of most tests are compacted: early, whatever it costs.

They are sized for that, since when is not what they ask. `benchmarks.economy` and the tests of
`plan` ask it.
"""

from typing import Any

# Members of `[context]`.
EARLY: dict[str, Any] = {"compact_at": 0.6, "compact_worth": 0.0}
