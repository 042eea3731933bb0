"""The command line ``open-mirroring``: the steps that Airflow also runs, and commands for operators.

Progress goes to standard error, the result to standard output. An expected error is printed as a message without a
traceback.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from open_mirroring.operate.arguments import add_arguments, argument, flag, positive, seconds
from open_mirroring.operate.operations import EXPORT, EXPORT_FORMAT, FILE, JSON, OPERATIONS, Operation
from spark_jobs.beginning import SAMPLE
from spark_jobs.runtime.collector import spare_the_collector

if TYPE_CHECKING:
    from open_mirroring.errors import MirroringError

INTERRUPTED = 130
"""The exit code after Ctrl-C, as in shells: 128 + SIGINT."""
_PROGRAM = "open-mirroring"
_ABOUT = """\
Carries change data into a Microsoft Fabric open mirrored database: exactly once, in order, provably complete.
FILE is a mirror file (mirrors/NAME.yaml). Secrets come from the environment, as AIRFLOW_CONN_<NAME>."""
_MORE = """\
a first run:
  open-mirroring init mirrors/shop.yaml --source 'format: sqlserver-ces, transport: files, path: data'
  open-mirroring check mirrors/shop.yaml
  open-mirroring initial-load mirrors/shop.yaml
  open-mirroring tick mirrors/shop.yaml
  open-mirroring status mirrors/shop.yaml

exit codes:
  0  done                          3  some tables are stopped, the others are done
  1  terminal error: read it       4  transient error: try again
  2  usage or mirror file wrong    5  on hold: the target lags, or something is awaited
  6  done, with losses: dead letters are open, or changes of a mirrored table were ignored
  7  prove: a table is not equal   130  interrupted: the next run goes on from there

Every run may be killed or repeated at any moment; the ledger decides what is next. The runbook (docs/runbook.md)
has a section for each code that stops or holds a table."""
_OURS = ("open_mirroring", "spark_jobs")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns a value of :class:`~open_mirroring.operate.exit_codes.Exit`, or 130 after Ctrl-C."""
    spare_the_collector()
    parser = _parser()
    if "_ARGCOMPLETE" in os.environ:
        # A shell asks how a line may go on; it is answered, and nothing else is done.
        import argcomplete

        argcomplete.autocomplete(parser)
    arguments = parser.parse_args(argv)
    every: float | None = getattr(arguments, "every", None)
    try:
        with _progress():
            return _run(arguments) if every is None else _again_and_again(arguments, every)
    except KeyboardInterrupt:
        return _failed("interrupted; the next run goes on from here", INTERRUPTED)
    except BrokenPipeError:
        # The reader of our output has ended; Python must not try to flush the rest.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _again_and_again(arguments: argparse.Namespace, every: float) -> NoReturn:
    """Repeat a command every *every* seconds until interrupted. After an error, the next round tries again."""
    watching = arguments.command == "status" and sys.stdout.isatty()
    while True:
        begun = time.monotonic()
        if watching:
            print("\x1b[2J\x1b[H", end="")
        _run(arguments)
        sys.stdout.flush()
        time.sleep(max(0.0, begun + every - time.monotonic()))


def _run(arguments: argparse.Namespace) -> int:
    # Imported when all else is said, so that help is quick and Ctrl-C is answered from the first moment on.
    from open_mirroring.config import ConfigError
    from open_mirroring.errors import MirroringError
    from open_mirroring.operate.exit_codes import Exit, exit_of

    module, _, function = (arguments.operation.run or "working:done_by_job").partition(":")
    try:
        return int(getattr(importlib.import_module(f"spark_jobs.cli.{module}"), function)(arguments))
    except Exception as error:
        ours = error if isinstance(error, MirroringError) else _ours(error)
        if arguments.debug or ours is None:
            raise
        if isinstance(error, ConfigError):
            mistakes = f"{len(error.problems)} {'mistake' if len(error.problems) == 1 else 'mistakes'}"
            return _failed("\n".join([mistakes, *map(str, error.problems)]), Exit.USAGE)
        return _failed(str(ours), exit_of(ours))
    finally:
        if ledger := sys.modules.get("open_mirroring.ledger"):
            ledger.close_ledgers()


def _ours(error: Exception) -> MirroringError | None:
    # A command that needs no Spark reports its errors where no Spark is installed, too.
    if sys.modules.get("pyspark") is None:
        from open_mirroring.ledger.opening import system_error

        return system_error(error)
    from spark_jobs.runtime.job import as_ours

    return as_ours(error)


def _failed(text: str, code: int) -> int:
    print(f"{_PROGRAM}: {text}", file=sys.stderr)
    return code


class _Version(argparse.Action):
    """Prints the version. It is looked up only on request, because that takes a while."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        print(f"{_PROGRAM} {version(_PROGRAM)}")
        parser.exit()


_MIRRORS = argument("mirrors", "mirror files or folders of them", nargs="*", type=Path)
_DATABASE = argument(
    "--database", "the source database: keys and types from its catalog, first rows over JDBC", metavar="CONNECTION"
)
_EXAMINING = (
    Operation(
        "check",
        "report every mistake in a mirror file (or a folder of them)",
        (
            FILE,
            argument(
                "--sample",
                f"compare it with what the source sends, too: about N messages are looked at (default {SAMPLE})",
                type=positive,
                nargs="?",
                const=SAMPLE,
                metavar="N",
            ),
            argument("--database", "and with the catalog of the source database", metavar="CONNECTION"),
        ),
        run="checking:check",
    ),
    Operation(
        "init",
        "write the tables that a source announces into a mirror file: keys, warnings, initial loads",
        (
            FILE,
            argument(
                "--source",
                "the source of a FILE that is not there yet: 'format: sqlserver-ces, transport: files, path: FOLDER'",
                metavar="SETTINGS",
            ),
            flag("--add", "add the tables that FILE does not have yet"),
            argument(
                "--only",
                "only tables whose schema.table matches this, * standing for anything; may be given several times",
                action="append",
                default=[],
                metavar="PATTERN",
            ),
            argument("--exclude", "none that match this", action="append", default=[], metavar="PATTERN"),
            flag("--print", "print the mirror file, and write nothing"),
            argument(
                "--sample", "look at about N messages (default %(default)s)", type=positive, default=SAMPLE, metavar="N"
            ),
            _DATABASE,
            flag("--unseen", "mirror tables, too, that the catalog has and the sample does not show"),
            EXPORT._replace(help="first rows from an export: a file or folder per table, by its name"),
            EXPORT_FORMAT,
            argument(
                "--stream-from",
                "where the stream goes on behind the export: the last commit LSN before it began, or the file that "
                "contains it (default: beginning)",
                default="beginning",
                metavar="LSN|FILE",
            ),
        ),
        run="beginning:init",
    ),
    Operation(
        "doctor",
        "examine Java, Spark, versions, clock, connections and rights; shows the next step for whatever is wrong",
        (_MIRRORS, JSON),
        run="examining:doctor",
    ),
    Operation(
        "status",
        "whether all is mirrored, how far every table is, what stops it, the next step",
        (
            FILE,
            JSON,
            flag("--wide", "also the four marks of every table, its waiting batches and the age of its backlog"),
            argument(
                "--watch", "again every TIME (5s)", dest="every", nargs="?", const="5s", type=seconds, metavar="TIME"
            ),
        ),
        run="looking:status",
    ),
    Operation(
        "dead-letters",
        "list what could not be read or typed",
        (
            FILE,
            JSON,
            argument("--limit", "the newest N (default 50)", type=positive, default=50, metavar="N"),
            argument("--raw", "write their contents into a new file, yours alone", type=Path, metavar="NEWFILE"),
            flag("--all", "those that were replayed, read again or accepted, too"),
        ),
        run="looking:list_dead_letters",
    ),
)
"""Commands that examine a mirror, its source and its surroundings. Of them only ``init`` writes a file."""
_SERVING = (
    Operation(
        "ui",
        "serve the page that shows all mirrors, and takes decisions, to a browser",
        (
            _MIRRORS._replace(help="mirror files or folders (default: mirrors)"),
            argument("--host", "address to listen on; any but loopback needs a token", default="127.0.0.1"),
            argument("--port", "port to listen on (default 8090)", type=positive, default=8090, metavar="N"),
        ),
        run="serving:ui",
    ),
    Operation(
        "jars",
        "fetch the pinned jars, which only reading over JDBC needs, and check their sums",
        (argument("folder", "where to (default: where they are looked for)", nargs="?", type=Path),),
        run="jars:jars",
    ),
    Operation("schema", "print the JSON Schema of mirror files", (), run="looking:schema"),
)
_DEBUG = flag("--debug", "show the entire trace of an error")


@cache
def _parser() -> argparse.ArgumentParser:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(_PROGRAM, description=_ABOUT, epilog=_MORE, formatter_class=raw)
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and end")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for one in (*_EXAMINING, *OPERATIONS, *_SERVING):
        command = commands.add_parser(one.name, help=one.about, description=f"{one.about[:1].upper()}{one.about[1:]}.")
        command.set_defaults(operation=one)
        add_arguments(command, (_DEBUG, *one.arguments))
    return parser


def _is_for_people(record: logging.LogRecord) -> bool:
    # py4j logs the trace of every interrupted call, as anybody's; what fails there is raised as well.
    if "py4j" in Path(record.pathname).parts:
        return False
    return record.levelno >= logging.WARNING or record.name.startswith(_OURS)


@contextmanager
def _progress() -> Iterator[None]:
    """Print our progress, and warnings of all libraries, as plain lines on standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s", "%H:%M:%S"))
    handler.addFilter(_is_for_people)
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(level)


if __name__ == "__main__":
    sys.exit(main())
