"""The same life of a shop, shipped in each format: what leaves is what happened, with everything that may befall it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workload_generator.ces_shipping import CaptureShipping
from workload_generator.command_line import main
from workload_generator.qlik_file_shipping import ChangeFileShipping
from workload_generator.qlik_message_shipping import PARTITIONS, MessageShipping
from workload_generator.shipping import Parcel, Shipping, ShippingError
from workload_generator.source import Source, SourceError
from workload_generator.tables import SHOP_TABLES


class Kept(MessageShipping):
    """Messages to nowhere: they are kept in the order of sending."""

    def __init__(self) -> None:
        super().__init__("nowhere", "shop")
        self.parcels: list[Parcel] = []

    def send(self, parcels: Sequence[Parcel]) -> int:
        self.parcels += parcels
        return 0

    def messages(self) -> list[tuple[int, dict[str, Any]]]:
        """Data messages with their partition."""
        found = [(int(one.address), json.loads(one.content)) for one in self.parcels]
        return [(partition, one["message"]) for partition, one in found if one["type"] == "DT"]


def place(message: dict[str, Any]) -> tuple[str, int]:
    return message["headers"]["changeSequence"], message["headers"]["transactionEventCounter"]


def rows_of(source: Source) -> dict[str, list[dict[str, Any]]]:
    return {table.full_name: rows for table, rows in source.snapshot()[1]}


# --- messages --------------------------------------------------------------------------------------------------------


def test_the_stream_begins_with_structures_and_every_row(tmp_path: Path) -> None:
    """K-10, K-16, K-18, K-43: metadata first in its partition, then REFRESH; some rows twice."""
    source, kept = Source.create(tmp_path / "s.db", seed=2, rows=30), Kept()
    sent = source.load(kept)
    assert (sent["rows"], sent["messages"]) == (120, len(kept.parcels))
    announced = [json.loads(one.content) for one in kept.parcels if one.key is None]
    assert {one["message"]["lineage"]["table"] for one in announced} == {table.name for table in SHOP_TABLES}
    refreshed = [message for _, message in kept.messages()]
    assert {one["headers"]["operation"] for one in refreshed} == {"REFRESH"}
    distinct = {json.dumps(one["data"], sort_keys=True) for one in refreshed}
    assert len(distinct) == 120 < len(refreshed)
    assert all(counts["duplicates"] for counts in source.report()["tables"].values())


def test_a_stream_begins_once(tmp_path: Path) -> None:
    source = Source.create(tmp_path / "s.db", seed=2, rows=3)
    source.load(Kept())
    with pytest.raises(SourceError, match="has begun"):
        source.load(Kept())
    other = Source.create(tmp_path / "o.db", seed=2, rows=3)
    other.run(Kept(), transactions=1)
    with pytest.raises(SourceError, match="has begun"):
        other.load(Kept())


@settings(derandomize=True, deadline=None, max_examples=12)
@given(seed=st.integers(0, 500), transactions=st.integers(20, 60))
def test_messages_of_a_row_keep_their_order_and_those_of_a_slow_partition_come_late(
    seed: int, transactions: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """K-31, K-40, K-41, K-43: order in a partition but for what is sent again; every table has each kind."""
    source = Source.create(tmp_path_factory.mktemp("s") / "s.db", seed, rows=20)
    first, second = Kept(), Kept()
    source.load(Kept())
    withheld = source.run(first, transactions=transactions, hold_back=True)["withheld"]
    source.run(second, transactions=0)
    assert withheld and source.report()["withheld"] == 0
    for name, counts in source.report()["tables"].items():
        wanted = ("inserts", "updates", "deletes", "key_changes", "duplicates", "replays", "late_events")
        assert all(counts[what] for what in wanted), (name, counts)
        assert counts["split_events"] == 0
    assert len({partition for partition, _ in second.messages()}) == 1, "one broker was slow"
    early = {place(message) for _, message in first.messages()}
    assert min(place(message) for _, message in second.messages()) < max(early)
    for partition in range(PARTITIONS):
        seen: set[tuple[str, int]] = set()
        newest = ("", 0)
        for _, message in [one for one in (*first.messages(), *second.messages()) if one[0] == partition]:
            assert place(message) in seen or place(message) > newest, "only what was sent before goes back"
            seen.add(place(message))
            newest = max(newest, place(message))


def test_messages_that_a_broker_did_not_take_stay_in_the_outbox(tmp_path: Path) -> None:
    """At least once: what is committed is sent by the next command, in the same order."""
    source, kept = Source.create(tmp_path / "s.db", seed=1, rows=5), Kept()

    class Refusing(Kept):
        def send(self, parcels: Sequence[Parcel]) -> int:
            if parcels:
                raise ShippingError("nobody answers")
            return 0

    with pytest.raises(ShippingError):
        source.run(Refusing(), transactions=3)
    assert source.report()["transactions"] == 3
    source.run(kept, transactions=0)
    twin, expected = Source.create(tmp_path / "t.db", seed=1, rows=5), Kept()
    twin.run(expected, transactions=3)
    assert kept.parcels == expected.parcels


def test_a_producer_says_what_did_not_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    class Producer:
        def __init__(self, options: dict[str, Any]) -> None:
            assert options["enable.idempotence"], "the order of a partition is kept"

        def produce(self, topic: str, value: bytes, key: bytes, partition: int, on_delivery: Any) -> None:
            on_delivery("no leader" if partition else None, None)

        def poll(self, _seconds: float) -> None:
            pass

        def flush(self, _seconds: float) -> int:
            return 0

    monkeypatch.setattr("workload_generator.qlik_message_shipping.Producer", Producer)
    shipping = MessageShipping("host:1", "shop")
    assert shipping.send([]) == 0
    assert shipping.send([Parcel("0", b"k", b"v")]) == 0
    with pytest.raises(ShippingError, match="shop at host:1: no leader"):
        shipping.send([Parcel("0", b"k", b"v"), Parcel("1", b"k", b"v")])


# --- change tables ---------------------------------------------------------------------------------------------------


# --- all of them -----------------------------------------------------------------------------------------------------


def shippings(folder: Path) -> list[Shipping]:
    return [CaptureShipping(folder / "capture"), ChangeFileShipping(folder / "target"), Kept()]


def test_a_source_speaks_one_format_all_its_life(tmp_path: Path) -> None:
    for number, shipping in enumerate(shippings(tmp_path)):
        source = Source.create(tmp_path / f"{number}.db", seed=6, rows=3)
        source.run(shipping, transactions=2)
        before = rows_of(source)
        for other in shippings(tmp_path):
            if other.name != shipping.name:
                with pytest.raises(SourceError, match=f"speaks {shipping.name}, not {other.name}"):
                    source.run(other, transactions=2)
        assert rows_of(source) == before


def test_the_command_line_wants_exactly_one_way(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = ("--state", str(tmp_path / "s.db"))
    for ways in ([], ["--capture", "a", "--kafka", "b:1"]):
        with pytest.raises(SystemExit) as ended:
            main(["run", *state, *ways])
        assert ended.value.code == 2
    assert "not allowed with argument" in capsys.readouterr().err
