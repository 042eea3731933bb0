"""Tables that live: rows come, change and go while their columns are added, dropped, widened, renamed and come back.

A story is its own reference: it knows the rows of the source after every step, as the source's own `ALTER TABLE` leaves
them. :mod:`tests.e2e.test_drift` tells it in every format and asks whether the mirror ends equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from random import Random
from typing import Any, NamedTuple

WIDER: Mapping[str, tuple[str, ...]] = {
    "smallint": ("int", "bigint"),
    "int": ("bigint",),
    "decimal(10,2)": ("decimal(12,2)", "decimal(14,4)"),
    "decimal(12,2)": ("decimal(14,4)",),
    "varchar(20)": ("varchar(50)",),
    "varchar(50)": ("varchar(200)",),
    "real": ("float",),
    "datetime2(3)": ("datetime2(6)",),
}
"""The types that each type is widened to: none of these changes touches a value."""
NARROWER: Mapping[str, str] = {"bigint": "int", "int": "smallint", "decimal(12,2)": "decimal(10,2)"}
"""The types to which the source lets a column be narrowed, as the stories' values fit."""
FIRST = ("smallint", "int", "decimal(10,2)", "varchar(20)", "real", "datetime2(3)")
SILENT = ("add", "drop", "widen", "narrow", "back", "case", "rename", "reorder", "nothing", "swap")
"""What `ALTER TABLE` does; no change of a row tells of it."""
TOLD = ("empty", "filled")
"""What goes with changes of rows: all are deleted, then comes another table or type; or a column that is filled."""
KINDS = (*SILENT, *TOLD)


class Change(NamedTuple):
    """One change of a row: *operation* is INS, UPD or DEL; *columns* are those of the table at that moment."""

    operation: str
    at: int
    columns: Mapping[str, str]
    row: Mapping[str, str | None]
    old: Mapping[str, str | None] | None
    version: int


@dataclass
class Story:
    """One table. *renames* says whether its source can rename a column while its changes are read."""

    name: str
    random: Random
    renames: bool
    columns: dict[str, str] = field(default_factory=lambda: {"id": "int", "name": "varchar(20)", "amount": "int"})
    rows: dict[int, dict[str, str | None]] = field(default_factory=dict)
    renamed: dict[str, str] = field(default_factory=dict)
    """What to answer: columns that were renamed, by their old name."""
    done: list[str] = field(default_factory=list)
    version: int = 1
    _gone: list[str] = field(default_factory=list)
    _place: int = 0
    _ids: int = 0
    _names: int = 0

    def changes(self, count: int) -> list[Change]:
        """Some changes by the columns of now; the first is an insert, which proves what a whole row is."""
        return [self._change("INS" if number == 0 else self._operation()) for number in range(count)]

    def alter(self, kind: str) -> list[Change]:
        """Change the structure, if a column can be changed so; the changes of rows that tell of it, mostly none."""
        story = self._emptied() if kind == "empty" else []
        data = [name for name in self.columns if name != "id"]
        before = dict(self.columns)
        match kind:
            case "add":
                self._names += 1
                self._add(f"c{self._names}", self.random.choice(FIRST))
            case "drop" if len(data) > 1:
                self._drop(self.random.choice(data))
            case "swap" if len(data) > 1:  # a drop and an addition in one step
                dropped = self.random.choice(data)
                kind_of = self.columns[dropped]
                self._drop(dropped)
                self._names += 1
                self._add(f"c{self._names}", kind_of)
            case "back" if self._gone:
                self._add(self._gone.pop(), self.random.choice(FIRST))
            case "widen" | "narrow":
                self._convert(kind)
            case "rename" if self.renames:
                old = self.random.choice(data)
                self._names += 1
                self._rename(old, f"r{self._names}")
                self.renamed[old] = f"r{self._names}"
            case "case":
                old = self.random.choice(data)
                self._rename(old, old.swapcase())
            case "reorder":
                self.columns = {"id": "int", **{name: self.columns[name] for name in reversed(data)}}
            case "filled":
                self._names += 1
                self._add(f"c{self._names}", self.random.choice(FIRST))
        if before != self.columns or list(before) != list(self.columns):
            self.version += 1
            self.done.append(f"{kind} at {self._place}: {', '.join(f'{n} {t}' for n, t in self.columns.items())}")
        return [*story, *(self._update(id_) for id_ in list(self.rows))] if kind == "filled" else story

    def truth(self) -> dict[int, dict[str, Any]]:
        """The rows of the source, by key, each value as anybody may compare it."""
        return {
            id_: {name: comparable(kind, row[name]) for name, kind in self.columns.items()}
            for id_, row in self.rows.items()
        }

    def _operation(self) -> str:
        return self.random.choices(["INS", "UPD", "DEL"], [4, 4, 1])[0] if self.rows else "INS"

    def _change(self, operation: str) -> Change:
        if operation == "INS":
            self._ids += 1
            row = {name: self._value(kind) for name, kind in self.columns.items()} | {"id": str(self._ids)}
            self.rows[self._ids] = row
            return self._told("INS", row, None)
        id_ = self.random.choice(list(self.rows))
        return self._delete(id_) if operation == "DEL" else self._update(id_)

    def _emptied(self) -> list[Change]:
        """Every row deleted, one by one."""
        return [self._delete(id_) for id_ in list(self.rows)]

    def _update(self, id_: int) -> Change:
        old = self.rows[id_]
        row = {name: self._value(kind) for name, kind in self.columns.items()} | {"id": str(id_)}
        self.rows[id_] = row
        return self._told("UPD", row, old)

    def _delete(self, id_: int) -> Change:
        return self._told("DEL", {}, self.rows.pop(id_))

    def _told(self, operation: str, row: Mapping[str, str | None], old: Mapping[str, str | None] | None) -> Change:
        self._place += 1
        return Change(operation, self._place, dict(self.columns), dict(row), old and dict(old), self.version)

    def _value(self, kind: str) -> str | None:
        if self.random.random() < 0.1:
            return None
        number = self.random.randrange(30_000)
        if kind.startswith("varchar"):
            return f"text {number}"
        if kind.startswith("decimal"):
            return f"{number}.{number % 100:02d}" + ("00" if kind == "decimal(14,4)" else "")
        if kind.startswith("datetime2"):
            return f"2026-01-02 03:04:05.{number % 1000:03d}"
        return f"{number}.5" if kind in ("real", "float") else str(number)

    def _add(self, name: str, kind: str) -> None:
        if name.casefold() not in {known.casefold() for known in self.columns}:
            self.columns[name] = kind
            for row in self.rows.values():
                row[name] = None

    def _drop(self, name: str) -> None:
        del self.columns[name]
        self._gone.append(name)
        for row in self.rows.values():
            del row[name]

    def _rename(self, old: str, new: str) -> None:
        self.columns = {new if name == old else name: kind for name, kind in self.columns.items()}
        for id_, row in self.rows.items():
            self.rows[id_] = {new if name == old else name: value for name, value in row.items()}

    def _convert(self, kind: str) -> None:
        other = WIDER if kind == "widen" else {old: (new,) for old, new in NARROWER.items()}
        fitting = [name for name, of in self.columns.items() if name != "id" and of in other]
        if fitting:
            name = self.random.choice(fitting)
            self.columns[name] = self.random.choice(other[self.columns[name]])


def comparable(kind: str, text: str | None) -> Any:
    """A source value as a target's is compared with it."""
    if text is None or kind.startswith("varchar"):
        return text
    return text.ljust(26, "0") if kind.startswith("datetime2") else Decimal(text).normalize()


def landed(value: Any) -> Any:
    """A target's value as a source's is compared with it."""
    if value is None or isinstance(value, str):
        return value
    if hasattr(value, "strftime"):
        return value.strftime("%Y-%m-%d %H:%M:%S.%f")
    return Decimal(str(value)).normalize()
