"""Writes the first version of a mirror file from what the source announces of its tables, or compares one with that."""

SAMPLE = 100_000
"""By default, about this many messages are read."""
