"""Which names of columns in a mirror file none of a table's columns has (G-67, G-122)."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from open_mirroring.config.names import SourceName
from open_mirroring.config.tables import Table, TablePattern

KNOWN = ["id", "Email", "price"]


@pytest.mark.parametrize(
    ("settings", "unhashed", "unseen"),
    [
        ({"hash": ["EMAIL", "ssn*"]}, [], {}),
        ({"hash": ["emial", "price"]}, ["emial"], {}),
        ({"hash": ["emial"], "columns": {"exclude": ["em*"]}}, [], {}),
        ({"columns": ["id", "prise"]}, [], {"`columns` lists": ["prise"]}),
        ({"columns": {"rename": {"prise": "cost", "ID": "number"}}}, [], {"`columns` renames": ["prise"]}),
        ({"types": {"prise": "string", "email": "string"}}, [], {"`types` names": ["prise"]}),
    ],
)
def test_a_name_that_is_no_column_is_reported_g122(
    settings: dict[str, Any], unhashed: list[str], unseen: dict[str, list[str]]
) -> None:
    """G-122, G-67: in any case, and of what is read alone."""
    table = Table.model_validate({"source": "dbo.orders", "target": "dbo/orders", "key": ["id"], **settings})
    assert (table.unhashed(KNOWN), table.unseen(KNOWN)) == (unhashed, unseen)


@pytest.mark.parametrize(
    ("model", "settings"),
    [
        (Table, {"source": "dbo.orders", "target": "dbo/orders", "key": ["id"], "columns": ["id", "email"]}),
        (TablePattern, {"source": "dbo.*", "columns": {"include": ["id", "em*l"]}}),
    ],
)
def test_a_hashed_name_that_columns_does_not_list_is_refused_g122(model: Any, settings: dict[str, Any]) -> None:
    """G-122: it is misspelt, and the column that is meant would land in clear."""
    model.model_validate({**settings, "hash": ["Email", "ssn*"]})
    with pytest.raises(ValidationError, match="names the column 'emai', which `columns` leaves out"):
        model.model_validate({**settings, "hash": ["emai"]})


def test_a_pattern_of_tables_names_what_some_of_them_have_g122() -> None:
    """G-122, G-70."""
    settings = {"hash": ["emial"], "types": {"prise": "string"}, "columns": {"rename": {"prise": "cost"}}}
    pattern = TablePattern.model_validate({"source": "dbo.*", **settings})
    joined = pattern.table(SourceName("dbo", "orders"), "dbo.orders", ["id"])
    assert (joined.unhashed(KNOWN), joined.unseen(KNOWN)) == ([], {})
    assert joined.chosen.hashes("emial")
