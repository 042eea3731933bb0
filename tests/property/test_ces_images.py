"""Names and values of any text come through unchanged, in JSON and in Avro; the fast reader equals the exact one."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from open_mirroring.changes.row_key import encode_key
from spark_jobs.sources.contract.decoded import MirroredTable
from tests.ces_messages import avro_event, decode, event

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
HOSTILE = st.sampled_from(
    [
        "'; DROP TABLE x; --",
        "../../etc/passwd",
        '"',
        "\\",
        "a.b",
        "__rowMarker__",
        "\u202e",
        "é",
        "e\u0301",
        "$",
        "{}",
        " ",
    ]
)
NAMES = st.lists(st.one_of(HOSTILE, TEXT.filter(bool)), min_size=1, max_size=6, unique=True)


@settings(derandomize=True, deadline=None, max_examples=150)
@given(NAMES, st.data(), st.booleans(), st.sampled_from([None, 1]))
def test_hostile_names_and_values_survive(
    names: list[str], data: st.DataObject, ascii_only: bool, indent: int | None
) -> None:
    cols = [(name, "nvarchar(max)") for name in names]
    values: dict[str, str | None] = {name: data.draw(st.none() | TEXT) for name in names}
    values[names[0]] = data.draw(TEXT)
    image = json.dumps(values, ensure_ascii=ascii_only, indent=indent)
    table = MirroredTable("dbo.orders", (names[0],))
    for body in (event("INS", image, cols=cols), avro_event("INS", image, cols=cols)):
        (row,) = decode(body, tables=[table]).rows
        assert row.kind == "change", row
        assert list(json.loads(row.row or "").items()) == list(values.items())
        assert json.loads(row.cols or "") == [[name, "nvarchar(max)", index] for index, name in enumerate(names)]
        assert row.key == encode_key([values[names[0]] or ""])


@settings(derandomize=True, deadline=None, max_examples=200)
@given(st.lists(TEXT, max_size=4))
def test_keys_are_compact_json_and_read_back_g02(texts: list[str]) -> None:
    assert encode_key(texts) == json.dumps(texts, ensure_ascii=False, separators=(",", ":"))
    assert json.loads(encode_key(texts)) == texts


@settings(derandomize=True, deadline=None, max_examples=200)
@given(st.binary(max_size=200))
def test_no_bytes_stop_the_decoder(noise: bytes) -> None:
    decoded = decode(noise, event())
    assert decoded.counts.messages == 2
    assert decoded.counts.changes == 1
    assert decoded.rows[0].raw == noise
    assert decoded.rows[0].code
