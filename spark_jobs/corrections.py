"""Spark job ``corrections``: reads rows from the source again, if a proof found them to differ.

``spark-submit spark_jobs/corrections.py MIRROR.yaml --proof ID --approved-by NAME --why TEXT``, or :func:`correct` in a
running Spark session. The rows are written into the change log, and the next tick publishes them.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import Engine

from open_mirroring.changes.history_names import is_history
from open_mirroring.changes.manifest import BoundRange, CorrectionRange
from open_mirroring.config import Mirror
from open_mirroring.config.tables import JdbcLoad
from open_mirroring.errors import TerminalError
from open_mirroring.fault_points import reach
from open_mirroring.ledger.auditing import Reason
from open_mirroring.ledger.proofs import ProofLedger
from open_mirroring.ledger.reading import LedgerReader
from open_mirroring.operate.exit_codes import Exit
from open_mirroring.operate.operations import CORRECT
from open_mirroring.protocols.proving import keys_to_correct
from spark_jobs.extract.correction_rows import place_of_correction
from spark_jobs.extract.driver import log_ranges
from spark_jobs.runtime.job import Job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Corrected(NamedTuple):
    """The result: the number of keys now in the change log, or why the rows could not be read yet."""

    keys: int
    waits: str = ""

    @property
    def exit(self) -> Exit:
        """The exit code: on hold if the rows could not be read from the source yet, else done."""
        return Exit.ON_HOLD if self.waits else Exit.DONE


def correct(mirror: Mirror, ledger: Engine, spark: SparkSession, proof_id: str, reason: Reason) -> Corrected:
    """Read the present values of the rows that a proof found to differ, from the source into the change log.

    A second call for the same proof reads nothing, unless the first call could not read the rows. Raises
    ``REPAIR_REFUSED`` if the table was reset since the proof, or if a correction cannot make the table equal to its
    source.
    """
    proofs, reader = ProofLedger(ledger), LedgerReader(ledger, mirror.name)
    recorded = proofs.find(proof_id)
    states = {state.id: state for state in reader.tables().values()}
    state = None if recorded is None else states.get(recorded.table_id)
    if state is not None and is_history(state.source):
        what = f"{state.source} has changes, and the source shows rows only"
        next_step = f"run `open-mirroring reload-table --table {state.source!r}`: it is made from the change log again"
        raise TerminalError("REPAIR_REFUSED", what, next_step=next_step)
    table = None if state is None else next((t for t in mirror.tables if t.source == state.source), None)
    if recorded is None or state is None or table is None or state.row.generation != recorded.generation:
        what = f"{proof_id!r} is not a proof of a table as it is now"
        raise TerminalError("REPAIR_REFUSED", what, next_step="prove the table again")
    keys = keys_to_correct(recorded.proof, bool(table.key))
    place_of_correction(reader, state, removes=False)  # refused before it is approved
    if not isinstance(table.prove or table.initial_load, JdbcLoad):
        what = "an export shows what was, not what is: rows of it may be older than what the target has"
        next_step = "set `prove` of the table to the source database, and prove again"
        raise TerminalError("REPAIR_REFUSED", what, where=f"table {table.source}", next_step=next_step)
    proofs.approve(mirror.name, state.source, recorded, reason)
    reach("correct.approved")
    wanted = CorrectionRange(state.source, recorded.generation, recorded.id).name

    def find(bound: dict[str, int]) -> Sequence[BoundRange]:
        return () if wanted in bound else [BoundRange(wanted, 0, 1)]

    manifest = log_ranges(mirror, ledger, spark, find)
    if manifest is not None and wanted in manifest.given_back:
        return Corrected(0, manifest.given_back[wanted])
    return Corrected(len(keys))


def _correct(mirror: Mirror, ledger: Engine, spark: SparkSession, of: Namespace) -> Corrected:
    return correct(mirror, ledger, spark, of.proof, Reason(of.approved_by, of.why))


main = Job("corrections", _correct, CORRECT.arguments[1:])


if __name__ == "__main__":
    sys.exit(main())
