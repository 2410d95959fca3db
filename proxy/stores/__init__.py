"""Where rewrites are kept: in memory or in one SQLite file, behind a guard that never fails."""
