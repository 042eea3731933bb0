"""Masks are read as captured masks mean them, and the documented order is one setting away (T-20 to T-24, K-20)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.sources.qlik.masks import MAX_MASK_BYTES, MaskOrder, places, readings, width


@pytest.mark.parametrize(
    ("mask", "columns", "ordinals"),
    [
        ("0B", 10, [1, 2, 4]),
        ("05", 3, [1, 3]),
        ("00", 3, []),
        ("008080", 16, [8, 16]),
        ("00FFFF", 16, list(range(1, 17))),
        ("", 3, []),
        ("b", 4, [1, 2, 4]),
    ],
)
def test_hexadecimal_text_is_one_number_most_significant_digit_first_t23_k20(
    mask: str, columns: int, ordinals: list[int]
) -> None:
    likeliest = readings(mask)[0]
    assert [place + 1 for place in places(likeliest)] == ordinals and not likeliest >> columns


@pytest.mark.parametrize(("mask", "found"), [("2800", [11, 13]), ("010000", [16]), ("8" + "0" * 84 + "800", [11, 351])])
def test_masks_of_a_change_table_count_its_header_columns_t20_t23(mask: str, found: list[int]) -> None:
    assert places(readings(mask)[0]) == found


def test_published_vectors_k20_t23(shared_data: Path) -> None:
    vectors = json.loads((shared_data / "samples" / "qlik-mask-vectors.json").read_text())
    for vector in vectors["kafka"]:
        found = places(readings(vector["hex"])[0])
        assert found == vector["bits"]
        assert [place + 1 for place in found] == vector["ordinals"]
    for vector in vectors["change_table"]:
        found = places(readings(vector["hex"])[0])
        assert found == vector["bits"] and max(found) < vector["total_columns"]
        assert [place + 1 - vector["header_columns"] for place in found] == vector["data_ordinals"]


@settings(derandomize=True, deadline=None, max_examples=100)
@given(st.sets(st.integers(0, 40)), st.integers(0, 3))
def test_missing_zero_bytes_change_nothing_t22_t23(bits: set[int], zeros: int) -> None:
    number = sum(1 << bit for bit in bits)
    size = (number.bit_length() + 7) // 8
    assert readings(number.to_bytes(size, "little") + bytes(zeros), "le_bytes") == (number,)
    assert readings("00" * zeros + number.to_bytes(size, "big").hex(), "msb_text") == (number,)
    assert places(number) == sorted(bits)


@pytest.mark.parametrize(
    ("mask", "order", "expected"),
    [
        ("0102", "auto", (0x0102, 0x0201)),
        (b"\x01\x02", "auto", (0x0201, 0x0102)),
        ("0102", "msb_text", (0x0102,)),
        (b"\x01\x02", "msb_text", (0x0102,)),
        ("0102", "le_bytes", (0x0201,)),
        (b"\x01\x02", "le_bytes", (0x0201,)),
        (b"\x07", "auto", (7,)),
    ],
)
def test_bytes_are_read_as_documented_first_and_text_as_a_number_first_t24(
    mask: str | bytes, order: MaskOrder, expected: tuple[int, ...]
) -> None:
    assert readings(mask, order) == expected


@pytest.mark.parametrize("mask", ["0x05", "5G", " 05", "٣", "0" * (2 * MAX_MASK_BYTES + 2), bytes(MAX_MASK_BYTES + 1)])
def test_what_is_no_mask_is_refused_t13(mask: str | bytes) -> None:
    with pytest.raises(ValueError, match=r"not a hexadecimal|longer than"):
        readings(mask)


def test_the_width_of_captured_masks_k20() -> None:
    assert [width(columns) for columns in (3, 7, 8, 10, 14, 16, 17)] == [1, 1, 2, 2, 2, 3, 3]
