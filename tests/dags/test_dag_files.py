"""What Airflow sees of the DAG files: identity, structure, policy, import errors, serialisation (AF-03, AF-15)."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest
import sqlalchemy as sa
from airflow import plugins_manager
from airflow.cli.cli_parser import get_parser
from airflow.dag_processing.dagbag import DagBag
from airflow.models.dag import DagModel
from airflow.models.errors import ParseImportError
from airflow.models.pool import Pool
from airflow.sdk.exceptions import ParamValidationError
from airflow.serialization.serialized_objects import DagSerialization
from airflow.utils.session import create_session

from open_mirroring.config import load_mirror
from open_mirroring.errors import TerminalError, TransientError
from open_mirroring.ledger import open_ledger
from open_mirroring.ledger.extract_ledger import ExtractLedger
from open_mirroring.protocols.extracting import Batch
from open_mirroring.reconciliation.inspection import declare_tables
from open_mirroring_airflow import dag_docs, mirror_dags
from open_mirroring_airflow.dag_factory import build_dags
from open_mirroring_airflow.provider_info import get_provider_info

pytestmark = pytest.mark.airflow

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "mirrors" / "shop.yaml"
JOBS = "correct_table decide initial_load maintain prove reconcile reload_table repair replay_dead_letters replicate"
IDS = [f"shop__{what}" for what in JOBS.split()]
SECOND = """
mirror: depot
source: {format: sqlserver-ces, transport: capture, path: capture}
landing_zone: {store: local, path: depot/zone}
ledger: sqlite:///depot/ledger.db
change_log: depot/log
tables: [{source: dbo.parts, target: dbo/parts, key: [part_id]}]
"""


def _bag() -> DagBag:
    return DagBag(dag_folder=ROOT / "dags")


@pytest.fixture
def dags(mirrors: Path) -> dict:
    shutil.copy(EXAMPLE, mirrors)
    bag = _bag()
    assert bag.import_errors == {}
    return bag.dags


def test_the_ids_are_exactly_these_for_each_mirror(mirrors: Path, dags: dict) -> None:
    assert sorted(dags) == IDS
    (mirrors / "depot.yaml").write_text(SECOND)
    assert sorted(_bag().dags) == sorted([*IDS, *(i.replace("shop", "depot") for i in IDS)])


def test_a_folder_without_mirrors_gives_no_dag_and_no_error(mirrors: Path) -> None:
    bag = _bag()
    assert (bag.dags, bag.import_errors) == ({}, {})


def test_a_broken_mirror_file_is_an_import_error_and_takes_no_other_mirror_with_it(mirrors: Path) -> None:
    shutil.copy(EXAMPLE, mirrors)
    (mirrors / "depot.yaml").write_text(SECOND.replace("dbo/parts", "../parts"))
    bag = _bag()
    assert sorted(bag.dags) == IDS
    [(file, text)] = bag.import_errors.items()
    # Airflow stops scheduling the DAGs of a file with an import error: this one must hold none.
    assert Path(file).name == "open_mirroring_import_errors.py"
    assert "CONFIG_INVALID" in text and "depot.yaml:7" in text and "Next step" in text


def test_a_missing_folder_is_an_import_error(mirrors: Path) -> None:
    mirrors.rmdir()
    bag = _bag()
    assert bag.dags == {}
    assert "PLACE_MISSING" in next(iter(bag.import_errors.values()))
    mirrors.mkdir()


def test_every_parse_gives_the_same_dags(dags: dict) -> None:
    again = _bag().dags
    for dag_id in IDS:
        first, second = (json.dumps(DagSerialization.to_dict(bag[dag_id]), default=str) for bag in (dags, again))
        assert first == second


def test_replicate_is_extract_beside_gate_then_publish_then_reconcile(dags: dict) -> None:
    dag = dags["shop__replicate"]
    assert {task.task_id: set(task.upstream_task_ids) for task in dag.tasks} == {
        "extract": set(),
        "gate": set(),
        "publish": {"extract", "gate"},
        "reconcile": {"publish"},
    }
    rules = {task.task_id: task.trigger_rule.value for task in dag.tasks}
    assert rules == {"extract": "all_success", "gate": "all_success", "publish": "all_done", "reconcile": "all_done"}
    assert [task.task_id for task in dag.leaves] == ["reconcile"], "a run's state comes from its leaves"


def test_replicate_runs_by_the_mirrors_cron_with_data_intervals_one_at_a_time(dags: dict) -> None:
    """AF-06: the plain cron timetable gives empty intervals."""
    dag = dags["shop__replicate"]
    assert type(dag.timetable).__name__ == "CronDataIntervalTimetable"
    assert DagSerialization.to_dict(dag)["dag"]["timetable"]["__var"]["expression"] == "0 * * * *"
    assert (dag.catchup, dag.max_active_runs) == (False, 1)


def test_loads_and_replays_run_by_hand_only_the_deep_check_and_maintenance_daily(dags: dict) -> None:
    for by_hand in ("initial_load", "replay_dead_letters"):
        dag = dags[f"shop__{by_hand}"]
        assert [run_type.value for run_type in dag.allowed_run_types] == ["manual"]
        assert type(dag.timetable).__name__ == "NullTimetable"
    for daily in ("reconcile", "maintain"):
        cron = DagSerialization.to_dict(dags[f"shop__{daily}"])["dag"]["timetable"]["__var"]["expression"]
        minute, hour, *days = cron.split()
        assert minute.isdigit() and hour.isdigit() and days == ["*", "*", "*"]


@pytest.mark.parametrize(
    ("what", "chain"),
    [
        ("initial_load", ["load", "reconcile"]),
        ("replay_dead_letters", ["replay", "publish", "reconcile"]),
        ("repair", ["approve", "repair", "reconcile"]),
        ("reload_table", ["approve", "reload", "reconcile"]),
        ("correct_table", ["approve", "correct", "publish", "reconcile"]),
    ],
)
def test_a_job_is_approved_done_published_and_looked_at(dags: dict, what: str, chain: list[str]) -> None:
    dag, before = dags[f"shop__{what}"], [set(), *({task} for task in chain)]
    assert {one.task_id: set(one.upstream_task_ids) for one in dag.tasks} == dict(zip(chain, before, strict=False))
    assert [task.task_id for task in dag.leaves] == ["reconcile"]
    assert "approve" not in chain or dag.get_task("approve").response_timeout == timedelta(days=1)


def test_forms_refuse_what_names_nothing(dags: dict) -> None:
    """G-45: no table is dropped by a run that names none, and no row published by one that names no proof."""
    for what, field, wrong in (
        ("reload_table", "table", ("dbo.nothing", None)),
        ("reload_table", "reason", ("", None)),
        ("correct_table", "proof", ("the last one", None)),
        ("replay_dead_letters", "table", ("dbo.nothing", "")),
    ):
        for value in wrong:
            with pytest.raises(ParamValidationError):
                dags[f"shop__{what}"].params.get_param(field).resolve(value)
    params = dags["shop__replay_dead_letters"].params
    assert params.dump() == dict.fromkeys(("code", "table", "after", "before"))
    table = params.get_param("table")
    assert "enum" not in table.schema, "a list would show null as one of the values"
    assert table.resolve(table.schema["examples"][0]) == table.schema["examples"][0]
    assert dags["shop__correct_table"].params.get_param("proof").resolve(str(UUID(int=1))) == str(UUID(int=1))


def test_tasks_run_in_the_pool_that_every_airflow_has_unless_another_one_is_named(dags: dict) -> None:
    """AF: a pool that was never made leaves the tasks of a new mirror file scheduled for ever, without a word."""
    assert {task.pool for dag in dags.values() for task in dag.tasks} == {Pool.DEFAULT_POOL_NAME}
    named = {
        (dag.dag_id, task.task_id): (task.pool, task.max_active_tis_per_dag)
        for dag in mirror_dags(EXAMPLE.parent, pool="spark").values()
        for task in dag.tasks
    }
    assert named["shop__replicate", "extract"] == named["shop__replicate", "publish"] == ("spark", 1)
    assert named["shop__replicate", "gate"] == named["shop__replicate", "reconcile"] == ("default_pool", None)
    in_pool = {task for task, (pool, _) in named.items() if pool == "spark"}
    assert in_pool == {key for key, (_, most) in named.items() if most == 1}, "one at a time, backfills included"


def test_every_dag_says_what_it_does_and_every_task_has_an_owner(dags: dict) -> None:
    for dag in dags.values():
        assert "shop" in dag.doc_md and "$" not in dag.doc_md
        assert set(dag.tags) == {"open-mirroring", "shop"}
        assert {task.owner for task in dag.tasks} == {"open-mirroring"}
    assert "Backfill" in dags["shop__replicate"].doc_md


def test_the_committed_page_of_dags_has_all_of_them() -> None:
    page = (ROOT / "docs" / "reference" / "dags.md").read_text(encoding="utf-8")
    assert page == dag_docs.book(), "run `make commands`"
    assert sorted(re.findall(r"^## (shop__\w+)$", page, flags=re.MULTILINE)) == IDS


def test_the_pages_backfill_is_a_command_of_airflow_for_24_hourly_runs(dags: dict) -> None:
    page = (ROOT / "docs" / "how-to" / "backfill.md").read_text().replace("\\\n", "")
    [call] = re.findall(r"^airflow backfill create .*$", page, re.MULTILINE)
    asked = get_parser().parse_args(shlex.split(call)[1:])
    params, conf = dags[asked.dag_id].params, json.loads(asked.dag_run_conf)
    assert {name: params.get_param(name).resolve(value) for name, value in conf.items()} == {"reread": True}
    assert asked.to_date - asked.from_date == timedelta(hours=23)
    assert (asked.reprocess_behavior, asked.max_active_runs, asked.run_backwards) == ("completed", 1, True)


def test_terminal_errors_are_not_tried_again_and_transient_ones_are(dags: dict) -> None:
    for task in (task for dag in dags.values() for task in dag.tasks):
        # An approval is asked for once; a reload that waits for the target is deferred.
        retries = {"approve": 0}.get(task.task_id, 2)
        assert (task.retries, task.retry_delay) == (retries, timedelta(minutes=1))
        policy = task.retry_policy
        assert policy.evaluate(TerminalError("X", "x"), 1, 3).action.value == "fail"
        assert policy.evaluate(TransientError("X", "x"), 1, 3).action.value == "retry"
        assert policy.evaluate(RuntimeError("x"), 1, 3).action.value == "default"


def test_params_are_checked_when_a_run_is_started(dags: dict) -> None:
    dag = dags["shop__replicate"]
    assert dag.params.dump() == {"tables": [], "reread": False}
    sources = [table.source for table in load_mirror(EXAMPLE).tables]
    assert dag.params.get_param("tables").resolve(sources[:1]) == sources[:1]
    for wrong in (["dbo.nothing"], "dbo.orders", [sources[0], sources[0]]):
        with pytest.raises(ParamValidationError):
            dag.params.get_param("tables").resolve(wrong)


def test_initial_load_offers_only_tables_that_have_one(write_mirror: Callable[..., Path]) -> None:
    text = """
    mirror: shop
    source: {format: sqlserver-ces, transport: capture, path: capture}
    landing_zone: {store: local, path: zone}
    ledger: sqlite:///ledger.db
    change_log: log
    tables:
      - {source: dbo.orders, target: dbo/orders, key: [order_id]}
      - source: dbo.customers
        target: dbo/customers
        key: [customer_id]
        initial_load: {format: parquet, path: export/customers, stream_from: beginning}
    """
    load = build_dags(load_mirror(write_mirror(text)))[0]
    assert load.params.get_param("tables").schema["items"]["enum"] == ["dbo.customers"]


def test_a_history_is_chosen_where_one_table_is_and_covered_where_several_are(
    write_mirror: Callable[..., Path],
) -> None:
    """G-194: it is reloaded, repaired and decided about by itself; published, checked and proved with its table."""
    file = write_mirror()
    text = file.read_text(encoding="utf-8").replace("[order_id]", "[order_id], history: {target: dbo/orders_history}")
    dags = {dag.dag_id: dag for dag in build_dags(load_mirror(write_mirror(text)))}
    tables, history = ["dbo.customers", "dbo.orders"], "dbo.orders (history)"
    for what in ("reload_table", "repair"):
        assert dags[f"shop__{what}"].params.get_param("table").schema["enum"] == [*tables, history]
    assert dags["shop__decide"].params.get_param("table").schema["examples"] == [*tables, history]
    for what in ("replicate", "reconcile", "prove"):
        assert dags[f"shop__{what}"].params.get_param("tables").schema["items"]["enum"] == tables
    assert dags["shop__replay_dead_letters"].params.get_param("table").schema["examples"] == tables


def test_airflow_finds_one_plugin_and_imports_no_other_module_twice(metadata_database: None) -> None:
    names = [plugin["name"] for plugin in plugins_manager.get_plugin_info(["name"])]
    assert names.count("open_mirroring") == 1
    assert plugins_manager.get_import_errors() == {}
    assert {"operators", "triggers", "sensors", "gate", "connections"}.isdisjoint(sys.modules)


def test_provider_metadata_is_what_airflow_accepts() -> None:
    import jsonschema
    from airflow import providers_manager

    schema = json.loads((Path(providers_manager.__file__).parent / "provider_info.schema.json").read_text())
    jsonschema.validate(get_provider_info(), schema)


def test_a_process_of_airflow_finds_exactly_the_dags_and_no_import_error(mirrors: Path) -> None:
    shutil.copy(EXAMPLE, mirrors)
    command = [sys.executable, "-m", "airflow", "dags", "reserialize"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "plugins")])}
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert ended.returncode == 0, ended.stderr
    with create_session() as session:
        assert session.scalars(sa.select(ParseImportError.stacktrace)).all() == []
        assert sorted(session.scalars(sa.select(DagModel.dag_id).where(~DagModel.is_stale))) == IDS


CLASHES = {
    "other name": ("mirror: shop", "mirror: second"),
    "other zone": ("path: build/", "path: build/other/"),
    "other log": ("change_log: ", "change_log: other/"),
    "other ledger": ("sqlite:///", "sqlite:///other/"),
    "a copy": ("", ""),
}


@pytest.mark.parametrize("changed", CLASHES.values(), ids=CLASHES)
def test_a_file_that_clashes_with_a_mirror_that_runs_has_no_dags_and_the_mirror_keeps_its_own(
    mirrors: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: tuple[str, str]
) -> None:
    """G-175: the ledger tells which file runs; `second.yaml` comes before `shop.yaml` by its name."""
    monkeypatch.setenv("OPEN_MIRRORING_HOME", str(tmp_path))
    text = EXAMPLE.read_text(encoding="utf-8")
    (mirrors / "shop.yaml").write_text(text, encoding="utf-8")
    (mirrors / "second.yaml").write_text(text.replace(*changed, 1), encoding="utf-8")
    bag = _bag()
    assert bag.dags == {} and "MIRROR_CLASH" in next(iter(bag.import_errors.values())), "neither has run"
    mirror = load_mirror(mirrors / "shop.yaml")
    ledger = ExtractLedger(open_ledger(mirror.ledger_url()), mirror.name, log=mirror.writes["change_log"])
    declare_tables(mirror, open_ledger(mirror.ledger_url()))
    ledger.bind(ledger.acquire().row.version, Batch(1, "[]"), ())
    bag = _bag()
    assert sorted(bag.dags) == IDS and {dag.fileloc for dag in bag.dags.values()}
    assert all(task.mirror_file == str(mirror.file) for task in bag.dags["shop__replicate"].tasks)
    (text,) = bag.import_errors.values()
    assert "MIRROR_CLASH" in text and "second.yaml:" in text and "shop.yaml:" not in text
