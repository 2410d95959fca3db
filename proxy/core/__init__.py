"""Arithmetic over conversations: no clock, randomness, logging, environment or sockets."""
