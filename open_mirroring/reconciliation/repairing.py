"""Decides whether a lost file may be published again under its number: the only repair that Fabric permits.

A file that Fabric has not applied may be published again with the same content (F-40). A file without rows may always
be published again (F-41), an applied file with rows never (F-37). If no counter of Fabric shows whether the file was
applied, an operator has to state how they know that it was not.
"""

from __future__ import annotations

from collections.abc import Mapping

from open_mirroring.codes import Kind, Trait, having, of_kind
from open_mirroring.errors import TerminalError
from open_mirroring.ledger.reading import PublishedFile
from open_mirroring.protocols import verdicts as v
from open_mirroring.protocols.verdicts import Finding


def check_permitted(
    table: str, number: int, finding: Finding, published: Mapping[int, PublishedFile], *, not_applied: str
) -> str:
    """Return the proof that the file *number* of a table may be published again, as a string for the audit.

    *not_applied* is an operator's statement how they know that the file was not applied. Raises ``REPAIR_REFUSED``,
    with the reason and the next step, if the file is not lost or may have been applied, or if the table is stopped by
    another code.
    """

    def refused(why: str, next_step: str) -> TerminalError:
        what = f"number {number} of table {table!r} is not published again: {why}"
        return TerminalError("REPAIR_REFUSED", what, next_step=next_step)

    no_matter = having(Trait.REPAIRED) | of_kind(Kind.HOLD) | of_kind(Kind.LOSS) | {v.OK}
    also = finding.evidence.get("also")
    others = sorted({finding.code, *(also if isinstance(also, list) else ())} - no_matter)
    record = published.get(number)
    if record is None:
        raise refused("the ledger has no confirmed file of this number", "look at `status` for K")
    if others:
        raise refused(f"the table is stopped by {', '.join(others)}", "see to that first")
    if number not in finding.lost:
        next_step = "nothing is missing; a broken file under its name has to be moved away first"
        raise refused("it is there, or was processed and purged", next_step)
    if number <= finding.applied:
        why = f"the target counts as having applied everything up to {finding.applied}, and reads no number twice"
        next_step = "compare the target with the source; if rows are missing, reset the table"
        raise refused(why, f"{next_step}: `open-mirroring reload-table`")
    if record.rows == 0:
        return "it has no rows"
    if not not_applied:
        why = "nothing proves that the target has not applied it"
        raise refused(why, "look for its rows at the target, and give how you know by `--not-applied`")
    return f"an operator looked: {not_applied}"
