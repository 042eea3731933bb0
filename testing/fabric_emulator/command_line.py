"""``fabric-emulator``: the mirroring service on the command line.

Exit codes: 0 done; 1 a table is ``Failed`` (``apply`` without ``--watch``); 2 the call or its folders are wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from fabric_emulator.failures import EmulatorError
from fabric_emulator.service import MirroringService
from fabric_emulator.settings import Settings
from fabric_emulator.web.databases import DATABASE, WORKSPACE
from fabric_emulator.web.emulator_server import EmulatorServer
from open_mirroring.landing_zone.layout import PROCESSED_FOLDERS


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    arguments = _parser().parse_args(argv)
    try:
        settings = Settings(
            processed_folder=arguments.processed_folder,
            processed_at_zone_root=arguments.processed_at_zone_root,
            purge_after_days=arguments.purge_after_days,
            files_per_poll=arguments.files_per_poll,
            fails_without_files_after_days=arguments.fails_without_files_after_days,
        )
        if arguments.command == "serve":
            return _serve(arguments, settings)
        service = MirroringService(arguments.landing_zone, arguments.tables, settings=settings, state=arguments.state)
        if arguments.command == "apply":
            if arguments.advance_clock:
                service.advance_clock(arguments.advance_clock)
            return _watch(service, arguments.interval) if arguments.watch else _apply(service, {})
        if arguments.command != "status":
            {"pause": service.pause, "resume": service.resume, "stop": service.stop, "start": service.start}[
                arguments.command
            ]()
        print(json.dumps({"status": service.database_status(), "data": list(service.status().values())}, indent=1))
    except EmulatorError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def _apply(service: MirroringService, printed: dict[str, str]) -> int:
    """Poll once and print the results; *printed* holds the failures already printed."""
    for done in service.poll():
        print(f"applied {done.table} {done.number} rows={done.rows} version={done.version}", flush=True)
    failures = {
        f"{entry['sourceSchemaName']}/{entry['sourceTableName']}": f"{entry['error']['errorCode']}: "
        f"{entry['error']['message']}"
        for entry in service.status().values()
        if "error" in entry
    }
    for table, failure in failures.items():
        if printed.get(table) != failure:
            print(f"failed {table} {failure}", flush=True)
    printed.clear()
    printed.update(failures)
    return 1 if failures else 0


def _serve(arguments: argparse.Namespace, settings: Settings) -> int:
    if arguments.state is not None:
        raise EmulatorError(
            "SETTING_INVALID", "serve has no --state.", next_step="leave it out: it is kept with TABLES"
        )
    try:
        server = EmulatorServer(
            arguments.landing_zone,
            arguments.tables,
            host=arguments.host,
            port=arguments.port,
            tls=arguments.tls or bool(arguments.tls_name),
            tls_names=arguments.tls_name,
            settings=settings,
            workspace=arguments.workspace,
            database=arguments.database or None,
            seed=arguments.seed,
            poll_every=arguments.interval if arguments.watch else None,
        )
    except OSError as error:
        raise EmulatorError(
            "ADDRESS_UNUSABLE",
            f"cannot listen at {arguments.host}:{arguments.port}: {error}.",
            next_step="choose another --port, or 0 for any that is free",
        ) from error
    with server:
        termination = Termination()
        trusted = f" certificate={server.certificate}" if server.certificate else ""
        print(f"serving {server.url} workspace={server.workspace_id}{trusted}", flush=True)
        termination.wait()
    return 0


class Termination:
    """Records SIGTERM and SIGINT from its creation on. The running work continues and can ask for the signal."""

    def __init__(self) -> None:
        # A pipe, not an event: a handler that runs while this thread holds the event's lock would deadlock.
        self._signalled, tell = os.pipe()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: os.write(tell, b"."))

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for a signal for at most this time; whether one came."""
        return bool(select.select([self._signalled], [], [], seconds)[0])


def _watch(service: MirroringService, interval: float) -> int:
    """Poll until SIGTERM or SIGINT; a started poll is finished."""
    termination = Termination()
    printed: dict[str, str] = {}
    print("watching", flush=True)
    while True:
        _apply(service, printed)
        if termination.wait(interval):
            return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="fabric-emulator", description=__doc__)
    parser.add_argument(
        "command",
        choices=["apply", "serve", "status", "pause", "resume", "stop", "start"],
        help="apply pending files; serve store and REST API; show the state; pause and resume; stop and start (which "
        "rebuilds from scratch)",
    )
    parser.add_argument("--landing-zone", type=Path, required=True, metavar="DIR")
    parser.add_argument("--tables", type=Path, required=True, metavar="DIR", help="where the Delta tables are made")
    parser.add_argument("--state", type=Path, metavar="DIR", help="state of the emulator (default: TABLES/_state)")
    parser.add_argument("--watch", action="store_true", help="poll until SIGTERM or SIGINT")
    parser.add_argument("--interval", type=float, default=2.0, metavar="SECONDS", help="between polls (default: 2)")
    parser.add_argument("--processed-folder", choices=PROCESSED_FOLDERS, default=Settings.processed_folder)
    parser.add_argument("--processed-at-zone-root", action="store_true", help="move files to the zone's root instead")
    parser.add_argument("--purge-after-days", type=float, default=Settings.purge_after_days, metavar="N")
    parser.add_argument(
        "--fails-without-files-after-days", type=float, default=Settings.fails_without_files_after_days, metavar="N"
    )
    parser.add_argument("--files-per-poll", type=int, metavar="N", help="apply at most N files per table and poll")
    parser.add_argument("--advance-clock", type=float, default=0.0, metavar="SECONDS", help="before applying, for good")
    served = parser.add_argument_group("serve")
    served.add_argument("--host", default="127.0.0.1", help="interface to listen at (default: 127.0.0.1)")
    served.add_argument("--port", type=int, default=10080, help="0 takes a free one (default: 10080)")
    served.add_argument("--tls", action="store_true", help="https, with a certificate below TABLES/_tls")
    served.add_argument("--tls-name", action="append", default=[], metavar="HOST", help="one more host in it")
    served.add_argument("--workspace", default=WORKSPACE, metavar="NAME", help=f"(default: {WORKSPACE})")
    served.add_argument(
        "--database", default=DATABASE, metavar="NAME", help=f"one that is there; '' for none (default: {DATABASE})"
    )
    served.add_argument("--seed", type=int, default=0, help="of the probabilities of faults (default: 0)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
