"""Agents as they are shipped, run through the proxy."""
