"""What Spark writes to disk of a job holds no login to a storage or a source (S-11)."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

from open_mirroring.config.connections import Connection, parsed
from open_mirroring.config.storage import storage_place
from open_mirroring.storage.object_path import ObjectPath
from spark_jobs.runtime.job import run_job

SECRET = "Y2FuYXJ5LWtleS03ZjNh"


def _files_with_the_secret(
    place: ObjectPath, database: Connection, ballast: str, folder: str, task: ObjectPath
) -> list[str]:
    assert place.root.login == task.root.login and database.password == SECRET, "they arrived"
    secret = SECRET.encode()
    return [str(path) for path in Path(folder).rglob("*") if path.is_file() and secret in path.read_bytes()]


def test_neither_a_task_nor_a_large_function_leaves_a_login_on_disk(spark) -> None:
    """Spark hands a function of more than a megabyte over through a file; the driver's folder has all such files."""
    connection = {"conn_type": "wasb", "login": "account", "password": SECRET}
    place = storage_place("az://changes/a", parsed("store", json.dumps(connection)))
    database = parsed("shop", json.dumps({"conn_type": "postgres", "host": "db.invalid", "password": SECRET}))
    folder = str(spark.sparkContext._temp_dir)
    for ballast in ("", "x" * 2_000_000):
        work = partial(_files_with_the_secret, place, database, ballast, folder)
        assert run_job(spark, "look", work, [place / "b", place / "c"]) == [[], []]
