"""Names, numbers and metadata as we write them into a landing zone (F-02 to F-05, F-11 to F-18, F-31, F-43)."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from open_mirroring.errors import TerminalError
from open_mirroring.landing_zone.layout import (
    INCARNATION_FILE,
    METADATA_FILE,
    PROCESSED_FOLDERS,
    file_name,
    file_number,
    key_columns_of,
    metadata_document,
    staging_folder,
    table_folder,
)


def test_a_table_is_one_folder_with_or_without_a_schema() -> None:
    """F-02, F-03."""
    assert table_folder(None, "orders") == "orders"
    assert table_folder("dbo", "orders") == "dbo.schema/orders"


@pytest.mark.parametrize(("schema", "table"), [(None, "a/b"), (None, "dbo.schema"), ("dbo", "_hidden"), ("_dbo", "a")])
def test_a_name_that_would_be_another_folder_is_refused(schema: str | None, table: str) -> None:
    """F-02, F-03, F-05: deeper, a schema of its own, or passed over by the service."""
    with pytest.raises(TerminalError, match="CONFIG_INVALID"):
        table_folder(schema, table)


def test_only_data_files_have_names_that_the_service_reads() -> None:
    """F-05: staging, marker and metadata are ours alone, in the table's folder, where they die with it."""
    inside = [staging_folder("dbo.schema/orders", 3), *(f"dbo.schema/orders/{name}" for name in PROCESSED_FOLDERS)]
    inside += [f"dbo.schema/orders/{name}" for name in (METADATA_FILE, INCARNATION_FILE)]
    for path in inside:
        folder, _, name = path.rpartition("/")
        assert folder == "dbo.schema/orders"
        assert name.startswith("_")


def test_numbers_are_twenty_digits_from_one_f31() -> None:
    assert file_name(1) == "00000000000000000001.parquet"
    assert file_name(10**20 - 1) == "99999999999999999999.parquet"
    for number in (0, -1, 10**20):
        with pytest.raises(TerminalError, match="CONFIG_INVALID"):
            file_name(number)


@settings(derandomize=True, deadline=None, max_examples=100)
@given(number=st.integers(1, 10**20 - 1), other=st.integers(1, 10**20 - 1))
def test_the_order_of_names_is_that_of_numbers(number: int, other: int) -> None:
    """F-31, F-34: and a name gives its number back."""
    assert file_number(file_name(number)) == number
    assert (file_name(number) < file_name(other)) == (number < other)


@pytest.mark.parametrize(
    "name",
    [
        "1.parquet",
        f"{0:020d}.parquet",
        f"{1:021d}.parquet",
        f"_{1:020d}.parquet",
        f"{1:020d}.csv",
        f"{1:020d}.parquet.tmp",
        f"{1:020d}.parquet\n",
        "\u0660" * 19 + "\u0661.parquet",
        "part-00000.parquet",
    ],
)
def test_other_names_have_no_number_f31(name: str) -> None:
    assert file_number(name) is None


def test_a_number_of_text_has_the_extension_of_its_table_f21() -> None:
    """F-21, F-31: a file of another extension is no data of this table."""
    assert file_name(7, "tsv") == f"{7:020d}.tsv"
    assert file_number(f"{7:020d}.tsv", "tsv") == 7
    assert file_number(f"{7:020d}.parquet", "tsv") is None
    assert file_number(f"{7:020d}.tsv") is None


def test_metadata_say_keys_and_order_and_nothing_else() -> None:
    """F-11, F-14, F-15, F-17, F-18, F-43: no types, no default marker, no condition; files go by number."""
    assert json.loads(metadata_document(["b", "a"])) == {
        "keyColumns": ["b", "a"],
        "fileDetectionStrategy": "SequentialFileName",
    }


def test_metadata_of_a_table_without_key_name_none_f12() -> None:
    assert json.loads(metadata_document([])) == {"fileDetectionStrategy": "SequentialFileName"}
    assert key_columns_of(metadata_document([])) == ()


@pytest.mark.parametrize("keys", [["id"], ["b", "a"], ['say "hi"', "Straße"]])
def test_keys_are_read_back_in_their_order_in_either_spelling(keys: list[str]) -> None:
    """F-11, F-13: the folder's keys are compared with the table's at each publication."""
    document = metadata_document(keys)
    assert key_columns_of(document) == tuple(keys)
    assert key_columns_of(document.replace(b"keyColumns", b"KeyColumns")) == tuple(keys)
