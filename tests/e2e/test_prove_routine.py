"""Proof as a routine: parts of tables in turn, and changed keys, find every difference within one cycle (G-40)."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from textwrap import dedent
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import yaml
from deltalake import DeltaTable, write_deltalake

from open_mirroring.ledger.proofs import ProofLedger
from open_mirroring.operate.exit_codes import Exit
from spark_jobs.cli.command_line import main
from spark_jobs.prove import ProofOptions, prove
from tests.e2e.test_prove import APPROVED, Shop, proved, shop_anywhere, shop_of
from tests.e2e.test_prove import _connect as connect
from tests.pipeline import Pipeline
from tests.postgres import PostgresServer

ROOT = Path(__file__).resolve().parents[2]
__all__ = ["shop_anywhere", "shop_of"]
ROWS = 4_000
ASKED = "0 of 1 ranges and 30 keys"


def routine(shop: Shop, **settings: Any) -> None:
    """Let every row be compared once in four days, by the scheduled proofs of three of them."""
    document = yaml.safe_load(shop.pipeline.file.read_text(encoding="utf-8"))
    document["prove"] = {"settle_seconds": 0, "cover_in_days": 4, **settings}
    shop.pipeline.file.write_text(yaml.safe_dump(document), encoding="utf-8")


def filled(shop: Shop, rows: int = ROWS) -> None:
    for table in shop.tables:
        for key in range(rows):
            shop.set(table, (key, f"name {key}", f"{key}.50"))
    shop.tick()


def spoil(shop: Shop, table: str, change: Callable[[pa.Table], pa.Table]) -> None:
    """Write the mirrored table as a service would leave it that makes mistakes."""
    place = shop.pipeline.target / table.replace(".", "/")
    rows = pa.concat_tables(pq.read_table(path) for path in DeltaTable(str(place)).file_uris())
    write_deltalake(str(place), change(rows), mode="overwrite")


def planted(rows: pa.Table) -> pa.Table:
    """200 differences: 60 values, 40 missing and 40 extra rows, 20 doubled ones, and 20 pairs of swapped values."""
    by_id = {row["id"]: row for row in rows.to_pylist()}
    for at in range(60):
        by_id[at * 64 + 1]["name"] += " "
    for at in range(20):
        one, other = by_id[at * 64 + 2], by_id[at * 64 + 3]
        one["price"], other["price"] = other["price"], one["price"]
    for at in range(40):
        del by_id[at * 64 + 4]
    doubled = [by_id[at * 64 + 5] for at in range(20)]
    extra = [{**by_id[0], "id": -1 - at * 7} for at in range(20)] + [{**by_id[0], "id": 5_000 + at} for at in range(20)]
    return pa.Table.from_pylist([*by_id.values(), *doubled, *extra], schema=rows.schema)


PLANTED = {
    **{at * 64 + 1: "different" for at in range(60)},
    **{at * 64 + place: "different" for at in range(20) for place in (2, 3)},
    **{at * 64 + 4: "missing" for at in range(40)},
    **{at * 64 + 5: "doubled" for at in range(20)},
    **{-1 - at * 7: "extra" for at in range(20)},
    **{5_000 + at: "extra" for at in range(20)},
}


def test_every_difference_is_found_within_one_cycle_and_none_in_flight(shop_anywhere: Callable[..., Shop]) -> None:
    """Values, missing, extra and doubled rows, and pairs that cancel each other, next to a source that goes on."""
    shop = shop_anywhere("shop.t1", split_column="id", chunks=4)
    routine(shop)
    filled(shop)
    spoil(shop, "shop.t1", planted)
    moving = [key for key in range(0, ROWS, 11) if key not in PLANTED]

    def traffic(_: float = 0) -> None:
        for key in moving[shop.commit % 7 :: 40]:
            shop.set("shop.t1", (key, f"hot {shop.commit}", "7.00"))
        shop.deliver()
        shop.pipeline.extract()

    parts, found = [], dict[str, str]()
    for _ in range(3):
        traffic()
        mirror, ledger, spark = shop.pipeline.mirror, shop.pipeline.ledger, shop.pipeline._spark
        asked = ProofOptions(is_routine=True, looks=3)
        one = prove(mirror, ledger, spark, asked=asked, sleep=traffic).tables["shop.t1"]
        found = {key["key"]: key["kind"] for key in one["keys"]}
        assert found.items() <= {f'["{key}"]': kind for key, kind in PLANTED.items()}.items()
        parts.append((one["part"], one["rows_source"], round(one["verified"]["share"], 1)))
    assert len(PLANTED) == 200 and len(found) == 200, parts
    assert [part.partition(" ranges and ")[0] for part, _, _ in parts] == ["11 of 32", "11 of 32", "10 of 32"]
    assert parts[0][2] < parts[1][2] < parts[2][2] == 1.0
    assert "200 of 200 named rows: the published files have them" in " ".join(one["reasons"])
    assert all(rows < ROWS for _, rows, _ in parts[:1]), "a part of the table is read, and not all of it"


def test_a_changed_key_is_asked_for_and_a_difference_stays_until_it_is_corrected(
    shop_of: Callable[..., Shop], capsys: pytest.CaptureFixture[str]
) -> None:
    """What changed is compared in the next run; so is what differed in the last one."""
    shop = shop_of("shop.t1", "shop.t2", split_column="id", chunks=4)
    routine(shop)
    filled(shop, 100)
    for _ in range(3):
        code, found = proved(shop, capsys, "--routine")
        assert (code, {one["verdict"] for one in found.values()}) == (Exit.DONE, {"EQUAL"})
    assert found["shop.t1"]["verified"]["share"] == 1.0
    # Nothing is due for days: only what changed is compared. The service applies one change, and loses another.
    shop.set("shop.t1", (5, "applied", "1.00"))
    shop.set("shop.t1", (6, "lost by the service", "1.00"))
    shop.set("shop.t1", (7, "never sent", "1.00"), sent=False)
    shop.tick()
    spoil(shop, "shop.t1", lambda rows: rows.filter(pc.not_equal(rows["id"], 6)))
    code, found = proved(shop, capsys, "--routine")
    one = found["shop.t1"]
    assert (code, one["part"], one["rows_source"], one["is_known"]) == (
        Exit.NOT_EQUAL,
        "0 of 32 ranges and 2 keys",
        2,
        False,
    )
    assert [(key["key"], key["kind"]) for key in one["keys"]] == [('["6"]', "missing")]
    assert one["verified"]["differed_at"] is not None
    assert (found["shop.t2"]["verdict"], found["shop.t2"]["rows_source"]) == ("EQUAL", 0)
    code, found = proved(shop, capsys, "--routine")
    assert (code, found["shop.t1"]["is_known"], found["shop.t1"]["rows_source"]) == (Exit.NOT_EQUAL, True, 1)
    assert main(["status", str(shop.pipeline.file)]) == Exit.DONE
    assert "verified 100 % of its rows within 4 days, last difference 0 s ago" in capsys.readouterr().out

    # A complete proof finds the change that was never sent, too, and that it is not the service's fault.
    code, found = proved(shop, capsys)
    assert {key["key"] for key in found["shop.t1"]["keys"]} == {'["6"]', '["7"]'}
    said = " ".join(found["shop.t1"]["reasons"])
    assert "1 of 2 named rows: the published files have them" in said
    assert "1 of 2 named rows: the published files do not have them" in said
    proved(shop, capsys, "--routine", *APPROVED)
    publish_to(shop)
    code, found = proved(shop, capsys, "--routine")
    assert (code, found["shop.t1"]["verdict"], found["shop.t1"]["is_known"]) == (Exit.DONE, "EQUAL", True)


def test_keys_of_several_columns_are_found_at_the_source_as_they_are(
    tmp_path: Path, postgres: PostgresServer, spark: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """Texts with quotes, blanks and accents, days, digits and GUIDs: what is asked for by key is what is there."""
    connect(postgres, monkeypatch)
    postgres.execute(
        "DROP SCHEMA IF EXISTS shop CASCADE",
        "CREATE SCHEMA shop",
        "CREATE TABLE shop.t (a text, b date, c numeric(8,2), d uuid, e char(4), v text, PRIMARY KEY (a, b, c, d, e))",
        "INSERT INTO shop.t SELECT (ARRAY['o''k', ' ä\"', '', '[1,2]', E'a\\\\b'])[n % 5 + 1], "
        "date '2024-02-28' + n % 3, n / 8.0, md5((n % 7)::text)::uuid, repeat('x', n % 4), 'v' || n "
        "FROM generate_series(1, 400) n",
    )
    load = {"format": "jdbc", "connection": "shop_db"}
    tables = [{"source": "shop.t", "target": "shop/t", "key": ["a", "b", "c", "d", "e"], "initial_load": load}]
    zone, settings = {"store": "local", "path": "zone", "tables": "tables"}, {"settle_seconds": 0, "cover_in_days": 4}
    shop = Pipeline(tmp_path / "shop", spark, tables, landing_zone=zone, prove=settings)
    assert main(["initial-load", str(shop.file)]) == Exit.DONE
    shop.service.poll()
    place = str(shop.target / "shop" / "t")
    rows = pa.concat_tables(pq.read_table(path) for path in DeltaTable(place).file_uris())
    spoiled = pa.concat_tables([rows.slice(0, 20).set_column(5, "v", pa.array(["other"] * 20)), rows.slice(30)])
    write_deltalake(place, spoiled, mode="overwrite")

    def proved(*argv: str) -> Any:
        capsys.readouterr()
        main(["prove", str(shop.file), "--json", *argv])
        return json.loads(capsys.readouterr().out)["tables"]["shop.t"]

    for argv, part in (((), "all rows"), (("--routine",), ASKED), (("--routine",), ASKED)):
        one = proved(*argv)
        assert (one["part"], one["different"], one["missing"], one["extra"]) == (part, 20, 10, 0)
    write_deltalake(place, rows, mode="overwrite")
    one = proved("--routine")
    assert (one["part"], one["verdict"], one["rows_source"]) == (ASKED, "EQUAL", 30)


def test_the_page_of_the_routine_does_what_it_shows(
    shop_of: Callable[..., Shop], capsys: pytest.CaptureFixture[str]
) -> None:
    """Its setting, its commands, and the line of `status`, in the order of the page."""
    page = (
        (ROOT / "docs" / "how-to" / "prove.md").read_text(encoding="utf-8").partition("## Let it run as a routine")[2]
    )
    blocks = [dedent(block).strip() for block in re.findall(r"```\w*\n(.*?)```", page, flags=re.DOTALL)]
    setting, shown, correct = blocks
    shop = shop_of("shop.t1", split_column="id", chunks=8)
    routine(shop, **yaml.safe_load(setting)["prove"])
    filled(shop, 60)
    shop.set("shop.t1", (200, "never sent", "1.00"), sent=False)
    for _ in range(6):
        assert main(["prove", str(shop.pipeline.file), "--routine"]) in (Exit.DONE, Exit.NOT_EQUAL)
        capsys.readouterr()
    main(["status", str(shop.pipeline.file)])
    said = capsys.readouterr().out
    line = shown.partition(": ")[2].partition(" 2 d")[0]
    assert re.search(re.sub(r"\d+", r"\\d+", line), said), said

    [state] = shop.pipeline.reader.tables().values()
    recorded = ProofLedger(shop.pipeline.ledger).newest([state.id])[state.id]
    given = {"FILE": str(shop.pipeline.file), "ID": recorded.id}
    assert main([given.get(word, word) for word in shlex.split(correct)[1:]]) == Exit.DONE
    shop.tick()
    assert main(["prove", str(shop.pipeline.file), "--routine"]) == Exit.DONE
    assert {row["id"] for row in shop.pipeline.mirrored("shop", "t1")} == {*range(60), 200}


def publish_to(shop: Shop) -> None:
    """Apply what was published to a table that another hand wrote: the emulator builds it again."""
    for table in shop.tables:
        rows = {row["id"]: row for row in shop.pipeline.mirrored(*table.split("."))}
        with shop.server.connect() as link, link.cursor() as cursor:
            cursor.execute(f"SELECT id, name, price FROM {table}")
            rows = {key: {"id": key, "name": name, "price": price} for key, name, price in cursor.fetchall()}
        spoil(shop, table, lambda old, rows=rows: pa.Table.from_pylist(list(rows.values()), schema=old.schema))


def test_a_difference_stays_where_no_keys_can_be_asked_for(
    shop_of: Callable[..., Shop], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its range comes up again with the next ones, until it is equal."""
    monkeypatch.setattr("spark_jobs.proof.rows._ASKED_BY_KEY", set())
    shop = shop_of("shop.t1", split_column="id", chunks=4)
    routine(shop)
    filled(shop, 100)
    shop.set("shop.t1", (1, "never sent", "1.00"), sent=False)
    for _ in range(3):
        code, found = proved(shop, capsys, "--routine")
        assert (code, found["shop.t1"]["part"], found["shop.t1"]["different"]) == (Exit.NOT_EQUAL, "11 of 32 ranges", 1)
    shop.set("shop.t1", (1, "sent", "1.00"))
    shop.tick()
    code, found = proved(shop, capsys, "--routine")
    assert (code, found["shop.t1"]["verdict"], found["shop.t1"]["verified"]["share"]) == (Exit.DONE, "EQUAL", 1.0)


def test_a_killed_proof_is_begun_again_and_a_recorded_one_is_not(
    shop_of: Callable[..., Shop], capsys: pytest.CaptureFixture[str]
) -> None:
    """The same part comes up again where nothing was recorded, and the next one where it was."""
    shop = shop_of("shop.t1", split_column="id", chunks=4)
    routine(shop)
    filled(shop, 100)
    [state] = shop.pipeline.reader.tables().values()

    def compared() -> int:
        newest = ProofLedger(shop.pipeline.ledger).newest([state.id]).get(state.id)
        assert newest is None or newest.coverage is not None
        return 0 if newest is None else sum(at is not None for at in newest.coverage.proved)

    for fault, ranges in (("prove.looked", 0), ("prove.recorded", 11), ("prove.looked", 11), ("prove.recorded", 22)):
        shop.pipeline.killed("prove", fault, "--routine")
        assert compared() == ranges
    assert proved(shop, capsys, "--routine")[0] == Exit.DONE
    assert compared() == 32


def test_a_table_without_ranges_is_proved_complete_once_in_a_cycle(
    shop_of: Callable[..., Shop], capsys: pytest.CaptureFixture[str]
) -> None:
    """Between, its changed keys; and nothing where no keys can be asked for. A table that grew is cut again."""
    shop = shop_of("shop.t1", "shop.t2")
    document = yaml.safe_load(shop.pipeline.file.read_text(encoding="utf-8"))
    document["tables"][1]["key"] = []
    shop.pipeline.file.write_text(yaml.safe_dump(document), encoding="utf-8")
    routine(shop)
    filled(shop, 20)
    code, found = proved(shop, capsys, "--routine")
    assert (code, found["shop.t1"]["part"], found["shop.t2"]["part"]) == (Exit.DONE, "all rows", "all rows")
    shop.set("shop.t1", (3, "changed", "3.00"))
    shop.set("shop.t1", (4, "never sent", "3.00"), sent=False)
    shop.tick()
    code, found = proved(shop, capsys, "--routine")
    assert (code, found["shop.t1"]["part"], found["shop.t1"]["rows_source"]) == (
        Exit.DONE,
        "0 of 1 ranges and 1 key",
        1,
    )
    assert (found["shop.t2"]["part"], found["shop.t2"]["verdict"]) == ("0 of 1 ranges", "EQUAL")
    assert main(["prove", str(shop.pipeline.file), "--tables", "shop.t1", "--json"]) == Exit.NOT_EQUAL


def test_a_table_that_grows_is_cut_again_once_every_range_came_up(
    shop_of: Callable[..., Shop], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then rows beyond the last border are in the last range; no range is left out."""
    shop = shop_of("shop.t1", split_column="id")
    routine(shop, cover_in_days=3)
    filled(shop, 200)
    now = datetime.now(UTC)

    class Later(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return now

    monkeypatch.setattr("spark_jobs.prove.datetime", Later)
    for day in range(9):
        if day < 6:
            shop.set("shop.t1", (1_000 * (day + 1), "new", "1.00"))
            shop.set("shop.t1", (1_000 * (day + 1) + 1, "never sent", "1.00"), sent=False)
            shop.tick()
        _, found = proved(shop, capsys, "--routine")
        assert found["shop.t1"]["part"] != "all rows" and found["shop.t1"]["unproven"] == 0
        now += timedelta(days=1)
    assert found["shop.t1"]["missing"] == 6 and found["shop.t1"]["verified"]["share"] == 1.0
