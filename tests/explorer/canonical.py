"""Keeping states small and comparable: values become numbers, old versions become one version."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any, Generic, TypeVar

CURRENT = 1
STALE = 0
"""All that a compare-and-set can tell of a version: it is the newest, or it is not."""

T = TypeVar("T", bound=Hashable)


class Interned(Generic[T]):
    """Numbers for values: equal values have one number, so that states hash and sort as numbers."""

    def __init__(self) -> None:
        self._numbers: dict[T, int] = {}
        self.values: list[T] = []

    def __getitem__(self, number: int) -> T:
        return self.values[number]

    def number(self, value: T) -> int:
        """The number of a value."""
        known = self._numbers.get(value)
        if known is None:
            known = self._numbers[value] = len(self.values)
            self.values.append(value)
        return known


def rewritten(value: Any, rewrite: Callable[[str, Any], Any]) -> Any:
    """A copy of nested dataclasses and tuples in which *rewrite* (field name, value) replaced every plain field."""
    if is_dataclass(value) and not isinstance(value, type):
        changed = {
            f.name: rewritten(old, rewrite) if _nests(old := getattr(value, f.name)) else rewrite(f.name, old)
            for f in fields(value)
        }
        return type(value)(**changed)
    if isinstance(value, tuple):
        return tuple(rewritten(item, rewrite) for item in value)
    return value


def parts(value: Any, kind: type[T]) -> Iterator[T]:
    """Every value of a kind inside nested dataclasses and tuples."""
    if isinstance(value, kind):
        yield value
    elif is_dataclass(value) and not isinstance(value, type):
        for f in fields(value):
            yield from parts(getattr(value, f.name), kind)
    elif isinstance(value, tuple):
        for item in value:
            yield from parts(item, kind)


def aged(value: Any, name: str) -> Any:
    """The value as it is when somebody else has moved the version called *name* on."""
    return rewritten(value, lambda field, old: STALE if field == name else old)


def _nests(value: Any) -> bool:
    return isinstance(value, tuple) or (is_dataclass(value) and not isinstance(value, type))
