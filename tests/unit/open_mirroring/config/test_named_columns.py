"""Which names of columns in a mirror file none of a table's columns has (G-67, G-122)."""

from __future__ import annotations

from typing import Any

import pytest

from open_mirroring.config.names import SourceName
from open_mirroring.config.tables import Table, TablePattern

KNOWN = ["id", "Email", "price"]


@pytest.mark.parametrize(
    ("settings", "unhashed", "unseen"),
    [
        ({"hash": ["EMAIL", "ssn*"]}, [], {}),
        ({"hash": ["emial", "price"]}, ["emial"], {}),
        ({"hash": ["emial"], "columns": {"exclude": ["em*"]}}, [], {}),
        ({"hash": ["emial"], "columns": ["id", "price"]}, [], {}),
        ({"columns": ["id", "prise"]}, [], {"`columns` lists": ["prise"]}),
        ({"columns": {"rename": {"prise": "cost", "ID": "number"}}}, [], {"`columns` renames": ["prise"]}),
        ({"types": {"prise": "string", "email": "string"}}, [], {"`types` names": ["prise"]}),
    ],
)
def test_a_name_that_is_no_column_is_told_g122(
    settings: dict[str, Any], unhashed: list[str], unseen: dict[str, list[str]]
) -> None:
    """G-122, G-67: in any case, and of what is read alone."""
    table = Table.model_validate({"source": "dbo.orders", "target": "dbo/orders", "key": ["id"], **settings})
    assert (table.unhashed(KNOWN), table.unseen(KNOWN)) == (unhashed, unseen)


def test_a_pattern_of_tables_names_what_some_of_them_have_g122() -> None:
    """G-122, G-70."""
    settings = {"hash": ["emial"], "types": {"prise": "string"}, "columns": {"rename": {"prise": "cost"}}}
    pattern = TablePattern.model_validate({"source": "dbo.*", **settings})
    joined = pattern.table(SourceName("dbo", "orders"), "dbo.orders", ["id"])
    assert (joined.unhashed(KNOWN), joined.unseen(KNOWN)) == ([], {})
    assert joined.chosen.hashes("emial")
