"""The command ``check``: examines a mirror file, and with ``--sample`` compares it with its source. Starts no JVM."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from open_mirroring.codes import next_step_of
from open_mirroring.config import Mirror, check_mirror, load_mirror, load_mirrors
from open_mirroring.config.problems import Problem, SettingPath
from open_mirroring.errors import MirroringError, TerminalError, TransientError
from open_mirroring.ledger import open_ledger
from open_mirroring.ledger.opening import ledger_to_look
from open_mirroring.ledger.reading import LedgerReader, TableState
from open_mirroring.operate.exit_codes import Exit, UsageError
from open_mirroring.operate.spark_jars import drivers_lacking
from open_mirroring.operate.target_limits import limit_warnings
from open_mirroring.operate.words import amount
from open_mirroring.operate.zone_check import check_landing_zone
from open_mirroring.reconciliation.inspection import declare_tables
from open_mirroring.reconciliation.owning import refuse_other_log, refuse_other_zone, standing
from spark_jobs.cli.looking import places_text
from spark_jobs.cli.reporting import wrapped
from spark_jobs.reconcile.lost_ledger import check_ledger_knows, log_behind


def check(arguments: argparse.Namespace) -> Exit:
    """Print every mistake in a mirror file or in all mirror files of a folder, and what would stop a run.

    With ``--sample``, and if there is no mistake, print also what differs between a mirror file and the messages that
    the source sends.
    """
    mirrors = mirrors_of([arguments.file])
    problems = [problem for mirror in mirrors for problem in problems_of(mirror)]
    sampled: dict[str, list[Problem]] = {}
    is_sampled = arguments.sample is not None or arguments.database is not None
    for mirror in mirrors if is_sampled and not problems else ():
        from spark_jobs.cli.beginning import sampled_mirror  # loads Spark's Python, which is slow

        mistakes, sampled[mirror.name] = sampled_mirror(mirror, arguments)
        problems += mistakes
    if problems:
        print(f"{amount(len(problems), 'problem')} found", file=sys.stderr, flush=True)
        print(*(wrapped(str(problem), 0) for problem in problems), sep="\n")
        return Exit.USAGE
    for mirror in mirrors:
        loads = sum(table.initial_load is not None for table in mirror.tables)
        print(f"{arguments.file if len(mirrors) == 1 else mirror.file}: OK")
        patterns = len(mirror.entries) - len(mirror.tables)
        also = f", and those of {patterns} {'pattern' if patterns == 1 else 'patterns'}" if patterns else ""
        print(
            f"  mirror        {mirror.name}: {amount(len(mirror.tables), 'table')}, {loads} with an initial load{also}"
        )
        print(f"  read as       {mirror.source.format} over {mirror.source.transport}")
        print(places_text(mirror))
        key_changes, warnings = _surveyed(mirror)
        if key_changes:
            print(f"  key changes   {key_changes}")
        if mirror.consistency == "key":
            print("  consistency   key: each row is exact, a transaction may show in parts")
        else:
            print("  consistency   transaction: changes wait until the source has shown a later one")
        for warning in [*limit_warnings(mirror), *drivers_lacking(mirror), *warnings, *sampled.get(mirror.name, ())]:
            print(f"warning: {warning}")
    return Exit.DONE


def _surveyed(mirror: Mirror) -> tuple[str, list[Problem]]:
    """How the source sends key changes, as text, and warnings about its set-up."""
    if not mirror.source.is_surveyed:
        return "", []
    from spark_jobs.sources import registry  # loads Spark's Python, which is slow

    return registry.format_of(mirror).key_changes, registry.survey_warnings(mirror)


def problems_of(mirror: Mirror) -> list[Problem]:
    """Everything that would stop the first run of a mirror: settings, landing zone, structures, ledger."""
    found = check_mirror(mirror)
    found += check_landing_zone(mirror)
    if mirror.structures:
        from spark_jobs.sources.registry import check_structures  # loads Spark's Python

        found += check_structures(mirror)
    if all(problem.path != "ledger" for problem in found):
        found += _refused_by_run(mirror)
    return [*found, *check_ledger_knows(mirror)]


def _refused_by_run(mirror: Mirror) -> list[Problem]:
    """What a run would refuse because of mirror file, ledger and landing zone. It changes nothing."""
    try:
        if ledger_to_look(mirror.ledger_url()) is None:
            return []
        ledger = open_ledger(mirror.ledger_url())
    except TerminalError as error:
        return [mirror.problem_of(("ledger",), error)]
    except TransientError:
        return []
    return [mirror.problem_of(setting, error) for setting, error in _run_refusals(mirror, ledger)]


def _run_refusals(mirror: Mirror, ledger: Engine) -> Iterator[tuple[SettingPath, TerminalError]]:
    """Yield what the next run would refuse, by calling the run's own checks.

    First comes what concerns the complete mirror, then single tables. Tables are registered in a transaction that is
    rolled back. A service that does not answer is left to other checks, or to the run.
    """
    steps: list[tuple[SettingPath, Callable[[], object]]] = [
        (("landing_zone",), partial(refuse_other_zone, mirror, ledger)),
        (("change_log",), partial(refuse_other_log, mirror, ledger)),
        (("tables",), partial(declare_tables, mirror, ledger, keep=False)),
        (("mirror",), lambda: LedgerReader(ledger, mirror.name).mirror().refuse_stopped(mirror.name)),
        (("change_log",), partial(_refuse_log_behind, mirror, ledger)),
    ]
    try:
        for setting, step in steps:
            if (error := _refused(step)) is not None:
                yield setting, error
                return
        yield from _tables(mirror, ledger)
    finally:
        mirror.join(())  # as the file has it: a table that joined is none of its own


def _refused(step: Callable[[], object]) -> TerminalError | None:
    try:
        step()
    except TerminalError as error:
        return error
    except (MirroringError, DBAPIError, OSError):
        pass
    return None


def _refuse_log_behind(mirror: Mirror, ledger: Engine) -> None:
    if (error := log_behind(mirror, ledger)) is not None:
        raise error


def _tables(mirror: Mirror, ledger: Engine) -> Iterator[tuple[SettingPath, TerminalError]]:
    """Yield tables whose published columns, or whose load under way, no longer fit the mirror file."""
    reader = LedgerReader(ledger, mirror.name)
    states = {s: one for s, one in reader.tables().items() if one.stop_code is None and one.reset is None}
    placed = {table.source: (path, table) for path, table in mirror.placed_tables}
    for source, error in _unfit(mirror, reader, [one for s, one in states.items() if s in placed]).items():
        yield placed[source][0], error
    loading = [
        one for s, one in states.items() if s in placed and one.start.load_plan and one.start.load_state == "pending"
    ]
    for state in loading:
        from spark_jobs.load.planning import refuse_other_load

        path, table = placed[state.source]
        if state.start.load_plan is not None:
            refused = _refused(partial(refuse_other_load, mirror, table, state.start.load_plan))
            if refused is not None:
                yield (*path, "initial_load"), refused


def _unfit(mirror: Mirror, reader: LedgerReader, states: list[TableState]) -> dict[str, TerminalError]:
    published = [state for state in states if state.columns.columns]
    if not published:
        return {}
    from spark_jobs.publish.publication import Preparation  # loads DuckDB, which a new mirror does not need

    try:
        preparation = Preparation(mirror, reader)
    except TerminalError:
        return {}  # without its salt, which another check reports
    unfit, names = preparation.unfit(published), {state.id: state.source for state in published}
    return {
        names[table_id]: TerminalError(stop.code, f"{names[table_id]}: {stop.what}", next_step=next_step_of(stop.code))
        for table_id, stop in unfit.items()
    }


def mirrors_of(paths: list[Path]) -> list[Mirror]:
    """Read the mirror files in *paths* (files and folders); raises ``ARGUMENT_INVALID`` for a folder without any."""
    mirrors: list[Mirror] = []
    for path in paths:
        found = load_mirrors(path, standing) if path.is_dir() else [load_mirror(path)]
        if not found:
            raise UsageError(f"{path} holds no mirror file", "name a file, or a folder of them")
        mirrors += found
    return mirrors
