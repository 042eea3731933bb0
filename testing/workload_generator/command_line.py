"""The command line: ``python -m workload_generator init|export|load|run|report``. Answers are JSON on standard output.

Exit codes: 0 done, 2 refused (the message says why, nothing was changed).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from workload_generator.ces_shipping import CaptureShipping
from workload_generator.exporting import export, export_full_load
from workload_generator.qlik_file_shipping import ChangeFileShipping
from workload_generator.qlik_message_shipping import MessageShipping
from workload_generator.shipping import Shipping, ShippingError
from workload_generator.source import Source, SourceError


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    arguments = _parser().parse_args(argv)
    try:
        answer = _COMMANDS[arguments.command](arguments)
    except (SourceError, ShippingError, ValueError) as error:
        print(f"workload_generator {arguments.command}: {error}", file=sys.stderr)
        return 2
    print(json.dumps(answer, indent=2))
    return 0


def _init(arguments: argparse.Namespace) -> Any:
    return Source.create(arguments.state, arguments.seed, arguments.rows).report()


def _export(arguments: argparse.Namespace) -> Any:
    source = Source(arguments.state)
    if arguments.format == "qlik-full-load":
        return export_full_load(source, arguments.out)
    return export(source, arguments.out, arguments.format)


def _load(arguments: argparse.Namespace) -> Any:
    return Source(arguments.state).load(MessageShipping(arguments.kafka, arguments.topic))


def _run(arguments: argparse.Namespace) -> Any:
    source, shipping = Source(arguments.state), _shipping(arguments)
    return source.run(shipping, transactions=arguments.transactions, hold_back=arguments.hold_back)


def _shipping(arguments: argparse.Namespace) -> Shipping:
    if arguments.capture is not None:
        return CaptureShipping(arguments.capture, arguments.format, arguments.generation)
    if arguments.change_files is not None:
        return ChangeFileShipping(arguments.change_files)
    return MessageShipping(arguments.kafka, arguments.topic)


def _report(arguments: argparse.Namespace) -> Any:
    return Source(arguments.state).report()


_COMMANDS = {"init": _init, "export": _export, "load": _load, "run": _run, "report": _report}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "workload_generator", description="A SQL Server whose changes are streamed or replicated, played."
    )
    commands = parser.add_subparsers(dest="command", required=True)

    def command(name: str, text: str) -> argparse.ArgumentParser:
        one = commands.add_parser(name, help=text, description=text)
        one.add_argument("--state", type=Path, required=True, metavar="FILE", help="the source database (SQLite)")
        return one

    init = command("init", "Make the source database: tables with rows that no event tells of.")
    init.add_argument("--seed", type=int, required=True, help="decides everything")
    init.add_argument("--rows", type=_count, default=200, help="rows per table (default 200)")

    snapshot = command("export", "Write a snapshot of all tables, and from where the stream continues it.")
    snapshot.add_argument("--out", type=Path, required=True, metavar="DIR", help="an empty or new folder")
    snapshot.add_argument("--format", choices=("parquet", "csv", "qlik-full-load"), default="parquet")

    load = command("load", "Send all rows as the beginning of a stream of Qlik messages.")
    load.add_argument("--kafka", required=True, metavar="HOST:PORT", help="the broker")
    load.add_argument("--topic", default="shop", help="a topic with three partitions (default shop)")

    run = command("run", "Commit transactions and ship their changes in one format.")
    way = run.add_mutually_exclusive_group(required=True)
    way.add_argument("--capture", type=Path, metavar="DIR", help="change events, as Event Hubs Capture files")
    way.add_argument("--change-files", type=Path, metavar="DIR", help="Qlik change tables, as files")
    way.add_argument("--kafka", metavar="HOST:PORT", help="Qlik messages, to a broker")
    run.add_argument("--topic", default="shop", help="with --kafka: a topic with three partitions (default shop)")
    run.add_argument("--transactions", type=_count, default=100, help="0 only delivers what was withheld (default 100)")
    run.add_argument("--format", choices=("json", "avro"), default="json", help="of change events (default json)")
    run.add_argument("--generation", choices=("a", "b", "c"), default="c", help="of change events (default c)")
    run.add_argument("--hold-back", action="store_true", help="keep some messages for the next run")

    command("report", "Count rows and events of every table.")
    return parser


def _count(text: str) -> int:
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"{number} is below 0")
    return number
