"""A local OpenAI-compatible proxy that compacts an agent's conversation transparently."""

__version__ = "0.1.0"
