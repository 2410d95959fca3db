"""Reported failures that cannot happen here, and why in one line each: at most a tenth of all."""

NOT_OURS: dict[str, str] = {}
