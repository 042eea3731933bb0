"""What is taken from blocks and what the exact decoder makes of the rest are what it makes of all rows."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from open_mirroring.changes.column_choice import ALL_COLUMNS, ColumnChoice
from spark_jobs.changelog.schema import LogRow
from spark_jobs.sources.contract.decoded import MirroredTable
from spark_jobs.sources.contract.fast_decoder import Taken
from spark_jobs.sources.qlik.change_table.blocks import TextBlock, cut_blocks
from spark_jobs.sources.qlik.change_table.decoder import ChangeTableSettings, QlikChangeTableDecoder
from spark_jobs.sources.qlik.change_table.fast_path import FastChangeRows
from spark_jobs.sources.qlik.change_table.rows import ChangeRow, Structure
from spark_jobs.sources.sql_server.json_columns import json_lists, json_objects
from tests.qlik_change_rows import ITEMS, NAMES, TABLE, mask, row, sequence

BINARY = Structure(TABLE, ITEMS.columns, True)
BARE = Structure(TABLE, tuple(c for c in ITEMS.columns if not c.name.endswith(("mask", "operation"))))
TIMED = Structure(TABLE, tuple(c._replace(type="datetime2(7)") if c.name == "id" else c for c in ITEMS.columns))
TYPED = Structure(TABLE, tuple(c._replace(type="decimal(9,2)") if c.name == "id" else c for c in ITEMS.columns))

STRANGE: dict[str, st.SearchStrategy[Any]] = {
    "sequence": st.sampled_from(["", f" {sequence(2)}", sequence(3)[1:], "٣" * 35, "x" * 35]),
    "no sequence": st.none(),
    "oper": st.sampled_from([None, "X", " U", "u", "B"]),
    "name": st.sampled_from([None, "TRUNCATE", "update", "DELETE"]),
    "id": st.sampled_from(["-7", "007", "+1", "-0", "12345678901", "", "a", None]),
    "mask": st.sampled_from([mask(0), mask(99), "", "zz", "0x40", "4020"]),
    "order": st.none(),
    "twice": st.none(),
}
masks = st.none() | st.sampled_from([mask(6), mask(5), mask(6, 8), mask(5, 6), "0040", "2000", "4000", "00"])
texts = st.one_of(
    st.none(), st.sampled_from(["", "a", "é😀", '"', "\\", "\n", "\x00", "\x1f", "\x7f", "null", '","', "\\u0041"])
)


@st.composite
def change_rows(draw: st.DrawFn) -> list[ChangeRow]:
    """Rows in the order of their sequences; what is strange is so in a few ways, and in a few rows."""
    structure = draw(st.sampled_from([ITEMS, BINARY, BARE, TYPED]))
    strange = draw(st.sets(st.sampled_from(sorted(STRANGE)), max_size=2))
    has_images, has_masks = draw(st.sampled_from([True, True, False, None])), draw(st.booleans())

    def drawn(field: str, usual: Any) -> Any:
        return draw(STRANGE[field]) if field in strange and not draw(st.integers(0, 3)) else usual

    rows = []
    for _ in range(draw(st.integers(1, 10))):
        oper = drawn("oper", draw(st.sampled_from("IUUD")))
        name = drawn("name", NAMES.get(oper or ""))
        number = drawn("sequence", drawn("no sequence", draw(st.integers(1, 7).map(sequence))))
        key = drawn("id", draw(st.sampled_from("123")))
        bits = drawn("mask", draw(masks) if has_masks else None)
        one = row("", "", [key, *(draw(texts) for _ in range(3))], bits=bits, structure=structure, operation=name)
        rows.append(with_header(one, change_seq=number, change_oper=oper))
        if oper == "U" and (draw(st.booleans()) if has_images is None else has_images):
            old = drawn("id", key)
            other = row("", "B", [old, *(draw(texts) for _ in range(3))], structure=structure)
            rows.append(with_header(other, change_seq=number))
        if "twice" in strange and not draw(st.integers(0, 3)):
            rows.append(draw(st.sampled_from(rows)))
    if "order" not in strange:
        rows.sort(key=lambda one: (one.values[0] is not None, one.values[0] or "", one.values[1] or ""))
    return [one._replace(place=place) for place, one in enumerate(rows, 7)]


def with_header(one: ChangeRow, **header: str | None) -> ChangeRow:
    names = [column.name for column in one.structure.columns]
    values = list(one.values)
    for name, value in header.items():
        values[names.index(f"header__{name}")] = value
    return one._replace(values=tuple(values))


def block_of(rows: Sequence[ChangeRow]) -> TextBlock:
    columns = [pa.array(column, pa.string()) for column in zip(*(one.values for one in rows), strict=True)]
    texts = pa.RecordBatch.from_arrays(columns, [f"c{at}" for at in range(len(columns))])
    return TextBlock(rows[0].origin, rows[0].place, rows[0].structure, texts)


def in_order(rows: Sequence[LogRow]) -> list[LogRow]:
    return sorted(rows, key=lambda one: (one.place, one.pos or "", one.kind))


def assert_decoded_alike(rows: list[ChangeRow], decoder: QlikChangeTableDecoder) -> Taken:
    exact, block = decoder.decode(rows), block_of(rows)
    found = FastChangeRows(decoder).take(block)
    numbers = np.delete(np.arange(len(rows)), found.taken)
    left = block.messages(numbers)
    assert left == [rows[at] for at in numbers.tolist()]
    rest = decoder.decode(left)
    changes = [LogRow(**line) for line in found.rows.to_pylist()]
    assert in_order([*changes, *rest.rows]) == in_order(exact.rows)
    taken = Counter(messages=len(changes) + found.images, changes=len(changes), metadata=found.images)
    assert taken + Counter(rest.counts._asdict()) == +Counter(exact.counts._asdict())
    return found


decoders = st.builds(
    lambda key, columns, kept, chosen: QlikChangeTableDecoder(
        {TABLE: MirroredTable(TABLE, key, columns, kept)}, chosen
    ),
    st.sampled_from([("id",), ("id",), ("name", "id"), (), ("missing",)]),
    st.sampled_from(
        [
            ALL_COLUMNS,
            ColumnChoice(("id", "name")),
            ColumnChoice(types=(("id", "string"),)),
            ColumnChoice(extra=(("commit_time", "committed"),)),
        ]
    ),
    st.booleans(),
    st.builds(
        ChangeTableSettings,
        load=st.sampled_from(["1", "7"]),
        mask_order=st.sampled_from(["auto", "auto", "msb_text", "le_bytes"]),
        sparse_updates=st.sampled_from([False] * 5 + [True]),
        before_images=st.sampled_from([None, None, False, True]),
    ),
)


@settings(derandomize=True, deadline=None, max_examples=200)
@given(rows=change_rows(), decoder=decoders)
def test_any_rows_are_decoded_alike(rows: list[ChangeRow], decoder: QlikChangeTableDecoder) -> None:
    """T-11, T-13, T-15, T-19, T-24, T-60: the exact decoder is the definition, whatever comes."""
    assert_decoded_alike(rows, decoder)


def decoder(key: tuple[str, ...] = ("id",), **chosen: Any) -> QlikChangeTableDecoder:
    return QlikChangeTableDecoder({TABLE: MirroredTable(TABLE, key)}, ChangeTableSettings(**chosen))


def placed(*rows: ChangeRow) -> list[ChangeRow]:
    return [one._replace(place=place) for place, one in enumerate(rows)]


PAIR = (row(1, "B", ["1", "a", "1", None]), row(1, "U", ["1", "b", "1", None]))
OTHER_PAIR = (row(1, "B", ["1", "c", "1", None]), row(1, "U", ["1", "d", "1", None]))
KEYS = ("1", "-2", "007", "-0", "99999999999", "x", None)


def lost(key: str) -> ChangeRow:
    """A row without sequence."""
    return with_header(row(0, "I", [key, "a", "1", None]), change_seq=None)


ORDINARY = placed(
    row(1, "I", ["1", 'a "b"\\', "1.00", None]),
    row(2, "B", ["1", "a", "1.00", None]),
    row(2, "U", ["1", "c", "1.00", None], bits=mask(6)),
    row(3, "D", ["1", None, None, None]),
    row(4, "D", ["2", "told", None, None]),
)


@pytest.mark.parametrize(
    ("rows", "chosen", "left"),
    [
        (ORDINARY, {}, []),
        # T-19: without before images the mask says that the key stays.
        ([row(1, "U", ["1", "c", "1.00", None], bits=mask(6)), row(2, "I", ["3"] * 4)], {}, []),
        # T-11: a key change has two rows of the log, and is read exactly; nothing else of the block is.
        ([*ORDINARY, row(5, "B", ["1", "a", "1", None]), row(5, "U", ["2", "a", "1", None], bits=mask(5))], {}, [5, 6]),
        # T-12: an unknown operation is a dead letter.
        ([*ORDINARY, row(5, "X", ["1", "a", "1", None])], {}, [5]),
        # T-19: a before image without its UPDATE waits.
        ([*ORDINARY, row(5, "B", ["1", "a", "1", None])], {}, [5]),
        # T-19: before images are stored, so that of this UPDATE will come: all is judged together.
        ([*ORDINARY, row(5, "U", ["1", "a", "1", None])], {}, [0, 1, 2, 3, 4, 5]),
        ([row(5, "U", ["1", "a", "1", None])], {"before_images": True}, [0]),
        # T-60: without mask nothing tells whether the key changed; a mask without a digit is none.
        ([row(1, "I", ["3"] * 4), row(5, "U", ["1", "a", "1", None])], {}, [0, 1]),
        ([row(1, "I", ["3"] * 4), row(5, "U", ["1", "a", "1", None], bits="")], {"before_images": False}, [0, 1]),
        # T-13: what is no mask is a dead letter, of an insert as well; an empty one is none.
        ([row(1, "I", ["3"] * 4, bits="zz"), row(2, "D", ["3"] * 4, bits=""), row(3, "I", ["4"] * 4)], {}, [0]),
        # T-21: the mask of an insert or delete names something; T-63: that of an update all that changed.
        ([row(1, "I", ["3"] * 4, bits="00"), row(2, "D", ["3"] * 4, bits="00"), row(3, "I", ["4"] * 4)], {}, [0, 1]),
        ([*PAIR[:1], PAIR[1]._replace(values=row(1, "U", ["1", "b", "1", None], bits=mask(7)).values), *ORDINARY[1:3]],
         {}, [0, 1]),
        ([row(1, "B", ["1", None, "1", "x"]), row(1, "U", ["1", None, "1", "y"], bits="00"), *ORDINARY[1:3]], {}, []),
        ([row(1, "B", ["1", "a", "1", None]), row(1, "U", ["1", None, "1", None], bits=mask(7)), *ORDINARY[1:3]],
         {}, [0, 1]),
        # T-24: how a mask is read is judged from all that come together; this one leaves no choice but the second.
        ([row(1, "U", ["1", "a", "1", None], bits="2040")], {"mask_order": "le_bytes"}, [0]),
        ([row(1, "B", ["1", "a", "1", None]), row(1, "U", ["1", "b", "1", None], bits="zz")], {}, [0, 1]),
        # T-11: two before images of one sequence contradict each other, wherever they stand.
        ([*PAIR, ORDINARY[3], *OTHER_PAIR], {}, [0, 1, 2, 3, 4]),
        ([*PAIR, lost("1"), *OTHER_PAIR], {}, [0, 1, 2, 3, 4]),
        ([lost("1"), *ORDINARY], {}, [0]),
        # G-02: keys that are spelled otherwise than their canonical text, or are none.
        ([row(n, "I", [key, "a", "1", None]) for n, key in enumerate(KEYS)], {}, [2, 3, 4, 5, 6]),
        # T-32: what a NULL means is judged row by row.
        (ORDINARY, {"sparse_updates": True}, [0, 1, 2, 3, 4]),
    ],
)  # fmt: skip
def test_what_is_taken(rows: list[ChangeRow], chosen: dict[str, Any], left: list[int]) -> None:
    """Ordinary rows are not left: else this would be the exact decoder with more to do."""
    rows = placed(*rows)
    assert assert_decoded_alike(rows, decoder(**chosen)).taken.tolist() == [
        at for at in range(len(rows)) if at not in left
    ]


@settings(derandomize=True, deadline=None, max_examples=80)
@given(rows=change_rows(), cuts=st.lists(st.integers(0, 20), max_size=5))
def test_blocks_are_cut_between_sequences(rows: list[ChangeRow], cuts: list[int]) -> None:
    """T-11: wherever batches end, no row is lost and no ``change_seq`` in a row is divided."""
    whole, blocks = block_of(rows).texts, []
    add = cut_blocks("file", rows[0].structure, "header__", blocks.append)
    borders = sorted({0, len(rows), *(cut % (len(rows) + 1) for cut in cuts)})
    for start, end in pairwise(borders):
        add(whole.slice(start, end - start))
    add(None)
    found = [one for block in blocks for one in block.messages(np.arange(block.texts.num_rows))]
    assert found == [one._replace(place=place) for place, one in enumerate(rows)]
    for one, other in pairwise(blocks):
        last = one.texts.column(0)[-1]
        assert not last.is_valid or last != other.texts.column(0)[0]


@settings(derandomize=True, deadline=None, max_examples=80)
@given(st.lists(st.tuples(st.none() | st.text(max_size=5), texts), min_size=1, max_size=6))
def test_json_is_what_a_json_writer_writes(lines: list[tuple[str | None, str | None]]) -> None:
    """G-06: every character of a value, and NULL told from every text."""
    names = ['a"b', "é"]
    columns = [pa.array(column, pa.string()) for column in zip(*lines, strict=True)]
    written = [json.dumps(dict(zip(names, line, strict=True)), ensure_ascii=False) for line in lines]
    assert [json.loads(text) for text in json_objects(names, columns).to_pylist()] == [json.loads(t) for t in written]
    compact = [json.dumps(line, ensure_ascii=False, separators=(",", ":")) for line in lines]
    assert json_lists(columns).to_pylist() == compact
    half = [column.slice(1) for column in columns]
    assert json_lists(half).to_pylist() == compact[1:]


def test_a_time_as_a_key_is_taken_as_the_exact_decoder_reads_it_g02_k66() -> None:
    at = "2024-01-01 12:00:0{}"
    texts = [at.format(end) for end in ("1", "2.1234560", "3.1234567", "4.12345678", "x")]
    rows = [row(n, "I", (text, "a", "1.00", None), structure=TIMED) for n, text in enumerate(texts, 1)]
    found = assert_decoded_alike(placed(*rows), decoder())
    assert found.rows.num_rows == 2
