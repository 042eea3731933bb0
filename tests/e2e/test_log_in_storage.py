"""A change log in object storage, in real servers of it, carries what one in a local folder does (S-09 to S-11)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from open_mirroring.changes.manifest import Manifest
from open_mirroring.config.storage import log_place
from open_mirroring.errors import TerminalError
from open_mirroring.operate.exit_codes import Exit
from open_mirroring.protocols.extracting import CommitRefused, Committed
from open_mirroring.storage.object_path import delta_address
from open_mirroring.storage.object_store import ObjectStore
from spark_jobs.changelog.change_log import ChangeLog
from spark_jobs.changelog.delta_log import log_files
from spark_jobs.changelog.newest_batch import newest_in_log
from spark_jobs.changelog.schema import LogRow
from spark_jobs.changelog.writing import LogWriter
from spark_jobs.cli.command_line import main
from spark_jobs.maintain import maintain
from spark_jobs.reconcile_sequence import reconcile_deep
from tests.e2e.test_crashes import EXTRACT
from tests.e2e.test_histories import TABLES, assert_mirrored, history
from tests.object_storage import KINDS, Storage
from tests.pipeline import Pipeline
from workload_generator.ces import CesOptions, render
from workload_generator.delivery import Delivery
from workload_generator.transports import json_lines


@pytest.fixture(params=KINDS)
def storage(request: pytest.FixtureRequest, storage_servers, monkeypatch: pytest.MonkeyPatch) -> Iterator[Storage]:
    """A place in object storage, whose connection ``store`` is set."""
    place = storage_servers.new(request.param)
    monkeypatch.setenv("AIRFLOW_CONN_STORE", place.connection)
    return place


def at(storage: Storage, name: str) -> dict[str, str]:
    return {"path": f"{storage.address}/{name}", "connection": "store"}


def in_storage(storage: Storage, folder: Path, spark: Any, **settings: Any) -> Pipeline:
    """A mirror whose source and change log are in object storage."""
    return Pipeline(folder, spark, TABLES, source=at(storage, "stream"), change_log=at(storage, "the log"), **settings)


def halves(storage: Storage, seed: int) -> tuple[Any, list[bytes]]:
    made = history(seed=seed, transactions=24)
    messages = render(made.changes, CesOptions(max_data_bytes=1_700), Delivery(disorder=20, duplicates=0.05, seed=seed))
    half = len(messages) // 2
    return made, [json_lines(part, layout="wrapped") for part in (messages[:half], messages[half:])]


def test_two_ticks_are_mirrored_checked_and_maintained(storage: Storage, tmp_path: Path, spark) -> None:
    """S-09: whatever reads the log finds it where it is."""
    made, parts = halves(storage, 4)
    pipeline = in_storage(storage, tmp_path, spark)
    for number, part in enumerate(parts):
        storage.deliver(f"stream/{number}.jsonl", part)
        pipeline.tick()
    assert_mirrored(pipeline, made)
    assert not pipeline.log.exists()
    deep = reconcile_deep(pipeline.mirror, pipeline.ledger, spark)
    assert (deep.stopped, deep.held) == ({}, {})
    root = log_place(pipeline.mirror)
    files = log_files(root)
    dead = root / "batch_block=0" / "000000000001-dead-00000.parquet"
    dead.create(b"of a run that was killed")
    maintained = maintain(pipeline.mirror, pipeline.ledger, now=datetime.now(UTC) + timedelta(days=1))
    assert maintained.vacuumed == 0, "it may be of a run that goes on"
    assert log_files(root) == files
    pipeline.tick()
    assert_mirrored(pipeline, made)


@pytest.mark.parametrize("fault", ["extract.written", "extract.committed", "publish.sealed"])
def test_the_next_tick_finishes_what_a_killed_one_began(
    fault: str, storage_servers, monkeypatch, tmp_path, spark
) -> None:
    """S-09: over Azurite; all fault points, sources and storages are in the long form of ``test_object_storage``."""
    storage = storage_servers.new("azure")
    monkeypatch.setenv("AIRFLOW_CONN_STORE", storage.connection)
    made, (first, second) = halves(storage, 3)
    pipeline = in_storage(storage, tmp_path, spark, publish={"max_rows_per_file": 3})
    storage.deliver("stream/1.jsonl", first)
    pipeline.tick()
    storage.deliver("stream/2.jsonl", second)
    if fault not in EXTRACT:
        pipeline.extract()
    pipeline.killed("extract_changes" if fault in EXTRACT else "publish_changes", fault)
    pipeline.service.poll()
    pipeline.tick()
    assert_mirrored(pipeline, made)
    assert [batch for batch, _, _ in pipeline.reader.batches()] == [1, 2]


def written(storage: Storage, batch: int, attempt: str) -> Manifest:
    """A log file of a batch, as a worker writes it."""
    writer = LogWriter(storage.place("log"), batch, attempt, 0)
    writer.add([LogRow("change", "t/0", 1, "dbo.a", 0, "e", "1:1:1", "I", "k", "[]", True, "{}")])
    return Manifest(files=writer.finish().files, counts={})


def test_a_commit_on_an_old_state_is_refused(storage: Storage) -> None:
    """S-10: of two drivers that opened the same state one commits, whatever the other one has."""
    one, other = (ChangeLog(storage.place("log"), "test") for _ in range(2))
    first, second = written(storage, 1, "a"), written(storage, 1, "b")
    one.open(1, first, "")
    other.open(1, second, "")
    assert isinstance(one.commit(1, first), Committed)
    assert isinstance(other.commit(1, second), CommitRefused)
    assert log_files(storage.place("log")) == [first.files[0]["path"]]
    assert other.open(1, second, "mine").manifest == ""
    assert one.open(1, first, "mine").manifest == "mine"


def test_another_object_than_was_sealed_is_not_committed(storage: Storage) -> None:
    """S-09: not even one of the same length and rows."""
    log = ChangeLog(storage.place("log"), "test")
    manifest = written(storage, 1, "a")
    log.open(1, manifest, "")
    name = f"log/{manifest.files[0]['path']}"
    content = storage.place(name).read_bytes()
    storage.deliver(name, content.replace(b"e", b"e"))
    if storage.kind == "s3":
        # Its ETag is the digest of the content: the same content is the same object.
        assert isinstance(log.commit(1, manifest), Committed)
        return
    with pytest.raises(TerminalError, match="ETag differs"):
        log.commit(1, manifest)


def test_a_storage_that_creates_twice_takes_no_log(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """S-10: on such a storage both of two commits would be taken, and one would be lost."""
    from open_mirroring.storage.object_store import ObjectStore

    def careless(self: ObjectStore, name: str, content: bytes) -> str:
        return str(self._service.put(name, content)["e_tag"])

    monkeypatch.setattr(ObjectStore, "create", careless)
    with pytest.raises(TerminalError, match="STORE_UNFIT"):
        ChangeLog(storage.place("log"), "test").open(1, Manifest(files=[], counts={}), "")
    uri, options = delta_address(storage.place("log"))
    assert not DeltaTable.is_deltatable(uri, options)


def test_a_creation_whose_answer_was_lost_is_found_again(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """S-09: 412 and 409 both mean that it is there."""
    from open_mirroring.storage.object_store import ObjectStore

    create = ObjectStore.create

    def lost(self: ObjectStore, name: str, content: bytes) -> str:
        create(self, name, content)
        return create(self, name, content)

    monkeypatch.setattr(ObjectStore, "create", lost)
    (file,) = written(storage, 1, "a").files
    assert storage.place(f"log/{file['path']}").stat().version == f"{file['size']}:{file['etag']}"


@pytest.mark.parametrize(
    ("rights", "story"), [("rl", "nothing can be written"), ("rlwc", "nothing can be deleted"), ("rlwcd", "")]
)
def test_a_check_tries_to_write_and_to_delete_where_the_log_will_be(
    rights: str, story: str, storage_servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """S-24: a login that may only read is reported before the first run, and nothing is left of the trial."""
    from azure.storage.blob import generate_container_sas

    storage = storage_servers.new("azure")
    given, until = json.loads(storage.connection), datetime.now(UTC) + timedelta(hours=1)
    account, key = given["login"], given["password"]
    sas = generate_container_sas(account, "changes", account_key=key, permission=rights, expiry=until)
    connection = {"conn_type": "wasb", "host": given["host"], "extra": {"sas_token": sas}}
    monkeypatch.setenv("AIRFLOW_CONN_STORE", json.dumps(connection))
    pipeline = Pipeline(tmp_path, None, TABLES, change_log=at(storage, "the log"))
    assert main(["check", str(pipeline.file)]) == (Exit.USAGE if story else Exit.DONE)
    said = "".join(capsys.readouterr())
    assert story in said and ("ACCESS_DENIED" in said) == bool(story) and "sig=" not in said
    assert len(list(storage.place().store.objects(storage.place().key))) == ("deleted" in story)


@pytest.mark.parametrize("kind", KINDS)
def test_a_trial_whose_creation_was_repeated_is_deleted_too(
    kind: str, storage_servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """S-24: the answer to the first attempt was lost, so that the second one finds the object."""
    storage: Storage = storage_servers.new(kind)
    monkeypatch.setenv("AIRFLOW_CONN_STORE", storage.connection)
    once = ObjectStore.create

    def repeated(store: ObjectStore, name: str, content: bytes) -> str:
        once(store, name, content)
        return once(store, name, content)

    monkeypatch.setattr(ObjectStore, "create", repeated)
    pipeline = Pipeline(tmp_path, None, TABLES, change_log=at(storage, "the log"))
    assert main(["check", str(pipeline.file)]) == Exit.DONE, capsys.readouterr()
    assert list(storage.place().store.objects(storage.place().key)) == []


def test_a_signature_opens_the_log_too(storage_servers, tmp_path: Path) -> None:
    """S-02, S-11: whatever a connection signs in with."""
    from azure.storage.blob import AccountSasPermissions, ResourceTypes, generate_account_sas

    storage = storage_servers.new("azure")
    given = json.loads(storage.connection)
    rights = AccountSasPermissions(read=True, write=True, list=True, delete=True, create=True)
    kinds = ResourceTypes(service=True, container=True, object=True)
    until = datetime.now(UTC) + timedelta(hours=1)
    sas = generate_account_sas(given["login"], given["password"], kinds, rights, until)
    signed = storage._replace(
        connection=json.dumps({"conn_type": "wasb", "host": given["host"], "extra": {"sas_token": sas}})
    )
    log, manifest = ChangeLog(signed.place("log"), "test"), written(signed, 1, "a")
    log.open(1, manifest, "")
    assert isinstance(log.commit(1, manifest), Committed)
    assert log_files(storage.place("log")) == [manifest.files[0]["path"]]
    content = {"conn_type": "wasb", "host": given["host"], "extra": {"sas_token": f"{sas[:-9]}AAAAAAAA%3D"}}
    refused = storage._replace(connection=json.dumps(content))
    with pytest.raises(TerminalError, match="ACCESS_DENIED") as denied:
        log_files(refused.place("log"))
    assert "sig=" not in str(denied.value) and "AAAAAAAA" not in str(denied.value)


def test_a_log_is_its_first_mirrors_g_175(storage: Storage) -> None:
    """Of two mirrors on one new log the first creates it; the other one is refused before it binds or commits."""
    root = storage.place("log")
    shop, second = ChangeLog(root, "shop"), ChangeLog(root, "second")
    shop.claim()
    manifest = written(storage, 1, "a")
    for refused in (second.claim, lambda: second.open(1, manifest, "{}"), lambda: newest_in_log(root, "second")):
        with pytest.raises(TerminalError, match=r"MIRROR_CLASH: the change log is that of mirror 'shop'"):
            refused()
    shop.open(1, manifest, "{}")
    assert isinstance(shop.commit(1, manifest), Committed)
    assert newest_in_log(root, "shop") == 1
