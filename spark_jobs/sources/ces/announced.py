"""What change events tell of their tables: names, columns, primary key, and how the stream is set up.

Public source: Microsoft Learn, *JSON Message format - change event streaming*; *sys.sp_create_event_stream_group*.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from spark_jobs.changelog.schema import RawMessage
from spark_jobs.sources.ces.decoder import CesDecoder, CesSettings
from spark_jobs.sources.ces.envelope import Data, Event, is_complete, read_data
from spark_jobs.sources.ces.rows import ColumnList
from spark_jobs.sources.ces.unreadable import table_in_data
from spark_jobs.sources.contract.announced import Announced, AnnouncedColumn, Note
from spark_jobs.sources.contract.decoded import Damage, Refusal

NO_OLD_VALUES = Note(
    "updates come without old values (@include_old_values = 0): an update that changes the key stops the table (C-73)"
)
SOME_COLUMNS = Note(
    "updates leave columns out (@include_all_columns = 0), and what they leave out is not known to be NULL: set it to "
    "1 at the source, or `complete_rows: true` here (G-04)",
    ("complete_rows", "full_rows"),
)
_LISTS_KEPT = 10_000


def announced(messages: Iterable[RawMessage | Damage], settings: CesSettings) -> Iterator[Announced]:
    """As :meth:`Format.announced`; of a split event only the first piece tells its table, and no more."""
    decoder = CesDecoder({}, settings)
    lists: dict[bytes, tuple[ColumnList, bool]] = {}
    for message in messages:
        if isinstance(message, Damage):
            continue
        try:
            event = decoder.read(message.body)
            if event.split.whole is False or (event.split.whole is None and not is_complete(event.data)):
                told = table_in_data(event.data)
                if told is not None and settings.database in (None, told.db):
                    yield Announced(told.schema, told.tbl, sender=told.db or "")
                continue
            data = read_data(event.data)
            if settings.database not in (None, data.eventsource.db):
                continue
            raw = bytes(data.eventsource.cols)
            if raw not in lists:
                if len(lists) >= _LISTS_KEPT:
                    lists.clear()
                columns = ColumnList(raw, (), None, settings.binary)
                lists[raw] = columns, _has_gaps(columns)
            yield _of(event, data, *lists[raw])
        except Refusal:
            continue  # a dead letter says it once it is read


def _has_gaps(columns: ColumnList) -> bool:
    """Whether the places of the columns leave some out, as lists of changed columns do (C-44)."""
    places = sorted(place for _, _, place in json.loads(columns.text))
    return places != list(range(places[0], places[0] + len(places)))


def _of(event: Event, data: Data, columns: ColumnList, has_gaps: bool) -> Announced:
    source = data.eventsource
    key = tuple(part.columnname for part in source.pkkey or ())
    return Announced(
        source.schema,
        source.tbl,
        tuple(AnnouncedColumn(name, sql_type) for name, sql_type in columns.types.items()),
        key,
        _notes(data, columns, has_gaps) if event.operation == "UPD" else (),
        event.operation != "INS",
        source.db,
    )


def _notes(data: Data, columns: ColumnList, has_gaps: bool) -> tuple[Note, ...]:
    """How an update shows that the stream was set up: without old values, or with changed columns only."""
    images = data.eventrow or data.eventdata
    if images is None or images.current is None:
        return ()
    current = columns.read(images.current)[0]
    old = {} if images.old is None else columns.read(images.old)[0]
    untold = [name for name in columns.absent_from(current) if old.get(name, "") is not None]
    return (*([] if old else [NO_OLD_VALUES]), *([SOME_COLUMNS] if untold or has_gaps else []))
