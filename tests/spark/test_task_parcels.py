"""What Spark writes to disk of a job holds no login to a storage or a source (S-11)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException

from open_mirroring.changes.manifest import CorrectionRange, Manifest
from open_mirroring.config import Table
from open_mirroring.config.connections import Connection, parsed
from open_mirroring.config.names import SourceName
from open_mirroring.config.storage import storage_place
from open_mirroring.errors import TerminalError, TransientError
from open_mirroring.storage.object_path import ObjectPath
from spark_jobs.changelog.schema import LogRow
from spark_jobs.changelog.writing import LogWriter
from spark_jobs.extract.correction_rows import CorrectionWrite, written
from spark_jobs.extract.read_task import LogTarget
from spark_jobs.proof.keys import LoggedChanges
from spark_jobs.proof.rows import Tables
from spark_jobs.proof.sides import ExportSource
from spark_jobs.runtime.job import as_ours
from spark_jobs.runtime.tasks import run_job
from spark_jobs.runtime.worker_tasks import sealed_frame
from spark_jobs.sources.exports.files import Export
from spark_jobs.sources.jdbc.tables import JdbcTable
from tests.object_storage import Storage, StorageServers

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
        assert run_job(spark, "look", work, [place / "b", place / "c"], 0) == [[], []]


def _disk_is_full(_task: str) -> None:
    with open("/dev/full", "w") as full:
        full.write("x" * 2**20)


def _lacks_a_module(_task: str) -> None:
    import_module("package_of_nobody")


def test_what_a_worker_lacks_is_reported_in_one_line_and_without_a_trace(spark: Any) -> None:
    """S-25: a disk that is full passes; a Python without the package does not, whoever asks Spark."""
    with pytest.raises(TransientError, match=r"^DISK_FULL: No space left on device") as full:
        run_job(spark, "write", _disk_is_full, ["a"], 0)
    assert "\n" not in str(full.value)
    with pytest.raises(
        TerminalError, match=r"^INSTALLATION_INCOMPLETE: .* without the module package_of_nobody"
    ) as unfit:
        run_job(spark, "import", _lacks_a_module, ["a"], 0)
    assert "\n" not in str(unfit.value)
    with pytest.raises(PySparkException) as frame:
        sealed_frame(spark, _lacks_a_module, ["a"], "id int").collect()
    assert "INSTALLATION_INCOMPLETE" in str(as_ours(frame.value))


@pytest.mark.parametrize(
    ("said", "code", "shown"),
    [
        (
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.11 than that in driver: 3.13, PySpark",
            "INSTALLATION_INCOMPLETE",
            "Python 3.11 and the driver has 3.13",
        ),
        (
            'Cannot run program "/nowhere/python": error=2, No such file or directory',
            "INSTALLATION_INCOMPLETE",
            "/nowhere/python",
        ),
        (
            'Cannot run program "/nowhere/python": Exec failed, error: 2 (No such file or directory)',
            "INSTALLATION_INCOMPLETE",
            "/nowhere/python",
        ),
        ('Cannot run program "python3": error=12, Cannot allocate memory', "None", "None"),
        ('Cannot run program "python3": error=11, Resource temporarily unavailable', "None", "None"),
        ('Cannot run program "python3": error=24, Too many open files', "None", "None"),
        ("java.io.IOException: No space left on device", "DISK_FULL", "SPARK_LOCAL_DIRS"),
        (
            'org.postgresql.util.PSQLException: ERROR: could not write to file "base/pgsql_tmp/1": '
            "No space left on device",
            "None",
            "None",
        ),
        ("an answer that nobody knows", "None", "None"),
    ],
)
def test_what_spark_says_of_unfit_workers_is_known(said: str, code: str, shown: str) -> None:
    """S-25: as Spark 4.0 to 4.3 say it, with a trace around it."""
    text = str(as_ours(PySparkException(f"Job aborted\n\tat scala\nCaused by: {said}\n\tat java")))
    assert text.startswith(code) and shown in text


BALLAST = "x" * 2_000_000


@dataclass(frozen=True)
class _Look:
    """Tells how many files of a folder have the secret while it goes through rows."""

    secret: bytes
    folder: str
    ballast: str = BALLAST

    def __call__(self, tables: Tables) -> Iterator[pa.RecordBatch]:
        rows = sum(table.num_rows for table in tables)
        kept = sum(self.secret in path.read_bytes() for path in Path(self.folder).rglob("*") if path.is_file())
        yield pa.RecordBatch.from_pylist([{"rows": rows, "kept": kept}])


def _secret(storage: Storage) -> bytes:
    return str(json.loads(storage.connection)["password"]).encode()


def test_a_proof_of_an_export_leaves_no_login_on_disk(
    tmp_path: Path, spark: Any, storage_servers: StorageServers
) -> None:
    """S-11: pieces of an export of ten thousand files, or the keys of a correction, make a function that large."""
    storage = storage_servers.new("azure")
    pq.write_table(pa.table({"id": pa.array(range(30), pa.int64())}), tmp_path / "1.parquet", row_group_size=10)
    storage.deliver("export/1.parquet", (tmp_path / "1.parquet").read_bytes())
    table = Table(source="dbo.a", target="dbo/a", key=["id"])
    source = ExportSource(spark, table, Export(storage.place("export"), "parquet"), {}, None)
    look = _Look(_secret(storage), str(spark.sparkContext._temp_dir))
    lines = source.frame(look, "rows bigint, kept bigint").collect()
    assert [(line["rows"], line["kept"]) for line in lines] == [(30, 0)]


def test_a_search_of_the_log_leaves_no_login_on_disk(spark: Any, storage_servers: StorageServers) -> None:
    """S-11: also when what is searched for is large."""
    storage = storage_servers.new("azure")
    writer = LogWriter(storage.place("log"), 1, "a", 0)
    writer.add(
        [LogRow("change", "t/0", at, "dbo.a", 0, "e", f"1:1:{at}", "I", f"k{at}", "[]", True, "{}") for at in range(4)]
    )
    manifest = Manifest(files=writer.finish().files, counts={})
    chosen = pc.field("key").isin(["k1", "k3", BALLAST])
    before = set(_files(spark))
    files = [file["path"] for file in manifest.files]
    changes = LoggedChanges(storage.place("log"), files, chosen, 4)
    assert changes.keys(spark, pa.array(["k0", "k1", "k2"])).to_pylist() == ["k1"]
    assert not [path for path in _files(spark) - before if _secret(storage) in path.read_bytes()]


def test_a_correction_leaves_no_login_on_disk(spark: Any, storage_servers: StorageServers) -> None:
    """S-11: a thousand keys may be long."""
    storage = storage_servers.new("azure")
    wanted = CorrectionRange("dbo.a", 0, "p")
    keys, places = ("k0", "k1", BALLAST), {True: ("e", "1:1:1"), False: ("e", "1:1:0")}
    write = CorrectionWrite(wanted, keys, {"id": "int"}, places, LogTarget(storage.place("log"), 1, "a", 0))
    rows = spark.createDataFrame([("k1", '{"id":"1"}', None)], "key string, row string, error binary")
    before = set(_files(spark))
    (file,) = written(spark, rows, write).written.files
    assert file["rows"] == 3
    assert not [path for path in _files(spark) - before if _secret(storage) in path.read_bytes()]


def test_a_read_over_jdbc_leaves_neither_login_nor_salt_on_disk(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """S-11: what workers do with rows of a database may hold many keys or columns beside login and salt."""
    database = {"conn_type": "postgres", "host": "db.invalid", "login": "reader", "password": "p"}
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", json.dumps(database))
    table = JdbcTable(spark, "shop", SourceName("dbo", "a"))
    folder, secret = str(spark.sparkContext._temp_dir), SECRET.encode()

    def work(part: int, batches: Iterable[pa.RecordBatch]) -> bytes:
        rows = sum(batch.num_rows for batch in batches)
        kept = sum(secret in path.read_bytes() for path in Path(folder).rglob("*") if path.is_file())
        return f"{len(BALLAST)} {part} {rows} {kept}".encode()

    assert table.answers(lambda: spark.range(0, 10, 1, 2), work, 2) == [b"2000000 0 5 0", b"2000000 1 5 0"]


def _files(spark: Any) -> set[Path]:
    return {path for path in Path(spark.sparkContext._temp_dir).rglob("*") if path.is_file()}
