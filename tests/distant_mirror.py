"""A mirror of which nothing lies on a common disk, for tests of jobs that run elsewhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fabric_emulator.web.emulator_server import EmulatorServer
from tests.e2e.test_histories import TABLES, history
from tests.object_storage import Storage
from tests.onelake import connection_variable
from tests.pipeline import Pipeline
from tests.postgres import PostgresServer
from workload_generator.ces import CesOptions, render
from workload_generator.delivery import Delivery
from workload_generator.transports import json_lines


def distant_mirror(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    storage: Storage,
    lake: EmulatorServer | None = None,
    postgres: PostgresServer | None = None,
    *,
    seed: int,
    transactions: int = 30,
    messages_per_file: int = 1_000_000,
) -> tuple[Pipeline, Any]:
    """The mirror ``shop`` in *folder*/mirror, and the history whose changes lie at its source.

    Source and change log are in *storage*, the landing zone is in *lake* (an emulator in *folder*/lake), the ledger in
    *postgres*; without these two they are below *folder*. The connections ``store``, ``lake`` and ``book`` are set.
    """
    made = history(seed=seed, transactions=transactions)
    delivery = Delivery(disorder=20, duplicates=0.05, seed=seed)
    messages = render(made.changes, CesOptions(max_data_bytes=1_700), delivery)
    for at in range(0, len(messages), messages_per_file):
        storage.deliver(f"stream/{at:06d}.jsonl", json_lines(messages[at : at + messages_per_file], layout="wrapped"))
    monkeypatch.setenv("AIRFLOW_CONN_STORE", storage.connection)
    settings: dict[str, Any] = {"ledger": f"sqlite:///{folder}/mirror/ledger.db"}
    if lake is not None:
        monkeypatch.setenv("AIRFLOW_CONN_LAKE", connection_variable(lake))
        at_lake = {"workspace": lake.workspace_id, "item": lake.database_id, "connection": "lake"}
        settings["landing_zone"] = {"store": "onelake", **at_lake}
    if postgres is not None:
        at_book = {"host": "127.0.0.1", "port": postgres.port, "schema": postgres.database}
        book = {"conn_type": "postgres", "login": postgres.user, "password": postgres.password, **at_book}
        monkeypatch.setenv("AIRFLOW_CONN_BOOK", json.dumps(book))
        settings["ledger"] = {"connection": "book"}
    pipeline = Pipeline(
        folder / "mirror",
        None,  # type: ignore[arg-type]
        TABLES,
        source={"path": f"{storage.address}/stream", "connection": "store"},
        change_log={"path": f"{storage.address}/log", "connection": "store"},
        mirror="shop",
        **settings,
    )
    if lake is not None:
        pipeline.service, pipeline.zone, pipeline.target = lake.service, folder / "lake/zone", folder / "lake/tables"
    return pipeline, made
