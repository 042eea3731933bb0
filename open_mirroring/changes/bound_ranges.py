"""Names the ranges that do not come from the source's stream: chunks of initial loads, and corrections.

A batch binds its ranges by name. The name alone says what kind of range it is, so no range is mistaken for another
kind.
"""

from __future__ import annotations

from typing import NamedTuple

_LOAD = "(initial load) "
_CORRECTION = "(correction) "


class LoadChunk(NamedTuple):
    """A chunk of a load that goes through the change log: a range that batches bind, of one generation of its table."""

    source: str
    generation: int
    number: int

    @property
    def name(self) -> str:
        """The name of the range."""
        return f"{_LOAD}{self.source}/{self.generation}/{self.number}"

    @classmethod
    def of(cls, name: str) -> LoadChunk | None:
        """The chunk that a bound range is; None for a range of the source."""
        if not name.startswith(_LOAD):
            return None
        source, generation, number = name.removeprefix(_LOAD).rsplit("/", 2)
        return cls(source, int(generation), int(number))


class CorrectionRange(NamedTuple):
    """What a batch binds for a correction: the keys that a recorded proof named, of one generation of a table."""

    source: str
    generation: int
    proof: str

    @property
    def name(self) -> str:
        """The name of the range."""
        return f"{_CORRECTION}{self.source}/{self.generation}/{self.proof}"

    @classmethod
    def of(cls, name: str) -> CorrectionRange | None:
        """The correction that a bound range is; None for any other."""
        if not name.startswith(_CORRECTION):
            return None
        source, generation, proof = name.removeprefix(_CORRECTION).rsplit("/", 2)
        return cls(source, int(generation), proof)


def is_of_source(name: str) -> bool:
    """Whether a bound range is one of the source; else it is a chunk of a load, or a correction."""
    return LoadChunk.of(name) is None and CorrectionRange.of(name) is None
