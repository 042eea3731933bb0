"""The page of commands, ``docs/reference/commands.md``, from the parser: ``make commands``."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from spark_jobs.cli.command_line import _parser

_HEAD = """\
# Commands

Written by `make commands` from the code. Every command takes `--help`. What each exit code means is in
[Operate it](../operate.md).
"""


def command_book() -> str:
    """The page as Markdown."""
    commands = next(one for one in _parser()._actions if isinstance(one, argparse._SubParsersAction))
    parts = [part for name, parser in commands.choices.items() for part in _section(name, parser)]
    return "\n".join([_HEAD, *parts])


def _section(name: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    yield f"## open-mirroring {name}\n\n{parser.description}\n"
    rows = [_row(one) for one in parser._actions if one.help != argparse.SUPPRESS and one.dest != "help"]
    yield "\n".join(["| Argument | Says |", "|---|---|", *rows, ""])


def _row(action: argparse.Action) -> str:
    metavar = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    value = "" if action.nargs == 0 else metavar
    if action.choices is not None:
        value = "{" + ",".join(map(str, action.choices)) + "}"
    names = " ".join([", ".join(action.option_strings), value]).strip().replace("|", "\\|")
    needed = " (required)" if action.option_strings and action.required else ""
    text = (action.help or "") % {"default": action.default, "prog": "open-mirroring"}
    return f"| `{names}`{needed} | {text} |".replace("|  |", "| |")


if __name__ == "__main__":
    print(command_book(), end="")
