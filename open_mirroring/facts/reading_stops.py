"""Findings that end the reading of a table: a code and what was found."""

from __future__ import annotations

from open_mirroring.facts.kind import Kind

Stop = tuple[str, str]
"""A code, and what was found."""

READING_STOPS = Kind[Stop]("stops", Stop, min)
"""Of a table."""
