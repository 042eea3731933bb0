"""The Azure SDK itself against the served emulator, unmodified, over TLS."""

from __future__ import annotations

import io
import json
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import requests
from azure.core import MatchConditions
from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceNotFoundError
from azure.identity import ClientSecretCredential
from azure.storage.filedatalake import DataLakeServiceClient, FileSystemClient, LinearRetry
from deltalake import DeltaTable

from fabric_emulator.web import EmulatorServer

TABLE = "shop.MirroredDatabase/Files/LandingZone/dbo.schema/items"
FINAL = f"{TABLE}/00000000000000000001.parquet"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmulatorServer]:
    root = tmp_path_factory.mktemp("sdk")
    clients = {"app": "secret"}
    with EmulatorServer(root / "zone", root / "tables", tls=True, database="shop", clients=clients) as server:
        yield server


@pytest.fixture
def workspace(server: EmulatorServer) -> Iterator[FileSystemClient]:
    server.faults.clear()
    with _service(server) as service:
        yield service.get_file_system_client("emulator")
        service.get_directory_client("emulator", TABLE).delete_directory()


def _service(server: EmulatorServer, account: str = "") -> DataLakeServiceClient:
    retries = LinearRetry(backoff=0, random_jitter_range=0, retry_total=2)
    return DataLakeServiceClient(
        server.url + account,
        credential=_credential(server),
        connection_verify=str(server.certificate),
        retry_policy=retries,
    )


def _credential(server: EmulatorServer) -> ClientSecretCredential:
    return ClientSecretCredential(
        "tenant",
        "app",
        "secret",
        authority=server.url,
        disable_instance_discovery=True,
        connection_verify=str(server.certificate),
        retry_total=0,
    )


def _staged(workspace: FileSystemClient, content: bytes = b"rows") -> str:
    file = workspace.get_file_client(f"{TABLE}/_stage-1/a")
    file.create_file(match_condition=MatchConditions.IfMissing)
    file.append_data(content, 0)
    file.flush_data(len(content))
    return str(file.get_file_properties().etag)


def test_publishing(workspace: FileSystemClient) -> None:
    """O-05, O-06: create, append, flush, properties, conditional rename, download."""
    etag = _staged(workspace)
    staged = workspace.get_file_client(f"{TABLE}/_stage-1/a")
    with pytest.raises(ResourceExistsError):
        staged.create_file(match_condition=MatchConditions.IfMissing)
    final = staged.rename_file(f"emulator/{FINAL}", match_condition=MatchConditions.IfMissing)
    found = final.get_file_properties()
    assert (found.size, found.etag, found.owner) == (4, etag, "$superuser")
    assert final.download_file().readall() == b"rows"
    assert final.download_file(1, 2).readall() == b"ow"
    with pytest.raises(ResourceNotFoundError):
        staged.get_file_properties()


def test_renames_that_name_an_end_wrongly_fail(server: EmulatorServer, workspace: FileSystemClient) -> None:
    """O-06: a new name without the file system, a call at the target, workspace and item in the account's address."""
    _staged(workspace)
    staged = workspace.get_file_client(f"{TABLE}/_stage-1/a")
    with pytest.raises(HttpResponseError) as unnamed:
        staged.rename_file(FINAL)
    assert unnamed.value.error_code == "FilesystemNotFound"
    with pytest.raises(ResourceNotFoundError):
        workspace.get_file_client(FINAL).rename_file(f"emulator/{TABLE}/_stage-1/a")
    with _service(server, account="/emulator/shop.MirroredDatabase") as service, pytest.raises(HttpResponseError):
        service.get_file_client("Files", "LandingZone/dbo.schema/items/_stage-1/a").rename_file(f"Files/{FINAL}")
    assert [path.name for path in workspace.get_paths(TABLE) if not path.is_directory] == [f"{TABLE}/_stage-1/a"]


def test_account_urls_with_and_without_the_account(server: EmulatorServer, workspace: FileSystemClient) -> None:
    """O-01: ``onelake`` may stand in the path where it cannot stand in the host."""
    _staged(workspace)
    with _service(server, account="/onelake") as service:
        file = service.get_file_client(
            server.workspace_id, f"{server.database_id}/Files/LandingZone/dbo.schema/items/_stage-1/a"
        )
        final = f"{server.landing_zone_path}/dbo.schema/items/b"
        assert file.rename_file(final).get_file_properties().size == 4


def test_who_does_not_trust_the_certificate_sends_nothing(server: EmulatorServer) -> None:
    """It is the emulator's own."""
    with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
        urllib.request.urlopen(server.url, timeout=300)
    trusting = ssl.create_default_context(cafile=str(server.certificate))
    with urllib.request.urlopen(f"{server.url}/_emulator/health", timeout=300, context=trusting) as answer:
        assert answer.status == 200


class PublicWriter:
    """What Microsoft's public sample of an open mirroring client does, call by call, in words of our own.

    Its account's address ends in the item's ``Files``; ``LandingZone``, or a folder below it, is its file system.
    """

    def __init__(self, server: EmulatorServer, table: str) -> None:
        self.host = f"{server.url}/{server.workspace_id}/{server.database_id}/Files"
        self.service = _service(server, account=urllib.parse.urlsplit(self.host).path)
        self.zone = self.service.get_file_system_client("LandingZone")
        self.folder = self.zone.get_directory_client(table)
        self.table, self.certificate = table, str(server.certificate)
        self.token = server.tokens.issue("https://storage.azure.com")

    def create(self, metadata: dict[str, object]) -> None:
        self.folder.create_directory()
        content = json.dumps(metadata)
        file = self.folder.create_file("_metadata.json")
        file.append_data(data=content, offset=0, length=len(content))
        file.flush_data(len(content))

    def names(self) -> list[str]:
        listed = self.service.get_file_system_client(f"LandingZone/{self.table}").get_paths(recursive=False)
        return sorted(path.name.rpartition("/")[2] for path in listed if not path.is_directory)

    def upload(self, content: bytes) -> None:
        assert self.folder.exists()
        numbers = [int(name.partition(".")[0]) for name in self.names() if name[0] != "_"]
        name = f"{max(numbers, default=0) + 1:020}.parquet"
        file = self.folder.create_file(f"_{name}")
        file.append_data(data=content, offset=0, length=len(content))
        file.flush_data(len(content))
        folder = f"{self.host}/LandingZone/{self.table}"
        headers = {
            "Authorization": f"Bearer {self.token}",
            "x-ms-rename-source": f"{folder}/_{name}",
            "x-ms-version": "2020-06-12",
        }
        renamed = requests.put(f"{folder}/{name}", headers=headers, verify=self.certificate, timeout=30)
        assert renamed.status_code == 201, renamed.text

    def status(self) -> str:
        file = self.service.get_file_system_client("Monitoring").get_file_client("tables.json")
        assert file.exists()
        (table,) = json.loads(file.download_file().readall())["tables"]
        return str(table["status"])


def parquet_bytes(**columns: list[object]) -> bytes:
    stream = io.BytesIO()
    pq.write_table(pa.table(columns), stream)
    return stream.getvalue()


def test_the_public_sample_of_a_writer_runs_unmodified(server: EmulatorServer) -> None:
    """O-01, O-06: its listing takes the table's folder for the file system, and its numbers come from there."""
    server.faults.clear()
    writer = PublicWriter(server, "dbo.schema/people")
    writer.create({"keyColumns": ["id"]})
    assert writer.names() == ["_metadata.json"]
    server.service.poll()
    assert writer.status() == "Snapshotting", "metadata, and no data file yet"
    writer.upload(parquet_bytes(id=[1, 2]))
    writer.upload(parquet_bytes(id=[3]))
    assert writer.names()[:2] == [f"{1:020}.parquet", f"{2:020}.parquet"]
    assert [(one.number, one.rows) for one in server.service.poll()] == [(1, 2), (2, 1)]
    assert writer.status() == "Replicating"
    whole = writer.service.get_file_system_client("LandingZone").get_paths(path=writer.table, recursive=False)
    assert f"{2:020}.parquet" in {path.name.rpartition("/")[2] for path in whole}
    writer.folder.delete_directory()
    assert not writer.folder.exists()
    server.service.poll()
    writer.service.close()


def test_a_writer_of_any_names_is_read_in_the_order_of_time(server: EmulatorServer) -> None:
    """F-43, F-16: files that are uploaded straight to names of their own; rows without a marker are upserts."""
    server.faults.clear()
    writer = PublicWriter(server, "dbo.schema/events")
    writer.create(
        {
            "keyColumns": ["id"],
            "fileDetectionStrategy": "LastUpdateTimeFileDetection",
            "isUpsertDefaultRowMarker": True,
        }
    )
    for name, city in (("zebra.parquet", "Bern"), ("apple.snappy.parquet", "Genf")):
        writer.folder.get_file_client(name).upload_data(parquet_bytes(id=[1], city=[city]), overwrite=True)
    assert [one.number for one in server.service.poll()] == [1, 2]
    assert server.service.poll() == []
    writer.folder.get_file_client("middle.parquet").upload_data(parquet_bytes(id=[2], city=["Basel"]), overwrite=True)
    assert [one.number for one in server.service.poll()] == [3]
    table = pa.table(DeltaTable(str(server.databases.all()[0].folders.tables / "dbo" / "events")).scan())
    assert sorted((row["id"], row["city"]) for row in table.to_pylist()) == [(1, "Genf"), (2, "Basel")]
    writer.folder.delete_directory()
    server.service.poll()
    writer.service.close()
