"""Clauses of the message format that say what a member does not mean: ids, times and marks that decide nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.changelog.schema import LogRow
from spark_jobs.sources.ces import avro as ces_avro
from spark_jobs.sources.contract.decoded import Dispositions, MirroredTable
from tests.ces_messages import COLS, GUID, ROW, avro, avro_event, decode, envelope, event, only, payload


def transacted(encoding: str, **members: Any) -> bytes:
    """An event whose transaction block says *members*."""
    data = payload(ROW)
    data["eventsource"]["transaction"] |= members
    if encoding == "json":
        return event(replaced={"data": json.dumps(data)})
    return avro(ces_avro.CHANGE_EVENT, envelope("INS", avro(ces_avro.DATA_WITH_FINALEVENT, data)))


@pytest.mark.parametrize("encode", [event, avro_event])
def test_the_id_of_a_message_is_no_identity_c13_c31(encode: Any) -> None:
    """A resend need not keep the id, and one that is kept proves nothing: `logicalid` is what a change is known by."""
    resent = decode(encode(replaced={"id": "one"}), encode(replaced={"id": "two"})).rows
    assert resent[0]._replace(place=1) == resent[1]
    one, other = decode(*(encode(replaced={"id": "one"}, commit=commit) for commit in (16, 17))).rows
    assert (one.kind, other.kind) == ("change", "change")
    assert one.pos != other.pos


def test_source_is_the_same_everywhere_and_decides_nothing_c12() -> None:
    assert only(decode(event(replaced={"source": "/elsewhere"}))) == only(decode(event()))


@pytest.mark.parametrize("time", [..., "", "no time", "2031-01-01T00:00:00Z", None])
def test_the_time_of_an_event_is_information_only_c15(time: Any) -> None:
    """It may be missing too: nothing is ordered, bound or refused by it."""
    assert only(decode(event(replaced={"time": time}))) == only(decode(event()))
    if isinstance(time, str):
        assert only(decode(avro_event(replaced={"time": time}))) == only(decode(avro_event()))


@pytest.mark.parametrize("encoding", ["json", "avro"])
def test_the_mark_of_a_final_event_is_not_in_use_and_ignored_c47(encoding: str) -> None:
    final, other = (only(decode(transacted(encoding, finalevent=mark))) for mark in (True, False))
    assert final == other == only(decode(event()))


@pytest.mark.parametrize("encoding", ["json", "avro"])
def test_the_commit_time_decides_nothing_for_it_is_local_time_called_utc_c48(encoding: str) -> None:
    times = ["1999-12-31T23:59:59.999Z", "2026-08-07T18:30:10.123Z"]
    rows = [only(decode(transacted(encoding, committime=time))) for time in times]
    assert rows == [only(decode(event()))] * 2


def test_only_the_changed_value_of_a_table_without_primary_key_is_no_row_c72() -> None:
    """Nothing says which row it was: a dead letter without key, which stops the table when it is recorded."""
    table = MirroredTable("dbo.orders", ("id",))
    data = payload({"price": "2.00"}, {"price": "1.00"}, cols=[COLS[2]])
    decoded = decode(event("UPD", replaced={"data": json.dumps(data)}), tables=[table])
    assert decoded.counts == Dispositions(1, rejected=1)
    assert (only(decoded).code, only(decoded).tbl, only(decoded).key) == ("KEY_INVALID", "dbo.orders", None)


PLACES = st.tuples(
    st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**16 - 1), st.integers(1, 2**31 - 1)
)


def at(place: tuple[int, int, int, int], spell: Any) -> LogRow:
    *lsn, sequence = place
    digits = spell("{:08X}{:08X}{:04X}".format(*lsn))
    transaction = {"commitlsn": spell("{:08X}:{:08X}:{:04X}".format(*lsn)), "sequencenumber": sequence}
    data = payload(ROW)
    data["eventsource"]["transaction"] |= transaction
    logical_id = f"{GUID}:{digits}:{sequence:020d}"
    return only(decode(event(replaced={"logicalid": logical_id, "data": json.dumps(data)})))


@settings(derandomize=True, deadline=None, max_examples=150)
@given(st.lists(PLACES, min_size=2, max_size=6), st.sampled_from([str.upper, str.lower]))
def test_positions_sort_as_text_like_log_sequence_numbers_c30_c32(places: list[Any], spell: Any) -> None:
    """Commit first, place in it second, each as a number, whatever the spelling of the hexadecimal digits."""
    assert sorted(places) == sorted(places, key=lambda place: at(place, spell).pos or "")
    assert {at(place, str.upper).pos for place in places} == {at(place, str.lower).pos for place in places}
