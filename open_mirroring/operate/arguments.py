"""Arguments of operations: one declaration becomes an option of a command and a field of a form.

Nothing slow is imported here, so that help is quick and Airflow parses its DAGs quickly.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple


class Argument(NamedTuple):
    """What an operation has to know.

    *name*, *help* and *options* are for the command line, *field*, *title* and *says* for forms; where one has it not,
    *name* or *title* is empty. *schema* is JSON Schema of the field's text. Exactly one that *is_either* is given.
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
        """Whether nothing begins without it."""
        return bool(self.options.get("required"))

    @property
    def is_flag(self) -> bool:
        """Whether it is set or not, and has no value."""
        return self.options.get("action") == "store_true"

    @property
    def is_number(self) -> bool:
        """Whether its value is a whole number from 1 on."""
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
    """Declare an argument; *options* are those of :mod:`argparse`. By default forms say what the help says."""
    said = says or f"{about[:1].upper()}{about[1:]}."
    return Argument(
        name, about, options, field or name.lstrip("-").replace("-", "_"), title, said, schema or {}, is_either
    )


def flag(name: str, about: str, **more: Any) -> Argument:
    """Declare an argument without a value."""
    return argument(name, about, action="store_true", **more)


def required(one: Argument) -> Argument:
    """The same argument, where nothing begins without it."""
    return one._replace(options={**one.options, "required": True})


def add_arguments(parser: argparse.ArgumentParser, arguments: Iterable[Argument]) -> None:
    """Let a command take these arguments."""
    either = None
    for one in filter(lambda one: one.name, arguments):
        if one.is_either and either is None:
            either = parser.add_mutually_exclusive_group(required=True)
        taking = either if one.is_either and either is not None else parser
        taking.add_argument(one.name, help=one.help, **one.options)


def command_words(arguments: Iterable[Argument], values: Mapping[str, Any]) -> list[str]:
    """The words of a command line that give these *values*, by the names of fields; empty values are left out."""
    given = ((one, str(values.get(one.field) or "")) for one in arguments if one.name)
    return [one.name if one.is_flag else f"{one.name}={value}" for one, value in given if value.strip()]


def positive(text: str) -> int:
    """A whole number from 1 on."""
    if not (text.isascii() and text.isdigit() and int(text)):
        place = "; write the mirror file before this option" if text.casefold().endswith((".yaml", ".yml")) else ""
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on{place}")
    return int(text)


def stated(text: str) -> str:
    """A text that is not empty."""
    if not text.strip():
        raise argparse.ArgumentTypeError("it is empty: write what the next person on duty needs to know")
    return text.strip()


def seconds(text: str) -> float:
    """The seconds of ``90``, ``90s``, ``5m`` or ``1h``."""
    match = re.fullmatch(r"([0-9]{1,6})([smh]?)", text)
    length = int(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]] if match else 0
    if not length:
        raise argparse.ArgumentTypeError(f"{text!r} is not a length of time: write 60s, 5m or 1h")
    return float(length)
