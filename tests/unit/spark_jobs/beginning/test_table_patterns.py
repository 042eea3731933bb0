"""Patterns of tables in a mirror file: which tables fit, what they become, and what is refused (G-70 to G-72)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from sqlalchemy import Engine

from open_mirroring.config import ConfigError, Mirror, json_schema
from open_mirroring.config.loading import parse_mirror
from open_mirroring.config.names import SourceName
from open_mirroring.errors import TerminalError
from open_mirroring.ledger import open_ledger
from open_mirroring.ledger.auditing import Reason
from open_mirroring.ledger.dead_letters import mark_healed
from open_mirroring.ledger.decisions import accept_table, resume_table
from open_mirroring.ledger.declaring import JoinedTable, Joining, TableDeclaration, declare, join
from open_mirroring.ledger.extract_ledger import ExtractLedger
from open_mirroring.ledger.reading import LedgerReader
from open_mirroring.operate.target_limits import MOST_TABLES
from open_mirroring.reconciliation.inspection import declaration
from open_mirroring.reconciliation.joined_tables import declare_joined
from spark_jobs.beginning.announcements import AnnouncedTable
from spark_jobs.beginning.joining import fitting, joining, refusals

ORDERS = {"source": "sales.orders", "target": "dbo/o", "key": ["id"]}


def document(*tables: Any, **settings: Any) -> dict[str, Any]:
    return {
        "mirror": "test",
        "source": {"format": "sqlserver-ces", "transport": "capture", "path": "source"},
        "landing_zone": {"store": "local", "path": "zone"},
        "ledger": "sqlite:///ledger.db",
        "change_log": "log",
        "tables": list(tables),
        **settings,
    }


def mirror(*tables: Any, **settings: Any) -> Mirror:
    return parse_mirror(yaml.safe_dump(document(*tables, **settings), sort_keys=False), Path("test.yaml"), Mirror)


def announced(schema: str, table: str, key: tuple[str, ...] | None = ("id",), **more: Any) -> AnnouncedTable:
    return AnnouncedTable(schema, table, {"id": "int"}, key, **more)


@pytest.mark.parametrize(
    ("pattern", "fits", "others"),
    [
        ("sales.*", ["sales.a", "sales.A b", "sales.x-y"], ["Sales.a", "sale.a", "sales2.a"]),
        ("*.*", ["a.b"], []),
        ("s*s.ord*_v*", ["sales.orders_v1", "ss.ord_v"], ["sales.orders"]),
        ("[a*b].t*", ["a*b.t1"], ["axb.t1"]),
        ('"a.b".*', ["a.b.t"], ["a.t"]),
        ("s.t.?*".replace(".?", "?"), ["s.t?x"], ["s.tax"]),
    ],
)
def test_a_star_stands_for_anything_and_nothing_else_does_g70(pattern: str, fits: list[str], others: list[str]) -> None:
    found = mirror({"source": pattern})
    assert [name for name in [*fits, *others] if fitting(found, name)] == fits


def test_written_tables_ignored_ones_and_exclusions_go_before_a_pattern_g70() -> None:
    """G-70: of two patterns the first counts; what has joined stays although it is ignored from now on."""
    first, second = {"source": "sales.*", "exclude": ["sales.t_*"], "target": "a/{table}"}, {"source": "*.*"}
    found = mirror(ORDERS, first, second, ignore=["sales.noise"])
    assert [one.table.target for one in joining(found, [announced("sales", n) for n in ("orders", "x", "t_1")])] == [
        "a/x", "sales/t_1",
    ]  # fmt: skip
    assert fitting(found, "sales.noise") is None
    assert found.pattern_of(SourceName("sales", "noise")) is not None


def test_a_table_with_a_star_in_its_name_is_written_out_with_a_key() -> None:
    found = mirror({"source": "dbo.a*b", "target": "dbo/ab", "key": ["id"]})
    assert [table.source for table in found.tables] == ["dbo.a*b"] and not found.has_patterns


def test_a_table_has_what_its_pattern_says_g70() -> None:
    load = {"format": "jdbc", "connection": "shop", "max_connections": 2}
    pattern = {"source": "s.*", "target": "new_{schema}/{table}_t", "full_rows": True, "initial_load": load}
    ((one,), (without,)) = (joining(mirror(pattern), [announced("s", "t", key)]) for key in (("id", "no"), ()))
    assert one.table.target == "new_s/t_t" and one.table.key == ("id", "no") and one.table.full_rows is True
    assert one.table.initial_load is not None
    assert without.table.key == () and without.table.initial_load is None, "it takes inserts only (G-08)"


@pytest.mark.parametrize(
    ("pattern", "code", "says"),
    [
        ({"target": "dbo/one"}, "CONFIG_INVALID", "one target"),
        ({"target": "a/b/{table}"}, "CONFIG_INVALID", "more than two parts"),
        ({"initial_load": {"format": "jdbc", "connection": "c", "table": "s.t"}}, "CONFIG_INVALID", "of all"),
        ({"full_rows": True, "complete_rows": True}, "CONFIG_INVALID", "complete rows"),
        ({"new_tables": "maybe"}, "CONFIG_INVALID", "join, ask"),
        ({"key_is_unique": True}, "CONFIG_INVALID", "'key_is_unique'"),
    ],
)
def test_a_mistake_in_a_pattern_is_reported_with_its_line_g72(pattern: dict[str, Any], code: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        mirror(ORDERS, {"source": "sales.*", **pattern})
    (problem,) = caught.value.problems
    assert problem.code == code and says in problem.what and problem.next_step
    assert problem.path.startswith("tables[1]") and problem.line > 11


def test_the_schema_knows_patterns_and_tables() -> None:
    sound = document(ORDERS, {"source": "sales.*", "exclude": ["sales.x"], "new_tables": "ask"})
    jsonschema.validate(sound, json_schema())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document({"source": "sales.*", "new_tables": "maybe"}), json_schema())


@pytest.mark.parametrize(
    ("tables", "says"),
    [
        ([announced("s", "t", None)], "its key is unknown"),
        ([announced("s", "t", keys_differ=True)], "more than one way"),
        ([announced("s", "T"), announced("s", "t")], "in case only"),
        ([announced("s", "a/b")], "'s/a/b'"),
        ([announced("s", "_t")], "underscore"),
        ([announced("s", "t", ("__rowMarker__",))], "__rowMarker__"),
        ([announced("s", "t", ("a", "A"))], "case"),
        ([announced("s", f"t{number}") for number in range(MOST_TABLES + 1)], "1000"),
    ],
)
def test_what_cannot_join_is_refused_by_name_g72(tables: list[AnnouncedTable], says: str) -> None:
    found = mirror({"source": "*.*"})
    with pytest.raises(TerminalError) as caught:
        joining(found, tables)
    assert caught.value.code == "CONFIG_INVALID"
    assert says in caught.value.what and "exclude" in caught.value.next_step
    ((pattern, why),) = refusals(found, tables)
    assert pattern.source == "*.*" and why == caught.value.what


def test_where_one_database_is_read_a_name_with_its_own_is_of_another_one_c12() -> None:
    """C-12, G-70: `foreign_name` puts the database before the names of others."""
    source = {"format": "sqlserver-ces", "transport": "capture", "path": "source"}
    assert fitting(mirror({"source": "*.*"}, source={**source, "database": "shop"}), "other.dbo.t") is None
    assert fitting(mirror({"source": "*.*"}, source={**source, "database": "shop"}), "dbo.t") is not None
    assert fitting(mirror({"source": "*.*"}), "odd.schema.t") == ("odd.schema", "t")


def test_tables_join_once_all_of_them_with_their_stop_g71(tmp_path: Path) -> None:
    ledger = open_ledger(f"sqlite:///{tmp_path}/ledger.db")
    found = mirror({"source": "s.*", "new_tables": "ask"})
    tables = [
        Joining(JoinedTable(one.table.source, "s", one.announced.table, ("id",), {}, 1), declaration(one.table), "x")
        for one in joining(found, [announced("s", f"t{number}") for number in range(300)])
    ]
    assert len(join(ledger, "test", tables)) == 300
    assert join(ledger, "test", tables) == []
    declare_joined(found, ledger)
    states = LedgerReader(ledger, "test").tables()
    assert {table.source for table in found.tables} == states.keys()
    assert {state.stop_code for state in states.values()} == {"NEW_TABLE"}
    assert {path for path, _ in found.placed_tables} == {("tables", 0)}


def asking(folder: Path) -> tuple[Engine, TableDeclaration]:
    """A ledger with a table that waits for a yes, by the key ID."""
    ledger = open_ledger(f"sqlite:///{folder}/ledger.db")
    declared = TableDeclaration("s.t", "s/t", ("ID",), loads=False)
    join(ledger, "test", [Joining(JoinedTable("s.t", "s", "t", ("ID",), {}, 1), declared, "a question")])
    return ledger, declared


def stop_of(ledger: Engine) -> tuple[str | None, str | None]:
    state = LedgerReader(ledger, "test").tables()["s.t"]
    return state.stop_code, state.stop_what


def test_a_stop_that_takes_the_place_of_the_question_does_not_answer_it_g71(tmp_path: Path) -> None:
    """KEY_UNKNOWN goes before NEW_TABLE; the mended key lifts it, and the table still waits for its yes."""
    ledger, declared = asking(tmp_path)
    ExtractLedger(ledger, "test", {"s.t": ("ID",)}).stop_table("s.t", "KEY_UNKNOWN", "no ID")
    assert stop_of(ledger)[0] == "KEY_UNKNOWN"
    declare(ledger, "test", [declared._replace(keys=("id",))])
    assert stop_of(ledger)[0] == "KEY_CORRECTED"
    with ledger.begin() as db:
        mark_healed(db, "test", ["s.t"])
    assert stop_of(ledger) == ("NEW_TABLE", "a question")
    accept_table(ledger, "test", "s.t", Reason("Ada", "x"))
    assert stop_of(ledger) == (None, None)


def test_lifting_another_stop_is_no_yes_and_one_that_was_said_stays_g71(tmp_path: Path) -> None:
    """After a replay the stop is CHANGES_RECOVERED, which `resume` lifts."""
    ledger, _ = asking(tmp_path)
    extract = ExtractLedger(ledger, "test", {"s.t": ("ID",)})
    for expected in (("NEW_TABLE", "a question"), (None, None)):
        extract.stop_table("s.t", "KEY_UNKNOWN", "no ID")
        with ledger.begin() as db:
            mark_healed(db, "test", ["s.t"])
        assert resume_table(ledger, "test", "s.t", Reason("Ada", "x")).code == "CHANGES_RECOVERED"
        assert stop_of(ledger) == expected
        if expected[0] is not None:
            accept_table(ledger, "test", "s.t", Reason("Ada", "x"))
