"""One file per wire format: parse, render, usage and errors."""
