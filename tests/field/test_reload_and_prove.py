"""A reload ends with everything published that was logged; a proof without a source is refused and hides no other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from tests.ces_messages import event, lsn
from tests.field.trial import Trial

pytestmark = pytest.mark.spark


def _mirror(folder: Path, **of_table: Any) -> Trial:
    table = {"source": "dbo.orders", "target": "dbo/orders", "key": ["id"], **of_table}
    document = {
        "mirror": "shop",
        "source": {"format": "sqlserver-ces", "transport": "files", "layout": "bare", "path": "source"},
        "landing_zone": {"store": "local", "path": "zone", "tables": "tables"},
        "ledger": "sqlite:///ledger.db",
        "change_log": "log",
        "tables": [table],
    }
    (folder / "source").mkdir(parents=True)
    trial = Trial(folder)
    trial.file.write_text(yaml.safe_dump(document), encoding="utf-8")
    return trial


def _export(folder: Path, price: str) -> dict[str, Any]:
    folder.mkdir()
    row = {"id": [1, 2], "name": ["Ada", "Eve"], "price": [price, "1.00"]}
    pq.write_table(pa.table(row), folder / "1.parquet")
    return {"format": "parquet", "path": folder.name}


def _changed(trial: Trial, price: str, commit: int) -> None:
    old, new = ({"id": "1", "name": "Ada", "price": one} for one in ("1.00", price))
    change = event(
        "UPD", new, old, commit=commit, cols=(("id", "bigint"), ("name", "nvarchar(50)"), ("price", "nvarchar(9)"))
    )
    (trial.folder / "source" / f"{commit}.jsonl").write_bytes(change + b"\n")


def test_a_reload_publishes_what_was_logged_behind_its_load(tmp_path: Path) -> None:
    """The reset ends with the load alone; the changes above it are in the log, and no later run has to bring them."""
    trial = _mirror(tmp_path / "shop")
    load = {**_export(trial.folder / "export", "1.00"), "stream_from": lsn(10)}
    document = yaml.safe_load(trial.file.read_text())
    document["tables"][0]["initial_load"] = load
    trial.file.write_text(yaml.safe_dump(document))
    assert trial.run("initial-load").code == 0
    _changed(trial, "2.00", 12)
    assert trial.run("tick").code == 0
    trial.apply()
    assert [row["price"] for row in trial.rows("dbo/orders")] == ["2.00", "1.00"]
    asked = ("--table", "dbo.orders", "--reason", "x", "--approved-by", "Ada", "--request", "r1", "--wait", "0")
    for _ in range(4):
        ended = trial.run("reload-table", *asked)
        trial.apply()
        if ended.code != 5:
            break
    assert ended.code == 0, ended.text
    assert [row["price"] for row in trial.rows("dbo/orders")] == ["2.00", "1.00"], "no tick in between"


def test_a_proof_without_a_source_is_refused_before_spark_and_hides_no_earlier_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = _mirror(tmp_path / "shop")
    (trial.folder / "source" / "1.jsonl").write_bytes(
        event("INS", {"id": "1", "name": "Ada", "price": "2.00"}, commit=10) + b"\n"
    )
    assert trial.run("tick").code == 0
    trial.apply()
    rows = {"id": pa.array([1], pa.int32()), "name": ["Ada"], "price": pa.array([2], pa.decimal128(8, 2))}
    (trial.folder / "proof").mkdir()
    pq.write_table(pa.table(rows), trial.folder / "proof" / "dbo.orders.parquet")
    export = ("--export", str(trial.folder / "proof"), "--export-format", "parquet", "--since", lsn(10))
    proved = trial.run("prove", *export)
    assert proved.code == 0, proved.text

    def started(*_: Any) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("spark_jobs.runtime.session.build_session", started)
    refused = trial.run("prove")
    assert refused.code == 2 and "CONFIG_INVALID" in refused.text and "dbo.orders" in refused.text
    assert "not proved" not in refused.text and "UNPROVEN" not in refused.text
    [table] = json.loads(trial.run("status", "--json").out)["tables"]
    assert table["proof"]["verdict"] == "EQUAL"
