"""Changes as the messages of a Qlik task, in JSON, through a real Kafka broker."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from random import Random
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from workload_generator.database import Change
from workload_generator.delivery import Delivery, Piece, deliver, partition_of
from workload_generator.qlik_messages import QlikMessageOptions, announcing_piece, encode, piece, refreshed
from workload_generator.shipping import Parcel, Run, Shipment, ShippingError, some
from workload_generator.tables import Row, TableDef

PARTITIONS = 3
"""The number of partitions of the topic."""

_DUPLICATES, _BROKEN_OFF = 0.02, 0.03
_SECONDS = 60


class MessageShipping:
    """Messages of a task that partitions by key, in one topic of a broker.

    The stream begins with the structures and, as REFRESH, with all rows. Of every table at least one message is sent
    twice. One belongs to a transaction that is interrupted and sent again from its first message (K-40). With
    *hold_back* the broker of one partition is slow: its last messages come with the next run, after newer ones.
    """

    name = "qlik-message"

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._bootstrap, self._topic = bootstrap, topic

    def pack_load(self, tables: Sequence[tuple[TableDef, Sequence[Row]]], rng: Random, seed: int) -> Shipment:
        """The messages of every structure and every row."""
        options = QlikMessageOptions(seed=seed)
        pieces: list[Piece] = []
        for table, rows in tables:
            pieces.append(announcing_piece(table, 1, options))
            pieces += [piece(table, 0, 0, row, encode(refreshed(table, row), options)) for row in rows]
        return _shipment(pieces, _delivery(f"{seed}:load"), rng)

    def pack(self, run: Run, memory: dict[str, Any]) -> Shipment:
        """The messages of a run."""
        options = QlikMessageOptions(seed=run.source_seed)
        delivery = _delivery(f"{run.source_seed}:{run.number}")
        transactions = [[*group] for _, group in groupby(run.changes, key=lambda change: change.txn)]
        broken_off = _broken_off(transactions, run.rng)
        fresh: list[Piece] = []
        replays: list[str] = []
        for place, changes in enumerate(transactions):
            pieces = [_data(change, options, is_last=change is changes[-1]) for change in changes]
            begun = pieces[: broken_off.get(place, 0)]
            replays += [one.table for one in begun]
            fresh += [*begun, *pieces]
        slow = _slow(fresh, delivery, run.rng) if run.hold_back else set()
        withheld = [one for place, one in enumerate(fresh) if place in slow]
        on_time = [one for place, one in enumerate(fresh) if place not in slow]
        sent = _shipment([*run.late, *on_time], delivery, run.rng)
        late = [table for table, _, _ in dict.fromkeys((one.table, one.txn, one.seq) for one in run.late)]
        return Shipment(sent.parcels, sent.messages, withheld, {**sent.tables, "replays": replays, "late_events": late})

    def send(self, parcels: Sequence[Parcel]) -> int:
        """Produce the messages, each partition in order, until all are acknowledged.

        Raises:
            ShippingError: when one was not acknowledged.
        """
        if not parcels:
            return 0
        refused: list[str] = []

        def delivered(error: KafkaError | None, _message: object) -> None:
            if error is not None:
                refused.append(str(error))

        options = {"bootstrap.servers": self._bootstrap, "enable.idempotence": True, "message.timeout.ms": 50_000}
        producer = Producer({**options, "linger.ms": 5, "log_level": 0})
        try:
            for one in parcels:
                producer.produce(self._topic, one.content, one.key, int(one.address), on_delivery=delivered)
                producer.poll(0)
            missing = producer.flush(_SECONDS)
        except (KafkaException, BufferError) as error:
            raise ShippingError(f"the broker at {self._bootstrap} takes no messages: {error}") from error
        if refused or missing:
            what = refused[0] if refused else f"{missing} messages were not acknowledged within {_SECONDS} s"
            raise ShippingError(f"not everything arrived in {self._topic} at {self._bootstrap}: {what}")
        return 0


def _delivery(seed: str) -> Delivery:
    return Delivery(PARTITIONS, scheme="key", disorder=40, seed=seed)


def _data(change: Change, options: QlikMessageOptions, *, is_last: bool) -> Piece:
    row = change.after if change.after is not None else change.before or {}
    return piece(change.table, change.txn, change.seq, row, encode(change, options, is_last=is_last))


def _shipment(pieces: Sequence[Piece], delivery: Delivery, rng: Random) -> Shipment:
    sent_again = sorted(
        place
        for name in sorted({one.table for one in pieces})
        for place in some([n for n, one in enumerate(pieces) if one.table == name], _DUPLICATES, 1, rng)
    )
    messages = deliver(pieces, delivery, sent_again=sent_again)
    parcels = [Parcel(str(one.partition), one.key or None, one.body) for one in messages]
    return Shipment(parcels, len(messages), [], {"duplicates": [pieces[place].table for place in sent_again]})


def _broken_off(transactions: Sequence[Sequence[Change]], rng: Random) -> dict[int, int]:
    """The interrupted transactions with their messages sent before, of which every table has at least one."""
    found = {n: rng.randint(1, len(its)) for n, its in enumerate(transactions) if rng.random() < _BROKEN_OFF}
    for name in sorted({change.table.full_name for its in transactions for change in its}):
        if not any(change.table.full_name == name for n, end in found.items() for change in transactions[n][:end]):
            ends = [
                (n, end)
                for n, its in enumerate(transactions)
                for end, change in enumerate(its, 1)
                if change.table.full_name == name
            ]
            n, end = rng.choice(ends)
            found[n] = max(end, found.get(n, 0))
    return found


def _slow(pieces: Sequence[Piece], delivery: Delivery, rng: Random) -> set[int]:
    """The last messages of one partition, as indexes in *pieces*; of every table one is older than one elsewhere."""
    best: set[int] = set()
    most = 0
    for partition in rng.sample(range(delivery.partitions), delivery.partitions):
        mine = [n for n, one in enumerate(pieces) if partition_of(one, delivery) == partition]
        overtaken: dict[str, int] = {}
        for name in {one.table for one in pieces}:
            elsewhere = max((n for n, one in enumerate(pieces) if one.table == name and n not in {*mine}), default=-1)
            places = [n for n in mine if pieces[n].table == name and n < elsewhere]
            if places:
                overtaken[name] = places[-1]
        if len(overtaken) > most:
            most, start = len(overtaken), min(overtaken.values())
            best = {n for n in mine if n >= start}
    return best
