"""The generator's change tables say what the documentation says of them."""

from __future__ import annotations

import gzip
import json
from itertools import pairwise

import pytest

from tests.qlik_change_tables_sql import postgresql_statements
from workload_generator.database import Change
from workload_generator.history import SHOP_TABLES, random_history
from workload_generator.qlik_change_tables import HEADERS, ChangeTableOptions, StoredChange, stored_changes
from workload_generator.qlik_file_target import change_files, full_load_files

PRODUCTS, LINES = SHOP_TABLES[1], SHOP_TABLES[3]
OLD = {"sku": "a", "title": "old", "price": "1.0000", "weight": None, "released": None}
NEW = {**OLD, "title": "new", "released": "2024-02-29"}
UPDATE = Change(PRODUCTS, "U", OLD, NEW, 3, 7)


def test_t11_an_update_is_a_before_image_and_a_row_with_one_sequence() -> None:
    before, after = stored_changes([UPDATE], ChangeTableOptions())
    assert (before.row, after.row) == (OLD, NEW)
    assert before.header["change_seq"] == after.header["change_seq"] == "2024010100010000" + "0000000000003000007"
    assert (before.header["change_oper"], before.header["operation"]) == ("B", "BEFOREIMAGE")
    assert (after.header["change_oper"], after.header["operation"]) == ("U", "UPDATE")
    (alone,) = stored_changes([UPDATE], ChangeTableOptions(before_images=False))
    assert alone == after


@pytest.mark.parametrize(
    ("headers", "binary", "mask"),
    [
        # title and released are data columns 1 and 4: with seven header columns bits 8 and 11.
        (HEADERS[:-1], False, "0900"),
        (HEADERS[:-1], True, "0x0009"),
        (HEADERS[:3], False, "90"),
        (HEADERS[:3], True, "0x90"),
    ],
)
def test_t20_to_t23_masks_count_header_columns_and_drop_zero_bytes(
    headers: tuple[str, ...], binary: bool, mask: str
) -> None:
    _, after = stored_changes([UPDATE], ChangeTableOptions(headers=headers, binary_mask=binary))
    assert after.header["change_mask"] == mask


def test_t21_a_delete_marks_the_key_and_a_before_image_nothing() -> None:
    row = {"order_id": "1", "line_no": "2", "sku": "a", "quantity": "1", "price": "1.0000"}
    (gone,) = stored_changes([Change(LINES, "D", row, None, 1, 1)], ChangeTableOptions(headers=HEADERS[:3]))
    assert gone.header["change_mask"] == "18"
    before, _ = stored_changes([UPDATE], ChangeTableOptions())
    assert before.header["change_mask"] == "00"


def stored(options: ChangeTableOptions) -> list[StoredChange]:
    return list(stored_changes(random_history(3, 30).changes, options))


def test_t10_sequences_rise_over_all_tables() -> None:
    sequences = [change.header["change_seq"] or "" for change in stored(ChangeTableOptions())]
    assert all(one <= other for one, other in pairwise(sequences)) and {*map(len, sequences)} == {35}


def test_t40_t41_every_file_is_described_by_the_one_beside_it() -> None:
    options = ChangeTableOptions(partition_minutes=1)
    files = dict(change_files(stored(options), options, rows_per_file=9, compressed=True))
    described = [path for path in files if path.endswith(".dfm")]
    assert len(described) * 2 == len(files) > 20
    total = 0
    for path in described:
        document = json.loads(files[path])
        folder = path.rpartition("/")[0]
        lines = gzip.decompress(files[f"{folder}/{document['fileInfo']['name']}.gz"]).decode()
        header = lines.partition("\n")[0].split(",")
        assert header == [column["name"] for column in document["dataInfo"]["columns"]]
        assert document["dataInfo"]["targetTable"].endswith("__ct") and folder.count("/") == 1
        total += document["fileInfo"]["recordCount"]
    assert total == len(stored(options))


def test_an_empty_full_load_tells_its_columns() -> None:
    (data, content), (description, document) = full_load_files(PRODUCTS, [])
    assert (data, description) == ("dbo.products/LOAD00000001.csv", "dbo.products/LOAD00000001.dfm")
    assert content == b"sku,title,price,weight,released\n"
    described = json.loads(document)["dataInfo"]["columns"]
    assert [(one["type"], one["primaryKeyPos"]) for one in described][:3] == [
        ("STRING", 1),
        ("WSTRING", 0),
        ("NUMERIC", 0),
    ]


def test_t34_a_partition_is_closed_once_a_later_one_begins() -> None:
    options = ChangeTableOptions(partition_minutes=1)
    for closed in (True, False):
        statements = list(postgresql_statements(SHOP_TABLES, stored(options), options, closed=closed))
        named = {(c.table.full_name, c.header["partition_name"]) for c in stored(options)}
        closings = [one for one in statements if one.startswith('INSERT INTO "control"')]
        assert len(closings) == len(named) - (0 if closed else len({table for table, _ in named}))
        assert sum(one.startswith("INSERT INTO") for one in statements) - len(closings) == len(stored(options))
