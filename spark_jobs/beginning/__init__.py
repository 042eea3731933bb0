"""Begins a mirror file from what a source announces of its tables, and compares a file with that."""

SAMPLE = 100_000
"""About so many messages are looked at, unless somebody says otherwise."""
