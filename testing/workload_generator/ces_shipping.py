"""Change events as Event Hubs Capture files; some are split, sent twice or held back, so every table has each case."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any, Literal

from workload_generator.ces import CesOptions, encode
from workload_generator.database import Change
from workload_generator.delivery import Delivery, Message, Piece, deliver
from workload_generator.shipping import Parcel, Run, Shipment, some
from workload_generator.transports import WINDOW, capture_files, window_start, write_files

_PARTITIONS = 3
_FIRST_WINDOW = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
_SPAN = timedelta(minutes=12)
_CUT, _HELD_EVENTS, _HELD_PIECES, _DUPLICATES = 0.02, 0.03, 0.3, 0.02


class CaptureShipping:
    """Change events of SQL Server in the files of an Event Hubs Capture.

    Of every table with changes at least two events are split and one message is sent twice. With *hold_back* at least
    one event, and one piece of another, is withheld. The messages of a run fill a few Capture windows.

    Args:
        encoding: ``json`` or ``avro``.
        generation: the wire generation, see :mod:`workload_generator.ces`.
        since: the earliest enqueue time; later runs never use an earlier Capture window.
    """

    name = "sqlserver-ces"

    def __init__(
        self,
        folder: Path,
        encoding: Literal["json", "avro"] = "json",
        generation: Literal["a", "b", "c"] = "c",
        *,
        since: datetime = _FIRST_WINDOW,
    ) -> None:
        self._folder, self._encoding, self._generation, self._since = folder, encoding, generation, since

    def pack(self, run: Run, memory: dict[str, Any]) -> Shipment:
        """The files of a run.

        Raises:
            ValueError: for a generation and encoding that do not exist together.
        """
        options = CesOptions(self._generation, self._encoding, max_data_bytes=8_000, seed=run.source_seed)
        delivery = Delivery(_PARTITIONS, disorder=40, duplicates=_DUPLICATES, seed=f"{run.source_seed}:{run.number}")
        offsets = memory.setdefault("offsets", [0] * _PARTITIONS)
        since = max(self._since, datetime.fromisoformat(memory.setdefault("clock", _FIRST_WINDOW.isoformat())))
        messages, withheld, tables = _sent(run, options, delivery, offsets, since)
        for message in messages:
            offsets[message.partition] = message.offset + 1
        if messages:
            last = window_start(datetime.fromisoformat(messages[-1].enqueued))
            memory["clock"] = (last + 2 * WINDOW).isoformat()
        files = [Parcel(path, None, content) for path, content in capture_files(messages, partitions=_PARTITIONS)]
        return Shipment(files, len(messages), withheld, tables)

    def send(self, parcels: Sequence[Parcel]) -> int:
        """Write the files and return their number."""
        return len(write_files(self._folder, [(one.address, one.content) for one in parcels]))


def _sent(
    run: Run, options: CesOptions, delivery: Delivery, first_offsets: Sequence[int], since: datetime
) -> tuple[list[Message], list[Piece], dict[str, list[str]]]:
    """The messages of a run with the late ones of the previous run, withheld pieces, and the affected tables."""
    changes, late, rng = run.changes, run.late, run.rng
    tables = sorted({change.table.full_name for change in changes})
    places = {name: [n for n, change in enumerate(changes) if change.table.full_name == name] for name in tables}
    cut = {place for name in tables for place in some(places[name], _CUT, 2, rng)}
    # Rarely in three: then a middle piece exists, too.
    cut_into = {place: rng.choice((2, 2, 3)) for place in sorted(cut)}
    events = [encode(change, options, cut_into=cut_into.get(place, 1)) for place, change in enumerate(changes)]

    held: set[tuple[int, int]] = set()
    for name in tables if run.hold_back else ():
        held |= _held_back(places[name], changes, events, rng)
    pieces = [(place, piece) for place, event in enumerate(events) for piece in event]
    on_time = [piece for place, piece in pieces if (place, piece.segment) not in held]
    sent = [*late, *on_time]
    sent_again = sorted(
        place
        for name in sorted({piece.table for piece in sent})
        for place in some([n for n, piece in enumerate(sent) if piece.table == name], delivery.duplicates, 1, rng)
    )
    number = len(sent) + len(sent_again)
    messages = deliver(
        sent,
        delivery,
        sent_again=sent_again,
        first_offsets=first_offsets,
        since=since,
        every=_SPAN / max(number, 1),
    )
    return (
        messages,
        [piece for place, piece in pieces if (place, piece.segment) in held],
        {
            "split_events": [event[0].table for event in events if len(event) > 1],
            "duplicates": [sent[place].table for place in sent_again],
            "late_events": [table for table, _, _ in dict.fromkeys((one.table, one.txn, one.seq) for one in late)],
        },
    )


def _held_back(
    places: Sequence[int], changes: Sequence[Change], events: Sequence[Sequence[Piece]], rng: Random
) -> set[tuple[int, int]]:
    """Withheld pieces of one table, as (event, segment): complete events and single pieces."""
    split = [place for place in places if len(events[place]) > 1]
    whole = [place for place in places if len(events[place]) == 1] or split
    overtaken = _written_again(whole, places, changes)
    # At least one event has to come after a newer one of its own row.
    chosen = {*some(whole, _HELD_EVENTS, 1, rng), *some(overtaken, 0, 1, rng)}
    held = {(place, piece.segment) for place in chosen for piece in events[place]}
    single = [place for place in some(split, _HELD_PIECES, 1, rng) if place not in chosen]
    return held | {(place, rng.choice(events[place]).segment) for place in single}


def _written_again(whole: Iterable[int], places: Sequence[int], changes: Sequence[Change]) -> list[int]:
    last: dict[tuple[str, ...], int] = {}
    for place in places:
        last[_key(changes[place])] = place
    return [place for place in whole if last[_key(changes[place])] > place]


def _key(change: Change) -> tuple[str, ...]:
    row = change.after if change.after is not None else change.before
    return change.table.key_of(row or {})
