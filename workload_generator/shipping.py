"""One run's messages: which events are cut, sent twice or held back, so that every table has some of each."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random

from workload_generator.ces import CesOptions, encode
from workload_generator.database import Change
from workload_generator.delivery import Delivery, Message, Piece, deliver, draw

PARTITIONS = 3
_SPAN = timedelta(minutes=12)
_CUT, _HELD_EVENTS, _HELD_PIECES = 0.02, 0.03, 0.3


@dataclass(frozen=True, slots=True)
class Shipment:
    """What a run sends.

    Args:
        messages: in order of arrival.
        withheld: pieces for the next run.
        tables: ``split_events``, ``duplicates``, ``late_events`` → the table of each one.
    """

    messages: list[Message]
    withheld: list[Piece]
    tables: dict[str, list[str]]


def ship(
    changes: Sequence[Change],
    late: Sequence[Piece],
    options: CesOptions,
    delivery: Delivery,
    rng: Random,
    first_offsets: Sequence[int],
    since: datetime,
    *,
    hold_back: bool,
) -> Shipment:
    """Encode *changes* and deliver them with the *late* pieces of the run before.

    Of every table that has changes at least two events are cut and one message is sent twice; with *hold_back* at
    least one event, and one piece of another, stays behind. The messages fill a few Capture windows from *since*.
    """
    tables = sorted({change.table.full_name for change in changes})
    places = {name: [n for n, change in enumerate(changes) if change.table.full_name == name] for name in tables}
    cut = {place for name in tables for place in _some(places[name], _CUT, 2, rng)}
    # Rarely in three: then a middle piece exists, too.
    cut_into = {place: rng.choice((2, 2, 3)) for place in sorted(cut)}
    events = [encode(change, options, cut_into=cut_into.get(place, 1)) for place, change in enumerate(changes)]

    held: set[tuple[int, int]] = set()
    for name in tables if hold_back else ():
        held |= _held_back(places[name], changes, events, rng)
    pieces = [(place, piece) for place, event in enumerate(events) for piece in event]
    on_time = [piece for place, piece in pieces if (place, piece.segment) not in held]
    sent = [*late, *on_time]
    sent_again = sorted(
        place
        for name in sorted({piece.table for piece in sent})
        for place in _some([n for n, piece in enumerate(sent) if piece.table == name], delivery.duplicates, 1, rng)
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
    return Shipment(
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
    """Pieces, as (event, segment), of one table that stay behind: whole events and single pieces."""
    split = [place for place in places if len(events[place]) > 1]
    whole = [place for place in places if len(events[place]) == 1] or split
    overtaken = _written_again(whole, places, changes)
    # Late for nothing is easy: at least one event comes after a newer one of its own row.
    chosen = {*_some(whole, _HELD_EVENTS, 1, rng), *_some(overtaken, 0, 1, rng)}
    held = {(place, piece.segment) for place in chosen for piece in events[place]}
    single = [place for place in _some(split, _HELD_PIECES, 1, rng) if place not in chosen]
    return held | {(place, rng.choice(events[place]).segment) for place in single}


def _written_again(whole: Iterable[int], places: Sequence[int], changes: Sequence[Change]) -> list[int]:
    last: dict[tuple[str, ...], int] = {}
    for place in places:
        last[_key(changes[place])] = place
    return [place for place in whole if last[_key(changes[place])] > place]


def _key(change: Change) -> tuple[str, ...]:
    row = change.after if change.after is not None else change.before
    return change.table.key_of(row or {})


def _some(places: Sequence[int], part: float, at_least: int, rng: Random) -> Collection[int]:
    """About this part of *places*, but at least so many, as far as there are any."""
    chosen = dict.fromkeys(draw(places, part, rng))
    missing = [place for place in places if place not in chosen]
    for place in rng.sample(missing, min(len(missing), max(0, at_least - len(chosen)))):
        chosen[place] = None
    return list(chosen)
