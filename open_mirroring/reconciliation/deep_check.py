"""The deep check of one table: do its published files contain what the ledger sealed, and do the counts match?

A published file never changes (I8, F-37), its footer matches the ledger (I9), and each logged change has exactly one
outcome (I1). The functions here are pure; a job reads the files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from open_mirroring.changes.horizon import BatchContents
from open_mirroring.landing_zone.data_file import Footer
from open_mirroring.ledger.reading import Publication, PublishedFile, TableState
from open_mirroring.ledger.tables import grouped
from open_mirroring.protocols import verdicts as v
from open_mirroring.protocols.verdicts import DeepFinding
from open_mirroring.reconciliation.evidence_text import ranges
from open_mirroring.reconciliation.rebuilding import REBUILT

DISPOSITIONS = ("published", "compacted", "duplicates", "superseded", "in_load", "rejected", "waiting", "filtered")
"""The possible outcomes of a change in a publication; together they must equal the sum of :data:`TAKEN` (I1)."""
TAKEN = ("changes", "released", "renewed")
"""The changes in a publication: those of its batches, those that waited before, and rows completed and published again.
"""

_ROWS = {"changes": "published", "load": "loaded"}
_PROBLEMS_SHOWN, _PROBLEMS_KEPT = 3, 20
_ORDER = (v.CONTENT_CHANGED, v.FILE_UNFIT, v.COUNTS_DIFFER, v.LOG_DAMAGED)


class FileContent(NamedTuple):
    """What the deep check found in one numbered file at *place*.

    *rows* and *digest* are None if the file is unreadable; *unreadable* is the reason. *columns* does not count
    ``__rowMarker__``. *unfit* is why the file does not fit its table. *unread* is why reading failed in this run only.
    *moved* means that the file was listed, but was then found in no folder.
    """

    number: int
    place: str
    size: int = 0
    rows: int | None = None
    digest: str | None = None
    columns: int = 0
    footer: Footer | None = None
    unreadable: str = ""
    unfit: str = ""
    unread: str = ""
    moved: bool = False


@dataclass(frozen=True)
class TableRecord:
    """What the ledger recorded about one table since its last reset.

    *contents* are batches with rows of the table, and may include batches that are not published yet.
    """

    mirror: str
    state: TableState
    published: Sequence[PublishedFile]
    publications: Sequence[Publication]
    contents: Sequence[BatchContents]

    @property
    def first_batch(self) -> int:
        """The batch after which changes are published.

        After an initial load it is the batch at which the load handed over to the stream; without an initial load it
        is 0.
        """
        start = self.state.start
        return start.load_plan.hand_over_batch if start.load_plan and start.load_state == "loaded" else 0


class Problems:
    """Collects problems by code, and merges them into one finding for each code."""

    def __init__(self, table: str | None) -> None:
        self._table = table
        self._texts: dict[str, list[str]] = {}

    def add(self, code: str, text: str) -> None:
        """Add a problem; *text* must name the place of the problem."""
        self._texts.setdefault(code, []).append(text)

    def findings(self) -> Iterator[DeepFinding]:
        """Yield one finding for each code, the most important code first."""
        rank = {code: place for place, code in enumerate(_ORDER)}
        for code in sorted(self._texts, key=lambda code: (rank.get(code, len(rank)), code)):
            texts = self._texts[code]
            more = len(texts) - _PROBLEMS_SHOWN
            what = "; ".join(texts[:_PROBLEMS_SHOWN]) + (f"; and {more} more" if more > 0 else "")
            yield DeepFinding(self._table, code, what, {"count": len(texts), "problems": texts[:_PROBLEMS_KEPT]})


def check_table(record: TableRecord, files: Iterable[FileContent]) -> list[DeepFinding]:
    """Compare a table's files with the ledger, and its publications with each other and with the change log's batches.

    *files* are all copies of the table's files that still exist. A missing file is not reported here, because Fabric
    may have removed it (F-36, I22). Files with a number above the last confirmed one are not checked here: the publish
    job checks them. The findings have the codes CONTENT_CHANGED, FILE_UNFIT and COUNTS_DIFFER, or UNREACHABLE and
    CHANGED_MEANWHILE, which stop no table.
    """
    problems = Problems(record.state.source)
    _check_publications(record, problems)
    _check_files(record, files, problems)
    return list(problems.findings())


def _check_files(record: TableRecord, files: Iterable[FileContent], problems: Problems) -> None:
    sealed = {file.number: file for file in record.published}
    first_numbers = {file.number: group[0].number for group in _groups(record).values() for file in group}
    widest, rebuilt = (0, 0), _rebuilt(record)[0]
    for found in sorted(files, key=lambda file: (file.number, file.place)):
        expected = sealed.get(found.number)
        if expected is None:
            continue
        where = f"number {found.number} ({found.place})"
        if found.moved or found.unread:
            code = v.CHANGED_MEANWHILE if found.moved else v.UNREACHABLE
            problems.add(code, f"{where}: {found.unread or 'moved away while it was to be read'}")
            continue
        for text in _content_changes(found, expected):
            problems.add(v.CONTENT_CHANGED, f"{where}: {text}")
        if found.unreadable:
            continue
        if record.state.text is None:  # delimited text has no footer, and its digest is that of its bytes
            first = first_numbers[found.number]
            if found.number <= rebuilt and found.footer is not None:
                first = found.footer.first_number
            for text in _footer_mismatches(record, found, expected, first):
                problems.add(v.CONTENT_CHANGED, f"{where}: {text}")
        if found.unfit:
            problems.add(v.FILE_UNFIT, f"{where}: {found.unfit}")
        elif found.columns < widest[0]:
            # A table's schema only grows (F-83), so no file may lack a column that an earlier file has.
            text = f"{found.columns} columns, while number {widest[1]} before it has {widest[0]}"
            problems.add(v.FILE_UNFIT, f"{where}: {text}")
        widest = max(widest, (found.columns, found.number))


def _content_changes(found: FileContent, sealed: PublishedFile) -> Iterator[str]:
    if found.unreadable:
        yield found.unreadable
    if found.size != sealed.size:
        yield f"{found.size} bytes, published were {sealed.size}"
    if found.digest is not None and found.digest != sealed.digest:
        yield f"its rows have the digest {found.digest}, published was {sealed.digest}"
    if found.rows is not None and found.rows != sealed.rows:
        yield f"{found.rows} rows, published were {sealed.rows}"


def _footer_mismatches(
    record: TableRecord, found: FileContent, sealed: PublishedFile, first_number: int
) -> Iterator[str]:
    if found.footer is None:
        yield "no footer of ours"
        return
    expected = Footer(
        mirror=record.mirror,
        table_id=record.state.id,
        generation=record.state.row.generation,
        first_number=first_number,
        batch_from=sealed.batch_from,
        batch_to=sealed.batch_to,
        kind="load" if sealed.kind == "load" else "changes",
        first_position=sealed.first_position,
        last_position=sealed.last_position,
        rows=sealed.rows,
        digest=sealed.digest,
        # The table's state at that time is only in the footer; no ledger keeps it.
        standing=found.footer.standing,
    )
    for name in Footer.__dataclass_fields__:
        said, known = getattr(found.footer, name), getattr(expected, name)
        if said != known:
            yield f"its footer says {name} {said!r}, the ledger {known!r}"


# --- publications -----------------------------------------------------------------------------------------------

_Group = tuple[str, int, int, datetime]


def _groups(record: TableRecord) -> dict[_Group, list[PublishedFile]]:
    """The files by publication; the time of confirmation keeps two loads apart."""
    files = sorted(record.published, key=lambda file: file.number)
    return grouped(((file.kind, file.batch_from, file.batch_to, file.confirmed_at), file) for file in files)


def _check_publications(record: TableRecord, problems: Problems) -> None:
    rebuilt, rebuilt_batch = _rebuilt(record)
    numbers = [file.number for file in record.published if file.number > rebuilt]
    expected = set(range(rebuilt + 1, record.state.row.confirmed + 1))
    if missing := expected - set(numbers):
        problems.add(v.COUNTS_DIFFER, f"the ledger has no record of the confirmed numbers {ranges(missing)}")
    if unknown := set(numbers) - expected:
        problems.add(v.COUNTS_DIFFER, f"the ledger has records of numbers never confirmed: {ranges(unknown)}")
    groups = _groups(record)
    batch, highest = max(record.first_batch, rebuilt_batch), rebuilt
    for publication in record.publications:
        if publication.kind == REBUILT or (publication.kind == "changes" and publication.batch_to <= rebuilt_batch):
            continue
        files = groups.pop((*publication[1:4], publication.confirmed_at), [])
        name = f"the publication of batches {publication.batch_from} to {publication.batch_to}"
        own = [file.number for file in files]
        if own and own != list(range(highest + 1, highest + 1 + len(own))):
            problems.add(v.COUNTS_DIFFER, f"{name} has the numbers {ranges(own)}, the one before ended at {highest}")
        highest = max([highest, *own])
        if publication.kind == "changes":
            if publication.batch_from != batch:
                problems.add(v.COUNTS_DIFFER, f"{name} follows one that ended at batch {batch}")
            batch = publication.batch_to
            _check_changes(record, publication, name, problems)
        # A load's rows are counted as `loaded`, those of changes as `published`.
        said, rows = publication.counts.get(_ROWS.get(publication.kind, ""), 0), sum(file.rows for file in files)
        if said != rows:
            problems.add(v.COUNTS_DIFFER, f"{name} published {said} rows, but its files contain {rows}")
    if batch != record.state.row.published_batch and any(p.kind == "changes" for p in record.publications):
        text = f"the last publication ended at batch {batch}, the table is at {record.state.row.published_batch}"
        problems.add(v.COUNTS_DIFFER, text)
    let_in, let_out = (sum(p.counts.get(name, 0) for p in record.publications) for name in ("waiting", "released"))
    if let_in - let_out != record.state.waiting_rows and not (rebuilt or rebuilt_batch):
        text = f"{let_in} changes were to wait for their transactions and {let_out} were released"
        problems.add(v.COUNTS_DIFFER, f"{text}, but the ledger records {record.state.waiting_rows} waiting changes")
    for (kind, batch_from, batch_to, _), group in groups.items():
        if numbers := [file.number for file in group if file.number > rebuilt]:
            text = f"numbers {ranges(numbers)} ({kind}, batches {batch_from} to {batch_to}) belong to no publication"
            problems.add(v.COUNTS_DIFFER, text)


def _rebuilt(record: TableRecord) -> tuple[int, int]:
    """The numbers and batches that a re-created ledger read from the files' footers, so it cannot check them."""
    for publication in record.publications:
        if publication.kind == REBUILT:
            return publication.counts["numbers"], publication.batch_to
    return 0, 0


def _check_changes(record: TableRecord, publication: Publication, name: str, problems: Problems) -> None:
    counts = publication.counts
    taken, accounted = (sum(counts.get(one, 0) for one in names) for names in (TAKEN, DISPOSITIONS))
    if taken != accounted:
        problems.add(v.COUNTS_DIFFER, f"{name} read {taken} changes, but the ledger counts {accounted}")
    changes = counts.get("changes", 0)
    logged = sum(part.rows for part in record.contents if publication.batch_from < part.batch <= publication.batch_to)
    if changes != logged:
        problems.add(v.COUNTS_DIFFER, f"{name} read {changes} changes, but its batches contain {logged}")
