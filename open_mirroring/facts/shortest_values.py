"""The shortest values of columns in the rows of a load: a source that pads values has none that is shorter."""

from __future__ import annotations

from open_mirroring.facts.kind import Kind

SHORTEST_VALUES = Kind[int]("shortest", int, min)
"""Bytes of the shortest value, by column."""
