"""Writes a new mirror file from what the source announces of its tables, or compares a mirror file with the source."""

SAMPLE = 100_000
"""By default, about this many messages are read."""
