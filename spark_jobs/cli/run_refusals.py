"""Lists what the next run would refuse by mirror file, ledger, landing zone and change log, by the run's own functions.

Nothing is kept: what a run registers is only tried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from open_mirroring.codes import next_step
from open_mirroring.config import Mirror
from open_mirroring.config.problems import SettingPath
from open_mirroring.errors import MirroringError, TerminalError
from open_mirroring.ledger.reading import LedgerReader, TableState
from open_mirroring.reconciliation.inspection import declare_tables
from open_mirroring.reconciliation.owning import refuse_other_log, refuse_other_zone
from spark_jobs.reconcile.lost_ledger import log_behind

Refusal = tuple[SettingPath, TerminalError]
"""What is refused, with the setting that says it."""


def run_refusals(mirror: Mirror, ledger: Engine) -> Iterator[Refusal]:
    """Everything that the next run would refuse, first what the complete mirror depends on.

    What does not answer is reported by another check, or by the run.
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


def _tables(mirror: Mirror, ledger: Engine) -> Iterator[Refusal]:
    """Tables whose published columns, or whose load under way, the mirror file contradicts."""
    reader = LedgerReader(ledger, mirror.name)
    states = {s: one for s, one in reader.tables().items() if one.stop_code is None and one.reset is None}
    placed = {table.source: (path, table) for path, table in mirror.placed_tables}
    for source, error in _unfit(mirror, reader, [one for s, one in states.items() if s in placed]).items():
        yield placed[source][0], error
    loading = [one for s, one in states.items() if s in placed and one.load_plan and one.load_state == "pending"]
    for state in loading:
        from spark_jobs.load.planning import refuse_other_load

        path, table = placed[state.source]
        if state.load_plan is not None:
            refused = _refused(partial(refuse_other_load, mirror, table, state.load_plan))
            if refused is not None:
                yield (*path, "initial_load"), refused


def _unfit(mirror: Mirror, reader: LedgerReader, states: list[TableState]) -> dict[str, TerminalError]:
    published = [state for state in states if state.columns.columns]
    if not published:
        return {}
    from spark_jobs.publish.publication import Preparation  # brings DuckDB, which a mirror that is new does without

    try:
        preparation = Preparation(mirror, reader)
    except TerminalError:
        return {}  # without its salt, which another check reports
    unfit, names = preparation.unfit(published), {state.id: state.source for state in published}
    return {
        names[table_id]: TerminalError(stop.code, f"{names[table_id]}: {stop.what}", way_out=next_step(stop.code))
        for table_id, stop in unfit.items()
    }
