"""Qlik change tables: what each row becomes (T-10 to T-33, G-03, G-04)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import permutations
from pathlib import Path

import pytest

from spark_jobs.changelog.schema import LogRow
from spark_jobs.sources.contract.decoded import Damage, Decoded, MirroredTable, TableDamage, Unjoinable, Waiting
from spark_jobs.sources.qlik.change_table.rows import ChangeColumn, ChangeRow, RowLayout, Structure, read_row
from spark_jobs.sources.qlik.change_table.updates import read_mask
from spark_jobs.sources.qlik.positions import qlik_position
from tests.noted_facts import ignored
from tests.qlik_change_rows import DATA, HEADERS, ITEMS, TABLE, decoder, mask, row, sequence

OLD, NEW = ("1", "old", "1.00", None), ("1", "new", "1.00", None)
MOVED = ("2", "old", "1.00", None)
KEY_BIT, NAME_BIT, PRICE_BIT = 5, 6, 7


def only(decoded: Decoded) -> LogRow:
    (found,) = decoded.rows
    return found


def image(text: str | None) -> dict[str, str | None]:
    return json.loads(text or "null")


def test_t12_t21_insert_update_and_delete_become_changes() -> None:
    """T-12, T-30: an INSERT has the whole row; T-21: a DELETE needs its key only; T-10: ordered by sequence."""
    decoded = decoder().decode(
        [
            row(1, "I", OLD, place=7),
            row(2, "U", NEW, bits=mask(NAME_BIT)),
            row(3, "D", ("1", None, None, None), bits=mask(KEY_BIT)),
            row(4, "D", OLD),
        ]
    )
    assert decoded.counts == (4, 4, 0, 0, 0, 0)
    insert, update, delete, story = decoded.rows
    assert (insert.op, insert.pos, insert.epoch, insert.tbl) == ("I", qlik_position(sequence(1), 1), "1", TABLE)
    assert (insert.origin, insert.place, insert.key, insert.whole) == ("file", 7, '["1"]', True)
    assert image(insert.row) == {"id": "1", "name": "old", "price": "1.00", "note": None}
    assert image(insert.cols)[:2] == [["id", "int", 0], ["name", "varchar(100)", 1]]
    assert (update.op, update.pos, update.whole) == ("U", qlik_position(sequence(2), 1), True)
    assert (delete.op, delete.pos, delete.key, delete.before) == ("D", qlik_position(sequence(3), 0), '["1"]', None)
    assert image(story.before)["name"] == "old"


def test_g01_the_load_is_the_epoch() -> None:
    """T-31: a reload is a load of another name, whose changes are compared with the older ones by nothing else."""
    assert only(decoder(load="7").decode([row(1, "I", OLD)])).epoch == "7"


def test_t11_a_before_image_is_used_with_its_update_and_makes_no_row() -> None:
    """T-11: both have one change_seq, in any order."""
    pair = [row(1, "B", OLD), row(1, "U", NEW)]
    for rows in (pair, pair[::-1], [*pair, *pair]):
        decoded = decoder().decode(rows)
        assert {(r.op, r.key) for r in decoded.rows} == {("U", '["1"]')}
        assert decoded.counts.metadata == decoded.counts.changes == len(rows) // 2


def test_g03_an_update_of_the_key_leaves_the_old_key_and_sets_the_new_one() -> None:
    """G-03: the old key leaves with sub 0, before the row of the new one with sub 1; a swap tells its before image."""
    left, new = decoder().decode([row(1, "B", OLD), row(1, "U", MOVED)]).rows
    assert (left.op, left.key, left.pos) == ("K", '["1"]', qlik_position(sequence(1), 0))
    assert image(left.before) == {"id": "1", "name": "old", "price": "1.00"}, "T-25: a large object may not be sent"
    assert (new.op, new.key, new.pos) == ("U", '["2"]', qlik_position(sequence(1), 1))


@pytest.mark.parametrize("bits", [mask(KEY_BIT, NAME_BIT), mask(KEY_BIT, NAME_BIT, PRICE_BIT), None])
def test_t94_an_old_row_that_has_its_key_alone_shows_nothing_else_whatever_the_mask_says(bits: str | None) -> None:
    """A source that logs the keys of old rows alone leaves all else NULL."""
    alone = ("1", None, None, None)
    left, new = decoder().decode([row(1, "B", alone), row(1, "U", ("2", "new", None, None), bits=bits)]).rows
    assert (left.op, image(left.before), new.op) == ("K", {"id": "1"}, "U")


def test_g02_two_spellings_of_one_key_are_no_key_change() -> None:
    key = decoder(key=("price",))
    decoded = key.decode([row(1, "B", ("1", "a", "1.0", None)), row(1, "U", ("1", "b", "01.00", None))])
    assert [(r.op, r.key) for r in decoded.rows] == [("U", '["1.00"]')]


@pytest.mark.parametrize("moved", [False, True])
def test_t11_t25_halves_in_different_calls_wait_for_each_other(moved: bool) -> None:
    """A B alone waits; so does a U whose mask names the key (T-25); joined they are what they are together."""
    one = decoder()
    after = MOVED if moved else NEW
    before = only(one.decode([row(1, "B", OLD, place=3)]))
    update = only(one.decode([row(1, "U", after, bits=mask(KEY_BIT, NAME_BIT), place=4)]))
    for half in (before, update):
        assert (half.kind, half.fragment_of) == ("fragment", f"{TABLE}:{sequence(1)}")
        assert (half.epoch, half.pos) == ("1", qlik_position(sequence(1), 0))
    assert one.join([before]) == one.join([update, update]) == Waiting()
    together = one.decode([row(1, "B", OLD, place=3), row(1, "U", after, bits=mask(KEY_BIT, NAME_BIT), place=4)])
    for pieces in permutations([before, update, before, update]):
        joined = one.join(pieces)
        assert isinstance(joined, Decoded)
        assert joined.rows == together.rows
        assert joined.counts == (4, 2, 0, 2, 0, 0)


def test_a_fragment_keeps_its_row_exactly() -> None:
    given = row(1, "B", ("1", "ü\u2028", None, ""), place=3)
    half = only(decoder().decode([given]))
    assert read_row("file", 3, half.raw or b"") == given


def test_an_update_that_surely_keeps_its_key_does_not_wait() -> None:
    """T-25: its mask does not name the key; T-60: the mirror file says so, or there is no key."""
    assert only(decoder().decode([row(1, "U", NEW, bits=mask(NAME_BIT))])).op == "U"
    assert only(decoder(keys_never_change=True).decode([row(1, "U", NEW)])).op == "U"
    assert only(decoder(key=()).decode([row(1, "U", NEW)])).op == "U"
    assert only(decoder(key=()).decode([row(1, "U", NEW, bits=mask(KEY_BIT))])).op == "U"


@pytest.mark.parametrize("bits", [None, "", " ", "0x"])
@pytest.mark.parametrize("before_images", [None, False])
def test_t60_a_change_of_the_key_that_nothing_shows_stops_the_table(bits: str | None, before_images: bool) -> None:
    """Neither mask nor before image: the row of an old key would stay for ever, so no key is reported."""
    letter = only(decoder(before_images=before_images).decode([row(1, "U", NEW, bits=bits)]))
    assert (letter.kind, letter.code, letter.tbl, letter.key) == ("rejected", "OLD_KEY_MISSING", TABLE, None)
    assert (letter.bucket, letter.pos) == (-1, qlik_position(sequence(1), 1))
    promised = decoder(before_images=before_images, keys_never_change=True)
    assert only(promised.decode([row(1, "U", NEW, bits=bits)])).op == "U"
    # The promise concerns what nothing tells: a mask that names the key is believed.
    assert only(promised.decode([row(1, "U", NEW, bits=mask(KEY_BIT))])).kind == "fragment"


def test_t19_without_mask_the_other_rows_show_whether_before_images_are_stored() -> None:
    """A pair cut in two must not lose its key change: where other updates have images, this one waits for its own."""
    alone = row(3, "U", MOVED)
    decoded = decoder().decode([row(1, "B", OLD), row(1, "U", NEW), alone])
    assert [r.kind for r in decoded.rows] == ["change", "fragment"]
    assert only(decoder(before_images=True).decode([alone])).kind == "fragment"
    never = decoder(before_images=False).decode([row(1, "B", OLD), row(1, "U", NEW), alone])
    assert [r.kind for r in never.rows] == ["change", "rejected"]


def test_t19_an_image_that_comes_apart_shows_the_key_that_its_update_left() -> None:
    """T-11, G-03: a broken promise (T-60) for which an UPDATE that came alone was taken for one that kept its key."""
    one = decoder(keys_never_change=True)
    update = only(one.decode([row(1, "U", MOVED)]))
    before, same = (only(one.decode([row(1, "B", values)])) for values in (OLD, MOVED))
    logged = {(update.op or "", update.key)}
    (left,) = one.late_rows([before], logged)
    assert (left.kind, left.op, left.key, left.pos) == ("change", "K", '["1"]', qlik_position(sequence(1), 0))
    assert image(left.before) == {"id": "1", "name": "old", "price": "1.00"}, "T-25: a large object may not be sent"
    assert one.late_rows([same], logged) == []
    assert one.late_rows([before], {*logged, ("K", '["1"]')}) == [], "the pair was read before: it came again"
    assert one.late_rows([before], {("D", '["2"]')}) == []


def test_what_waited_too_long_is_a_dead_letter_that_stops_its_table() -> None:
    """U without B, B without U: which row the missing half meant is unknown, so the key stays open."""
    one = decoder()
    update = only(one.decode([row(1, "U", MOVED, bits=mask(KEY_BIT), place=9)]))
    before = only(one.decode([row(2, "B", OLD, origin="other", place=4)]))
    (letter,) = one.incomplete([update], "waited longer than 24:00:00")
    assert (letter.kind, letter.code, letter.tbl, letter.key) == ("rejected", "ROWS_MISSING", TABLE, None)
    assert "waited longer than 24:00:00" in str(letter.reason) and "Store before and after image" in str(letter.reason)
    assert (letter.origin, letter.place, letter.raw) == ("file", 9, update.raw)
    (letter,) = one.incomplete([before], "waited")
    assert (letter.code, letter.tbl, letter.origin, letter.place) == ("ROWS_MISSING", TABLE, "other", 4)
    assert "reload the table" in str(letter.reason)


def test_halves_that_contradict_are_refused() -> None:
    """G-02: one position has one content."""
    one = decoder()
    halves = [only(one.decode([row(1, "B", values)])) for values in (OLD, NEW)]
    joined = one.join(halves)
    assert isinstance(joined, Unjoinable)
    assert (joined.row.code, joined.row.tbl, joined.row.key) == ("FRAGMENTS_INCOMPLETE", TABLE, None)
    decoded = one.decode([row(1, "B", OLD), row(1, "B", NEW), row(1, "U", MOVED)])
    assert (only(decoded).code, decoded.counts) == ("ROWS_MISSING", (3, 0, 0, 2, 0, 1))


@pytest.mark.parametrize(
    ("befores", "after", "key"),
    [([OLD], NEW, '["1"]'), ([OLD], MOVED, None), ([OLD, NEW], MOVED, None), ([(None, *OLD[1:])], NEW, None)],
)
def test_an_unreadable_update_of_which_another_row_may_be_out_of_date_shows_no_key(
    befores: Sequence[Sequence[str | None]], after: Sequence[str | None], key: str | None
) -> None:
    """G-03, G-06: so the table stops; the new key alone would leave the old row behind for ever."""
    halves = [row(1, "B", values) for values in befores]
    letter = only(decoder().decode([*halves, row(1, "U", after, bits=mask(24))]))
    assert (letter.kind, letter.tbl, letter.key, letter.bucket >= 0) == ("rejected", TABLE, key, key is not None)


def test_t02_every_header_column_but_two_can_be_deselected_and_the_offset_shrinks() -> None:
    """T-02, T-20: header columns count for the mask, as many as there are."""
    few = Structure(TABLE, (HEADERS[0], HEADERS[1], HEADERS[2], *DATA))
    values = (sequence(1), "U", mask(3), *MOVED)
    assert only(decoder().decode([ChangeRow("f", 0, few, values)])).kind == "fragment"
    least = Structure(TABLE, (*HEADERS[:2], *DATA))
    assert only(decoder().decode([ChangeRow("f", 0, least, (sequence(1), "D", *MOVED))])).op == "D"
    for missing in (0, 1):
        columns = tuple(c for at, c in enumerate(least.columns) if at != missing)
        letter = only(decoder().decode([ChangeRow("f", 5, Structure(TABLE, columns), ("x",) * 5)]))
        assert (letter.code, letter.tbl, letter.place) == ("HEADER_INVALID", TABLE, 5)
        assert f"header__{('change_seq', 'change_oper')[missing]}" in str(letter.reason)


@pytest.mark.parametrize(("prefix", "spelled"), [("cdc_", "cdc_"), ("header__", "HEADER__"), ("", "")])
def test_t02_the_prefix_is_a_setting(prefix: str, spelled: str) -> None:
    headers = tuple(ChangeColumn(spelled + c.name.removeprefix("header__"), c.type) for c in HEADERS)
    structure = Structure(TABLE, headers + DATA)
    given = ChangeRow("f", 0, structure, row(1, "I", OLD).values)
    change = only(decoder(prefix=prefix).decode([given]))
    assert [name for name, *_ in image(change.cols)] == ["id", "name", "price", "note"]


def test_t61_a_column_of_the_source_that_begins_with_the_prefix_is_kept() -> None:
    """T-14 to T-18: header columns never reach the target; what is none of them is a column like any other."""
    for at in (len(HEADERS), len(HEADERS) + 2):
        columns = [*HEADERS, *DATA]
        columns.insert(at, ChangeColumn("header__anything", "int"))
        values = [*row(1, "U", OLD, bits=mask(at)).values]
        values.insert(at, "5")
        change = only(decoder().decode([ChangeRow("f", 0, Structure(TABLE, tuple(columns)), tuple(values))]))
        assert image(change.row) == {"id": "1", "name": "old", "price": "1.00", "note": None, "header__anything": "5"}
        assert [index for _, _, index in image(change.cols)] == list(range(5))


@pytest.mark.parametrize("extra", ["header__transaction_id", "HEADER__timestamp", "header__Change_Seq"])
def test_t61_a_column_that_may_be_of_the_header_or_of_the_source_stops_the_table(extra: str) -> None:
    """Behind a column of the source, or there twice: taken for a header column its values would vanish."""
    odd = Structure(TABLE, (*HEADERS, *DATA, ChangeColumn(extra, "varchar(128)")))
    given = ChangeRow("f", 0, odd, (*row(1, "I", OLD).values, "kept?"))
    letter = only(decoder().decode([given]))
    assert (letter.code, letter.tbl, letter.key) == ("HEADER_INVALID", TABLE, None)
    assert extra in str(letter.reason)
    assert only(decoder(columns=("id", "name")).decode([given])).op == "I", "nobody wants it"
    assert only(decoder(columns=("id", extra)).decode([given])).code == "HEADER_INVALID"


def test_t61_without_prefix_header_columns_stand_first_and_names_alone_show_nothing() -> None:
    """T-02: the fields behind the first column of the source are the source's, however they are called."""
    headers = tuple(ChangeColumn(c.name.removeprefix("header__"), c.type) for c in HEADERS)
    data = (*DATA, ChangeColumn("operation", "varchar(9)"), ChangeColumn("stream_position", "int"))
    given = ChangeRow("f", 0, Structure(TABLE, headers + data), (*row(1, "U", OLD, bits=mask(9)).values, "mine", "7"))
    change = only(decoder(prefix="").decode([given]))
    assert list(image(change.row).items())[-2:] == [("operation", "mine"), ("stream_position", "7")]
    late = Structure(TABLE, (*headers[:1], *data[:1], *headers[1:2], *data[1:]))
    assert only(decoder(prefix="").decode([ChangeRow("f", 0, late, ("x",) * 8)])).code == "HEADER_INVALID"


@pytest.mark.parametrize(
    ("oper", "bits", "code"),
    [
        ("I", "zz", "MASK_INVALID"),
        ("D", "none", "MASK_INVALID"),
        ("I", mask(9), "MASK_INVALID"),
        ("D", mask(0), "MASK_INVALID"),
    ],
)
def test_t13_a_mask_that_is_none_is_a_dead_letter_of_every_operation(oper: str, bits: str, code: str) -> None:
    """T-13, T-21: of inserts and deletes, too; an empty one is none, and says nothing."""
    letter = only(decoder().decode([row(1, oper, OLD, bits=bits)]))
    assert (letter.code, letter.tbl, letter.key) == (code, TABLE, '["1"]')
    assert only(decoder().decode([row(1, oper, OLD, bits="")])).op == oper
    assert only(decoder().decode([row(1, oper, OLD, bits=mask(KEY_BIT))])).op == oper


@pytest.mark.parametrize("bits", ["00", "0", "0x00"])
def test_t21_a_mask_of_an_insert_or_delete_that_names_nothing_contradicts_it(bits: str) -> None:
    """T-13: one without a digit is none; an update that changed nothing that is reported is sound."""
    for oper, pos in (("I", 1), ("D", 0)):
        letter = only(decoder().decode([row(1, oper, OLD, bits=bits)]))
        assert (letter.kind, letter.code, letter.key) == ("rejected", "MASK_INVALID", '["1"]')
        assert letter.pos == qlik_position(sequence(1), pos)
    assert only(decoder(key=()).decode([row(1, "D", OLD, bits=bits)])).op == "D", "there is no key to name"
    binary = ITEMS._replace(binary_mask=True)
    assert only(decoder().decode([row(1, "I", OLD, bits="00", structure=binary)])).op == "I", (
        "T-22: bytes may be missing"
    )
    assert only(decoder().decode([row(1, "B", OLD), row(1, "U", OLD, bits=bits)])).op == "U"


DENIED = [
    ("another value", OLD, NEW, mask(7), {}, "'name'"),
    ("a value is gone", OLD, ("1", None, "1.00", None), mask(7), {}, "'name'"),
    ("a value has come", ("1", None, "1.00", None), OLD, mask(7), {}, "'name'"),
    ("nothing is named", OLD, NEW, "00", {}, "'name'"),
    ("as bytes", OLD, NEW, "8000", {"structure": ITEMS._replace(binary_mask=True)}, "'name'"),
]
"""What contradicts: the old row, the new one, the mask, the rest of both rows, and the column that is reported."""
AGREED = [
    ("named", OLD, NEW, mask(6), {}),
    ("more than changed is named", OLD, NEW, mask(6, 7), {}),
    ("no mask", OLD, NEW, "", {}),
    ("one value, spelled in two ways", OLD, ("1", "old", "1.0", None), mask(6), {}),
    ("a large object, T-25", OLD, ("1", "new", "1.00", "long"), mask(6), {}),
]


@pytest.mark.parametrize(
    ("before", "after", "bits", "rest", "story"), [d[1:] for d in DENIED], ids=[d[0] for d in DENIED]
)
def test_t63_a_mask_that_denies_a_change_is_a_dead_letter_of_its_key(
    before: tuple[str | None, ...], after: tuple[str | None, ...], bits: str, rest: dict[str, Structure], story: str
) -> None:
    """T-11: together, or joined from two batches; the before image counts as metadata."""
    one = decoder()
    pair = [row(1, "B", before, place=3, **rest), row(1, "U", after, bits=bits, place=4, **rest)]  # type: ignore[arg-type]
    decoded = one.decode(pair)
    letter = only(decoded)
    assert (letter.kind, letter.code, letter.tbl, letter.key) == ("rejected", "MASK_INVALID", TABLE, '["1"]')
    assert story in str(letter.reason) and decoded.counts == (2, 0, 0, 1, 0, 1)
    assert only(one.decode([pair[0], pair[1]._replace(values=(*pair[1].values[:5], "2", *after[1:]))])).key is None
    assert only(decoder(key=(), columns=("id", "note")).decode(pair)).op == "U", "nobody wants the column"


@pytest.mark.parametrize(("before", "after", "bits", "rest"), [a[1:] for a in AGREED], ids=[a[0] for a in AGREED])
def test_t63_what_no_mask_denies_is_no_contradiction(
    before: tuple[str | None, ...], after: tuple[str | None, ...], bits: str, rest: dict[str, Structure]
) -> None:
    assert only(decoder().decode([row(1, "B", before), row(1, "U", after, bits=bits)])).op == "U"


def test_t63_a_key_that_the_mask_does_not_name_is_reported_by_both_images() -> None:
    """T-60: both rows are known, so nothing is lost; T-19: without a before image nothing contradicts."""
    rows = decoder().decode([row(1, "B", OLD), row(1, "U", MOVED, bits=mask(NAME_BIT))]).rows
    assert [(r.op, r.key) for r in rows] == [("K", '["1"]'), ("U", '["2"]')]
    assert only(decoder(before_images=False).decode([row(1, "U", ("1", None, "2", None), bits=mask(7))])).op == "U"


def test_t63_a_before_image_of_another_structure_is_compared_by_names() -> None:
    """T-33: a column that was added between the two is not told by the image."""
    wider = ITEMS._replace(columns=(*HEADERS, ChangeColumn("size", "int"), *DATA))
    before = row(1, "B", OLD)
    for name, bits, op in (("new", mask(7), "U"), ("new", mask(8), None), ("old", mask(8), "U")):
        given = row(1, "U", ("9", "1", name, "1.00", None), bits=bits, structure=wider)
        assert only(decoder().decode([before, given])).op == op


def test_g13_a_change_table_whose_name_differs_in_case_only_stops_its_table() -> None:
    """G-13, T-62: ignored as not mirrored, the table would stay empty without a word; others are counted by name."""
    other = [ITEMS._replace(table=name) for name in ("SHOP.Items", "shop.other", "shop.other")]
    decoded = decoder().decode([row(at, "I", OLD, structure=one) for at, one in enumerate(other, 1)])
    assert (decoded.counts, ignored(decoded.facts)) == ((3, 0, 0, 0, 2, 1), {"shop.other": 2})
    letter = only(decoded)
    assert (letter.code, letter.tbl, letter.key) == ("TABLE_NAME_DIFFERS", TABLE, None)
    assert read_row("file", 0, letter.raw or b"").structure.table == "SHOP.Items"


def test_damage_of_a_table_that_is_surely_not_mirrored_is_no_dead_letter() -> None:
    """G-06: of one that is mirrored in another case it is; where only the folder's name tells, nobody knows."""
    damage = Damage("file", 3, "FILE_DAMAGED", "cut off", b"x")
    decoded = decoder().decode(
        [TableDamage("shop.other", damage, True), TableDamage("shop.other", damage), TableDamage("Shop.items", damage)]
    )
    assert (decoded.counts, ignored(decoded.facts)) == ((3, 0, 0, 0, 1, 2), {"shop.other": 1})
    assert [row.tbl for row in decoded.rows] == [None, TABLE]


@pytest.mark.parametrize("moment", ["1970-01-01 00:00:00.000000", None, "no time at all"])
def test_t16_t17_timestamp_transaction_and_position_decide_nothing(moment: str | None) -> None:
    """T-17: 1970 means unknown, so a time is never read as an order; T-14, T-16: opaque."""
    assert decoder().decode([row(1, "I", OLD, timestamp=moment)]) == decoder().decode([row(1, "I", OLD)])
    opaque = [ChangeColumn(f"header__{name}", "varchar(128)") for name in ("stream_position", "transaction_id")]
    wider = ITEMS._replace(columns=(*opaque, *ITEMS.columns))
    for text in (None, "", "no position", "F" * 32):
        story = row(1, "I", OLD, structure=wider, timestamp=moment, stream_position=text, transaction_id=text)
        assert decoder().decode([story]) == decoder().decode([row(1, "I", OLD)])


@pytest.mark.parametrize(
    ("given", "code", "story"),
    [
        (row("2024", "I", OLD), "HEADER_INVALID", "'2024'"),
        (row("x" * 35, "I", OLD), "HEADER_INVALID", "35 digits"),
        (row(1, "I", OLD, change_seq=None), "HEADER_INVALID", "''"),
        (row(1, "X", OLD), "MESSAGE_INVALID", "'X'"),
        (row(1, "I", OLD, change_oper=None), "MESSAGE_INVALID", "''"),
        (row(1, "I", OLD, operation="DELETE"), "ROW_INVALID", "'DELETE'"),
        (row(1, "U", OLD, bits="zz"), "MASK_INVALID", "'zz'"),
        (row(1, "U", OLD, bits=mask(9)), "MASK_INVALID", "column 9 (from 0) of 9"),
        (row(1, "U", OLD, bits=mask(0)), "MASK_INVALID", "header column"),
    ],
)
def test_bad_rows_are_dead_letters_of_their_key(given: ChangeRow, code: str, story: str) -> None:
    """T-10, T-12, T-15, T-20: code, reason, coordinates, the row itself, and the good row beside it untouched."""
    given = given._replace(origin="bad", place=17)
    decoded = decoder().decode([given, row(2, "I", MOVED)])
    assert decoded.counts == (2, 1, 0, 0, 0, 1)
    letter, good = decoded.rows
    assert (letter.kind, letter.code, letter.tbl, letter.key) == ("rejected", code, TABLE, '["1"]')
    assert (letter.origin, letter.place) == ("bad", 17)
    assert story in str(letter.reason)
    assert read_row("bad", 17, letter.raw or b"") == given
    assert (good.kind, good.key) == ("change", '["2"]')


def test_a_truncated_table_stops_t12() -> None:
    """T-12, T-15: a change table tells a TRUNCATE by one more row; which rows are gone is not in it."""
    for values in ((None,) * 4, OLD):
        letter = only(decoder().decode([row(1, "T", values, operation="TRUNCATE")]))
        assert (letter.kind, letter.code, letter.tbl, letter.key) == ("rejected", "TABLE_EMPTIED", TABLE, None)


@pytest.mark.parametrize(("id_", "code"), [(None, "KEY_INVALID"), ("one", "KEY_INVALID")])
def test_a_row_without_a_usable_key_stops_its_table(id_: str | None, code: str) -> None:
    letter = only(decoder().decode([row(1, "D", (id_, None, None, None))]))
    assert (letter.code, letter.tbl, letter.key, letter.pos) == (code, TABLE, None, qlik_position(sequence(1), 0))


@pytest.mark.parametrize(("fraction", "code"), [("", None), (".1234560", None), (".1234567", "KEY_INVALID")])
def test_a_time_as_a_key_is_judged_by_its_value_g02_k66(fraction: str, code: str | None) -> None:
    timed = Structure(TABLE, (*HEADERS, ChangeColumn("at", "datetime2(7)")))
    text = f"2024-01-01 12:00:00{fraction}"
    found = only(decoder(key=("at",)).decode([row(1, "I", (text,), structure=timed)]))
    assert found.code == code and (found.key is None) == (code is not None)
    if code is None:
        assert json.loads(found.cols or "") == [["at", "datetime2(6)", 0]]


def test_a_key_column_that_the_change_table_lacks_is_named() -> None:
    letter = only(decoder(key=("number",)).decode([row(1, "I", OLD)]))
    assert (letter.code, letter.key) == ("KEY_INVALID", None)
    assert "'number'" in str(letter.reason)


def test_tables_that_are_not_mirrored_are_ignored_and_damage_is_counted() -> None:
    other = Structure("shop.other", ITEMS.columns)
    damage = Damage("file", 3, "FILE_DAMAGED", "cut off", b"x")
    decoded = decoder().decode([row(1, "I", OLD, structure=other), damage, TableDamage(TABLE, damage)])
    assert decoded.counts == (3, 0, 0, 0, 1, 2)
    assert [(r.code, r.tbl, r.raw) for r in decoded.rows] == [
        ("FILE_DAMAGED", None, b"x"),
        ("FILE_DAMAGED", TABLE, b"x"),
    ]


def test_g12_only_allowed_columns_leave() -> None:
    left, new = decoder(columns=("id", "name")).decode([row(1, "B", OLD), row(1, "U", MOVED)]).rows
    assert set(image(left.before)) == set(image(new.row)) == {"id", "name"}


def test_t24_the_order_of_binary_masks_is_found_by_what_is_impossible() -> None:
    """T-20, T-22: the documented order first; T-24: the other one where the table's masks cannot mean that."""
    wide = Structure(TABLE, (*HEADERS, *DATA, *(ChangeColumn(f"c{n}", "int") for n in range(12))), binary_mask=True)
    values = (*MOVED, *["0"] * 12)

    def update(number: int, bits: str) -> ChangeRow:
        return row(number, "U", values, bits=bits, structure=wide)

    # Byte 0 = bits 7…0: bit 5 is the key. The reverse would be bit 13, a value.
    assert only(decoder().decode([update(1, "2000")])).kind == "fragment"
    assert only(decoder().decode([update(1, "20")])).kind == "fragment"
    assert only(decoder(mask_order="msb_text").decode([update(1, "2000")])).kind == "change"
    # Another mask of the table that names header columns in the documented order: all are read the other way.
    assert [r.kind for r in decoder().decode([update(1, "2000"), update(2, "0140")]).rows] == ["change", "change"]
    # A pair whose difference only the other reading explains decides too: the column at place 13 differs.
    before = row(3, "B", ("2", "old", "1.00", None, *["0"] * 4, "9", *["0"] * 7), structure=wide)
    pair = [before, row(3, "U", values, bits="2000", structure=wide)]
    decoded = decoder(before_images=False).decode([*pair, update(1, "2000")])
    assert [r.kind for r in decoded.rows] == ["change", "change"]


@pytest.mark.parametrize(
    ("bits", "before", "present"),
    [
        # A NULL whose bit is set is a value.
        (mask(6, 7, 8), None, {"name": None, "price": None, "note": None}),
        # A NULL whose bit is not set did not change: absent without before image, …
        (mask(6), None, {"name": None}),
        # … and the value of the before image with it; large objects stand in no mask, so nothing tells them (T-25).
        (mask(6), ("1", "old", "1.00", "long"), {"name": None, "price": "1.00"}),
        # NULL before and not said to have changed: nobody knows whether the before image is sparse too.
        (mask(6), ("1", "old", None, None), {"name": None}),
        # Without mask no NULL is a value.
        (None, None, {}),
    ],
)
def test_t32_sparse_updates_show_absent_from_null(
    bits: str | None, before: tuple[str | None, ...] | None, present: dict[str, str | None]
) -> None:
    """T-25, T-32, G-04: the column list holds what is present, and ``whole`` says whether that is all."""
    rows = [row(1, "U", ("1", None, None, None), bits=bits)]
    if before:
        rows.append(row(1, "B", before))
    change = only(decoder(sparse_updates=True, keys_never_change=bits is None).decode(rows))
    assert image(change.row) == {"id": "1", **present}
    assert [name for name, *_ in image(change.cols)] == ["id", *present]
    assert change.whole is (len(present) == 3)
    full = only(decoder(keys_never_change=bits is None).decode(rows))
    if before and before[2] is not None:
        assert (full.code, full.key) == ("MASK_INVALID", '["1"]'), "T-63: the price went, and its bit is not set"
        return
    assert full.whole is True and image(full.row) == {"id": "1", "name": None, "price": None, "note": None}


def test_t23_published_masks_name_the_columns_that_they_are_known_to_mean(shared_data: Path) -> None:
    """T-20, T-23: text is one number first of all; seven header columns count."""
    vectors = json.loads((shared_data / "samples" / "qlik-mask-vectors.json").read_text())["change_table"]
    assert len(vectors) == 4
    for vector in vectors:
        headers = [ChangeColumn(f"header__h{n}", "int") for n in range(vector["header_columns"] - 3)]
        data = [ChangeColumn(f"c{n}", "int") for n in range(vector["total_columns"] - vector["header_columns"])]
        structure = Structure(TABLE, (*HEADERS[:3], *headers, *data))
        layout = RowLayout(structure, MirroredTable(TABLE, ("c0",)), "header__")
        values = (sequence(1), "U", vector["hex"], *["0"] * (len(structure.columns) - 3))
        readings = read_mask(layout, layout.header("change_mask", values), "auto")
        assert readings is not None and next(iter(readings)) == "msb_text"
        assert sorted(readings["msb_text"]) == vector["bits"]


def test_t24_where_images_are_stored_a_mask_that_can_be_read_two_ways_waits_for_its_own() -> None:
    """One reading names the key, the other does not: the before image will tell."""
    wide = Structure(TABLE, (*HEADERS, *DATA, *(ChangeColumn(f"c{n}", "int") for n in range(12))))
    values = (*NEW, *["0"] * 12)
    update = row(1, "U", values, bits="2000", structure=wide)
    assert only(decoder().decode([update])).kind == "change"
    assert only(decoder(before_images=True).decode([update])).kind == "fragment"
    pair = [row(2, "B", values, structure=wide), row(2, "U", values, bits="00", structure=wide)]
    assert [r.kind for r in decoder().decode([update, *pair]).rows] == ["fragment", "change"]


def test_t18_t33_a_half_read_again_after_a_column_was_added_is_the_same_half() -> None:
    """The overlap reads rows again; since then the table may have a column more, NULL in all of them."""
    wider = Structure(TABLE, (*ITEMS.columns, ChangeColumn("added", "int")))
    one = decoder()
    before = only(one.decode([row(1, "B", OLD, place=1)]))
    again = only(one.decode([row(1, "B", (*OLD, None), structure=wider, origin="later", place=1)]))
    update = only(one.decode([row(1, "U", MOVED, bits=mask(KEY_BIT), place=2)]))
    joined = one.join([again, update, before])
    assert isinstance(joined, Decoded)
    assert [(r.op, len(image(r.cols))) for r in joined.rows] == [("K", 3), ("U", 4)]
    together = one.decode([row(1, "B", OLD), row(1, "B", (*OLD, None), structure=wider), row(1, "U", MOVED)])
    assert [r.op for r in together.rows] == ["K", "U"]


def test_a_key_narrower_than_the_announced_one_stops_the_table_g83() -> None:
    """What the task says of the change table's own key, its header columns, is no key of the source."""
    wider = ITEMS._replace(key=(HEADERS[0].name, *(column.name for column in DATA[:2])))
    given = row(1, "I", ["1", "Ada", "1.00", None], structure=wider)
    letter = only(decoder().decode([given]))
    assert (letter.kind, letter.code, letter.tbl, letter.key) == ("rejected", "KEY_DIFFERS", TABLE, None)
    assert read_row("f", 1, letter.raw or b"").structure == wider
    own = ITEMS._replace(key=(HEADERS[0].name, DATA[0].name))
    assert only(decoder().decode([given._replace(structure=own)])).code is None
