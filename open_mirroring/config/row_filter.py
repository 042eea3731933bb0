"""Parses the setting `where` of a table: the condition for mirroring a row (G-193).

The condition is a small part of SQL that every source and every database evaluate alike: comparisons of a column with a
literal, IN, IS NULL, AND, OR, NOT. As in SQL, a comparison with NULL is neither true nor false.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import NamedTuple

from open_mirroring.config import names

Literal = str | int | Decimal | bool

COMPARISONS = ("=", "<>", "<=", ">=", "<", ">")
_TOKEN = re.compile(
    r"""\s*(?: (?P<text>'(?:[^']|'')*')
        | (?P<number>-?\d+(?:\.\d+)?)(?![\w.])
        | (?P<quoted>"(?:[^"]|"")+" | \[(?:[^\]]|\]\])+\])
        | (?P<word>[^\W\d][\w$\#@]*)
        | (?P<sign><>|!=|<=|>=|[=<>(),]) )""",
    re.VERBOSE,
)
_WORDS = ("AND", "OR", "NOT", "IN", "IS", "NULL", "TRUE", "FALSE")
_ALLOWED = "write comparisons of a column with a literal, IN (…), IS NULL, AND, OR, NOT, such as country = 'DE'"


class Condition(NamedTuple):
    """A condition, or one part of a condition: *operator* is AND, OR, NOT, IN, NULL or one of :data:`COMPARISONS`.

    A condition with the operator AND, OR or NOT has *parts*. A condition with another operator has a *column*, and,
    except for NULL, *values*.
    """

    operator: str
    parts: tuple[Condition, ...] = ()
    column: str = ""
    values: tuple[Literal, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the condition names, in the order of the condition's text."""
        found = [self.column] if self.column else [name for part in self.parts for name in part.columns]
        return tuple(dict.fromkeys(found))

    def __str__(self) -> str:
        """The condition in one spelling, whatever blanks and letters the mirror file has."""
        if self.operator == "NOT":
            return f"NOT {self.parts[0]}"
        if self.parts:
            return f"({f' {self.operator} '.join(map(str, self.parts))})"
        column = '"' + self.column.replace('"', '""') + '"'
        if self.operator == "NULL":
            return f"{column} IS NULL"
        values = ", ".join(map(_spelled, self.values))
        return f"{column} {self.operator} {f'({values})' if self.operator == 'IN' else values}"


def _spelled(value: Literal) -> str:
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value).upper()


def parse_condition(text: str) -> Condition:
    """Parse the text of a condition.

    Raises ``CONFIG_INVALID`` for SQL that a condition cannot contain, such as functions or subqueries.
    """
    parser = _Parser(text)
    try:
        found = parser.either()
        if parser.next is not None:
            raise ValueError(f"it does not end before {parser.next[1]!r}")
    except (ValueError, RecursionError) as error:
        raise names.unfit(f"`where` cannot be read: {error}", _ALLOWED) from None
    return found


class _Parser:
    """Reads a condition from left to right, one token at a time; what does not fit is a ValueError."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text.rstrip(), 0
        self.next: tuple[str, str] | None = None
        """Kind and text of the next token; the kind of a reserved word is that word. None: there is no more."""
        self._step()

    def _step(self) -> None:
        if self._at == len(self._text):
            self.next = None
            return
        found = _TOKEN.match(self._text, self._at)
        if found is None or found.lastgroup is None:
            raise ValueError(f"{self._text[self._at :].lstrip()[:20]!r} means nothing here")
        kind, text, self._at = found.lastgroup, found[found.lastgroup], found.end()
        is_reserved = kind == "word" and text.upper() in _WORDS
        self.next = (text.upper() if is_reserved else text if kind == "sign" else kind), text

    def _take(self, *kinds: str) -> str | None:
        """The next token's text if it is of one of these kinds, which is then read; else None."""
        if self.next is None or self.next[0] not in kinds:
            return None
        text = self.next[1]
        self._step()
        return text

    def _need(self, what: str, *kinds: str) -> str:
        after = "at its end" if self.next is None else f"before {self.next[1]!r}"
        if (text := self._take(*kinds)) is None:
            raise ValueError(f"{what} is missing {after}")
        return text

    def either(self) -> Condition:
        return self._joined("OR", lambda: self._joined("AND", self._negated))

    def _joined(self, operator: str, part: Callable[[], Condition]) -> Condition:
        parts = [part()]
        while self._take(operator):
            parts.append(part())
        return Condition(operator, tuple(parts)) if len(parts) > 1 else parts[0]

    def _negated(self) -> Condition:
        if self._take("NOT"):
            return Condition("NOT", (self._negated(),))
        if self._take("("):
            found = self.either()
            self._need("a closing parenthesis", ")")
            return found
        return self._comparison()

    def _comparison(self) -> Condition:
        column = _name(self._need("a column", "word", "quoted"))
        if self._take("IS"):
            is_not = self._take("NOT")
            self._need("NULL", "NULL")
            found = Condition("NULL", (), column)
            return Condition("NOT", (found,)) if is_not else found
        is_not = self._take("NOT")
        if is_not or (self.next is not None and self.next[0] == "IN"):
            self._need("IN", "IN")
            self._need("an opening parenthesis", "(")
            values = [self._literal()]
            while self._take(","):
                values.append(self._literal())
            self._need("a closing parenthesis", ")")
            found = Condition("IN", (), column, tuple(values))
            return Condition("NOT", (found,)) if is_not else found
        operator = self._need("a comparison", *COMPARISONS, "!=").replace("!=", "<>")
        return Condition(operator, (), column, (self._literal(),))

    def _literal(self) -> Literal:
        if self.next is not None and self.next[0] == "NULL":
            raise ValueError("nothing is equal to NULL: write IS NULL, or IS NOT NULL")
        kind = "" if self.next is None else self.next[0]
        text = self._need("a literal", "text", "number", "TRUE", "FALSE")
        if kind == "text":
            return text[1:-1].replace("''", "'")
        if kind == "number":
            return Decimal(text) if "." in text else int(text)
        return kind == "TRUE"


def _name(text: str) -> str:
    """A column's name without its quotes."""
    if text.startswith('"'):
        return text[1:-1].replace('""', '"')
    return text[1:-1].replace("]]", "]") if text.startswith("[") else text
