"""Declares the arguments of operations once, for both the command line and the forms of Airflow and the page.

No slow library is imported here, so that `--help` answers at once and Airflow parses its DAGs fast.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple


class Argument(NamedTuple):
    """One argument of an operation, for example ``--table``.

    On the command line, *name*, *help* and *options* (the options of :mod:`argparse`) describe the argument. In forms,
    *field*, *title* and *says* describe it. An argument with an empty *name* is not on the command line; an argument
    with an empty *title* is not in forms. *schema* is the JSON Schema of the field's content. Of all arguments with
    *is_either*, exactly one must be given.
    """

    name: str
    help: str
    options: Mapping[str, Any]
    field: str
    title: str
    says: str
    schema: Mapping[str, Any]
    is_either: bool

    @property
    def is_required(self) -> bool:
        """Whether the operation refuses to start without this argument."""
        return bool(self.options.get("required"))

    @property
    def is_flag(self) -> bool:
        """Whether the argument is a switch without a value."""
        return self.options.get("action") == "store_true"

    @property
    def is_number(self) -> bool:
        """Whether the argument's value is a whole number from 1 on."""
        return self.options.get("type") is positive


def argument(
    name: str,
    about: str,
    *,
    field: str = "",
    title: str = "",
    says: str = "",
    schema: Mapping[str, Any] | None = None,
    is_either: bool = False,
    **options: Any,
) -> Argument:
    """Declare an argument; *about* is the help text, *options* are options of :mod:`argparse`."""
    said = says or f"{about[:1].upper()}{about[1:]}."
    return Argument(
        name, about, options, field or name.lstrip("-").replace("-", "_"), title, said, schema or {}, is_either
    )


def flag(name: str, about: str, **more: Any) -> Argument:
    """Declare a switch without a value."""
    return argument(name, about, action="store_true", **more)


def required(one: Argument) -> Argument:
    """Return a copy of an argument that the operation requires."""
    return one._replace(options={**one.options, "required": True})


def add_arguments(parser: argparse.ArgumentParser, arguments: Iterable[Argument]) -> None:
    """Add arguments to the parser of a command. Arguments without a name are only for forms and are left out."""
    either = None
    for one in filter(lambda one: one.name, arguments):
        if one.is_either and either is None:
            either = parser.add_mutually_exclusive_group(required=True)
        taking = either if one.is_either and either is not None else parser
        taking.add_argument(one.name, help=one.help, **one.options)


def command_words(arguments: Iterable[Argument], values: Mapping[str, Any]) -> list[str]:
    """Return the command line words for *values*, which are given by field name; empty values are left out."""
    given = ((one, str(values.get(one.field) or "")) for one in arguments if one.name)
    return [one.name if one.is_flag else f"{one.name}={value}" for one, value in given if value.strip()]


def positive(text: str) -> int:
    """Parse a whole number from 1 on.

    Raises ArgumentTypeError for any other string; argparse prints it as a usage error.
    """
    if not (text.isascii() and text.isdigit() and int(text)):
        place = "; write the mirror file before this option" if text.casefold().endswith((".yaml", ".yml")) else ""
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on{place}")
    return int(text)


def stated(text: str) -> str:
    """Return *text* without blanks around it. Raises ArgumentTypeError if nothing remains."""
    if not text.strip():
        raise argparse.ArgumentTypeError("it is empty: write what the next person on duty needs to know")
    return text.strip()


def seconds(text: str) -> float:
    """Parse a duration such as ``90``, ``90s``, ``5m`` or ``1h`` into seconds.

    Raises ArgumentTypeError for any other string.
    """
    match = re.fullmatch(r"([0-9]{1,6})([smh]?)", text)
    length = int(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]] if match else 0
    if not length:
        raise argparse.ArgumentTypeError(f"{text!r} is not a length of time: write 60s, 5m or 1h")
    return float(length)
