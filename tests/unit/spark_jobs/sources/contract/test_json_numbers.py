"""Which numbers of JSON may have lost digits on their way."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.sources.contract.json_numbers import JsonNumber, may_be_rounded


@pytest.mark.parametrize(
    "true_value",
    [
        "1234567890123456.1",
        "0.12345678901234567",
        "-98765432109876.54321",
        "123456789012345678.25",
        "1.0000000000000002",
    ],
)
def test_what_a_double_made_of_a_longer_decimal_is_seen(true_value: str) -> None:
    """G-112: it has 16 or 17 digits."""
    sent = repr(float(true_value))
    assert may_be_rounded(JsonNumber(sent)), sent


def test_an_exponent_hides_nothing() -> None:
    assert may_be_rounded(JsonNumber("1.2345678901234568e-07"))


@given(st.decimals(allow_nan=False, allow_infinity=False, places=4, min_value=-(10**10), max_value=10**10))
def test_what_fits_a_double_is_taken(value: Decimal) -> None:
    """At most 15 digits: whatever it was on its way, it is the same."""
    assert not may_be_rounded(JsonNumber(value))
    assert not may_be_rounded(JsonNumber(repr(float(value))))


@pytest.mark.parametrize("text", ["12345678901234.50", "1234567890123456.7891", "0.1000000000000000055"])
def test_what_only_an_exact_writer_spells_so_is_taken(text: str) -> None:
    assert not may_be_rounded(JsonNumber(text))


def test_a_text_is_no_number() -> None:
    assert not may_be_rounded("1234567890123456.1") and not may_be_rounded(None)
