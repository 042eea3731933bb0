"""Every Qlik type has one type in the log, which holds all its values (K-12, K-13, T-43)."""

from __future__ import annotations

import pytest

from open_mirroring.errors import TerminalError
from spark_jobs.sources.qlik.types import log_type
from spark_jobs.sources.sql_server.type_text import landing_type
from spark_jobs.sources.sql_server.types import converter

MAPPED = {
    ("BOOLEAN", 1, 0, 0): "bit",
    ("INT1", 3, 0, 0): "smallint",
    ("INT2", 5, 0, 0): "smallint",
    ("INT4", 10, 0, 0): "int",
    ("INT8", 19, 0, 0): "bigint",
    ("UINT1", 3, 0, 0): "tinyint",
    ("UINT2", 5, 0, 0): "int",
    ("UINT4", 10, 0, 0): "bigint",
    ("UINT8", 20, 0, 0): "decimal(20,0)",
    ("REAL4", 7, 0, 0): "real",
    ("REAL8", 14, 0, 0): "float",
    ("NUMERIC", 0, 18, 15): "decimal(18,15)",
    ("NUMERIC", 0, 38, 38): "decimal(38,38)",
    ("NUMERIC", 0, 5, -2): "decimal(7,0)",
    ("NUMERIC", 0, 3, 5): "decimal(5,5)",
    ("DATE", 0, 0, 0): "date",
    ("TIME", 0, 0, 0): "time(7)",
    ("TIME", 0, 0, 3): "time(3)",
    ("DATETIME", 0, 0, 0): "datetime2(7)",
    ("DATETIME", 0, 0, 6): "datetime2(6)",
    ("TIMESTAMP", 0, 0, 9): "datetime2(7)",
    ("STRING", 8000, 0, 0): "varchar(8000)",
    ("STRING", 8001, 0, 0): "varchar(max)",
    ("WSTRING", 60, 0, 0): "varchar(60)",
    ("WSTRING", 0, 0, 0): "varchar(max)",
    ("string", 5, 0, 0): "varchar(5)",
    ("CLOB", 0, 0, 0): "varchar(max)",
    ("NCLOB", 0, 0, 0): "varchar(max)",
    ("BYTES", 16, 0, 0): "varbinary(16)",
    ("BYTES", 9000, 0, 0): "varbinary(max)",
    ("BLOB", 0, 0, 0): "varbinary(max)",
}


@pytest.mark.parametrize(("described", "expected"), MAPPED.items(), ids=lambda case: str(case))
def test_a_qlik_type_has_one_type_in_the_log_k12_k13_t43(described: tuple[str, int, int, int], expected: str) -> None:
    assert log_type(*described) == expected
    assert landing_type(expected), "the log's type can be landed"


@pytest.mark.parametrize(
    ("kind", "lowest", "highest"),
    [
        ("INT1", -(2**7), 2**7 - 1),
        ("INT2", -(2**15), 2**15 - 1),
        ("INT4", -(2**31), 2**31 - 1),
        ("INT8", -(2**63), 2**63 - 1),
        ("UINT1", 0, 2**8 - 1),
        ("UINT2", 0, 2**16 - 1),
        ("UINT4", 0, 2**32 - 1),
        ("UINT8", 0, 2**64 - 1),
    ],
)
def test_the_log_type_holds_the_complete_range_k13(kind: str, lowest: int, highest: int) -> None:
    for value in (lowest, highest):
        assert converter(log_type(kind, 0, 0, 0))(str(value)) == value


@pytest.mark.parametrize(
    "described",
    [
        ("", 0, 0, 0),
        ("INT3", 0, 0, 0),
        ("GEOMETRY", 0, 0, 0),
        ("NUMERIC", 0, 0, 0),
        ("NUMERIC", 0, 39, 0),
        ("NUMERIC", 0, 38, -1),
        ("NUMERIC", 0, 1, 39),
    ],
)
def test_a_type_that_cannot_be_held_exactly_is_refused_by_name_k13(described: tuple[str, int, int, int]) -> None:
    with pytest.raises(TerminalError) as raised:
        log_type(*described)
    assert raised.value.code == "TYPE_UNSUPPORTED"
    assert repr(described[0]) in raised.value.what and "columns" in raised.value.next_step
