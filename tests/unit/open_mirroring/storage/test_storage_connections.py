"""Addresses of object storage, and the connections to it: what is taken, what is refused, and that nothing is shown."""

from __future__ import annotations

import json
import pickle
from base64 import b64decode, b64encode
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cryptography.fernet import InvalidToken

from open_mirroring.config import check_mirror, load_mirror
from open_mirroring.config.connections import parsed
from open_mirroring.config.storage import storage_place
from open_mirroring.errors import TerminalError
from open_mirroring.storage.address import parse_address
from open_mirroring.storage.object_store import AzureLogin, S3Login
from spark_jobs.extract.logged_loads import BaseTarget
from spark_jobs.extract.read_task import ReadTask
from spark_jobs.load.task import ExportTask
from spark_jobs.publish.staging import StageTarget
from spark_jobs.runtime.worker_tasks import ParcelKey

BLOB = "https://contoso.blob.core.windows.net"
GUID, ITEM = "11111111-2222-3333-4444-555555555555", "99999999-2222-3333-4444-555555555555"
KEY = "c2VjcmV0LWtleQ=="
ABFSS, AZ, S3 = "abfss://changes@contoso.dfs.core.windows.net/a/b", "az://changes/a/b", "s3://changes/a/b"
ONELAKE = f"abfss://{GUID}@onelake.dfs.fabric.microsoft.com/{ITEM}/Files/a"
ENTRA = {"tenant_id": "contoso.com"}


def login(address: str, **content: Any) -> Any:
    return storage_place(address, parsed("store", json.dumps(content))).root.login


@pytest.mark.parametrize(
    ("text", "service", "host", "container", "path"),
    [
        (ABFSS, "azure", "https://contoso.blob.core.windows.net", "changes", "a/b"),
        (f"{ABFSS}/", "azure", "https://contoso.blob.core.windows.net", "changes", "a/b"),
        (
            "abfss://c-1@account1.dfs.core.chinacloudapi.cn",
            "azure",
            "https://account1.blob.core.chinacloudapi.cn",
            "c-1",
            "",
        ),
        (AZ, "azure", "", "changes", "a/b"),
        (ONELAKE, "onelake", "https://onelake.blob.fabric.microsoft.com", GUID, f"{ITEM}/Files/a"),
        (
            ONELAKE.replace("@onelake", "@westeurope-onelake"),
            "onelake",
            "https://westeurope-onelake.blob.fabric.microsoft.com",
            GUID,
            f"{ITEM}/Files/a",
        ),
        ("s3://my.bucket/ä b/%20", "s3", "", "my.bucket", "ä b/%20"),
    ],
)
def test_an_address_is_read_as_users_write_it(text: str, service: str, host: str, container: str, path: str) -> None:
    """S-01: the service, the Blob endpoint, the container and the place in it."""
    found = parse_address(text)
    assert (found.service, found.host, found.container, found.path) == (service, host, container, path)


@pytest.mark.parametrize(
    "text",
    [
        "abfs://changes@contoso.dfs.core.windows.net/a",
        "https://contoso.blob.core.windows.net/changes/a",
        "abfss://changes@contoso.dfs.core.windows.net.hidden.example/a",
        "abfss://changes@hidden.example/a",
        "abfss://changes@key:hidden@contoso.dfs.core.windows.net/a",
        "abfss://contoso.dfs.core.windows.net/a",
        "abfss://workspace@onelake.dfs.fabric.microsoft.com/hidden.Lakehouse/Files",
        f"abfss://{GUID}@onelake.dfs.fabric.microsoft.com",
        "az://changes/a?sv=1&sig=hidden",
        "az://changes/a/../hidden",
        "az://changes//hidden",
        "az://Changes/hidden",
        "az://a--b/hidden",
        "s3://id:hidden@bucket/a",
        "s3:///hidden",
        "ftp://hidden/a",
        "az://changes/hidden\n",
    ],
)
def test_another_address_is_refused_and_not_repeated(text: str) -> None:
    """S-01: a scheme, host, part or query that is none; the error may be read by anybody."""
    with pytest.raises(TerminalError) as caught:
        parse_address(text)
    assert caught.value.code == "CONFIG_INVALID" and caught.value.next_step
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize(
    ("address", "content", "endpoint", "account", "kind"),
    [
        (ABFSS, {"conn_type": "wasb", "login": "contoso", "password": KEY}, BLOB, "contoso", "key"),
        (AZ, {"conn_type": "wasb", "login": "contoso", "password": KEY}, BLOB, "contoso", "key"),
        (AZ, {"conn_type": "adls", "host": "contoso", "password": KEY}, BLOB, "contoso", "key"),
        (ABFSS, {"conn_type": "wasb", "extra": {"sas_token": "?sv=1&sig=s"}}, BLOB, "contoso", "sas"),
        (ABFSS, {"conn_type": "wasb", "extra": {"extra__wasb__account_key": KEY}}, BLOB, "contoso", "key"),
        (
            ABFSS,
            {"conn_type": "wasb", "extra": {"account_key": KEY, "extra__wasb__account_key": ""}},
            BLOB,
            "contoso",
            "key",
        ),
        (
            AZ,
            {"conn_type": "wasb", "extra": {"connection_string": f"AccountName=contoso;AccountKey={KEY};X=y"}},
            "https://contoso.blob.core.windows.net",
            "contoso",
            "key",
        ),
        (
            AZ,
            {"conn_type": "wasb", "host": "http://127.0.0.1:10000/dev1", "password": KEY},
            "http://127.0.0.1:10000/dev1",
            "dev1",
            "key",
        ),
        (
            AZ,
            {"conn_type": "wasb", "host": "https://contoso.dfs.core.windows.net/", "password": KEY},
            "https://contoso.blob.core.windows.net",
            "contoso",
            "key",
        ),
        (ABFSS, {"conn_type": "adls", "login": "id", "password": "s", "extra": ENTRA}, BLOB, "contoso", "entra"),
        (ABFSS, {"conn_type": "adls", "extra": {"auth": "managed_identity"}}, BLOB, "contoso", "entra"),
    ],
)  # fmt: skip
def test_azure_takes_every_login_of_airflows_connections(
    address: str, content: dict[str, Any], endpoint: str, account: str, kind: str
) -> None:
    """S-02: where it leads, and by what."""
    found = login(address, **content)
    assert isinstance(found, AzureLogin)
    assert (found.endpoint, found.account, found.kind) == (endpoint, account, kind)


def test_onelake_and_s3_take_theirs() -> None:
    """S-02: the login of the landing zone; an access key, or what the machine is given."""
    service_principal = {"conn_type": "open_mirroring_onelake", "login": "id", "password": "s", "extra": ENTRA}
    for address, account in ((ONELAKE, "onelake"), (ABFSS, "contoso")):
        found = login(address, **service_principal)
        assert (found.endpoint, found.account, found.kind, found.entra.client_id) == ("", account, "entra", "id")
    key = login(S3, conn_type="aws", login="id", password="s", extra={"region_name": "eu-west-1"})
    assert key == S3Login("store", "", "eu-west-1", "id", "s")
    assert login(S3, conn_type="aws").key_id == ""


@pytest.mark.parametrize(
    ("address", "content", "what"),
    [
        (S3, {"conn_type": "wasb"}, "conn_type is aws"),
        (ABFSS, {"conn_type": "aws"}, "conn_type is one of"),
        (ONELAKE, {"conn_type": "adls"}, "open_mirroring_onelake"),
        (AZ, {"conn_type": "open_mirroring_onelake", "extra": {"auth": "cli"}}, "no storage account"),
        (ABFSS, {"conn_type": "wasb"}, "holds no credential"),
        (ABFSS, {"conn_type": "wasb", "login": "other", "password": KEY}, "another storage account"),
        (AZ, {"conn_type": "wasb", "extra": {"sas_token": "sv=hidden"}}, "needs the account"),
        (ABFSS, {"conn_type": "wasb", "password": "hidden!"}, "not an account key"),
        (ABFSS, {"conn_type": "wasb", "extra": {"sas_token": "x", "account_key": KEY}}, "more than one"),
        (ABFSS, {"conn_type": "wasb", "extra": {"sas_token": "https://hidden?sig=x"}}, "is an address"),
        (ABFSS, {"conn_type": "adls", "login": "hidden", "extra": ENTRA}, "client id"),
        (ABFSS, {"conn_type": "adls", "password": "hidden", "extra": {"auth": "cli"}}, "has no password"),
        (ABFSS, {"conn_type": "adls", "extra": {"auth": "hidden"}}, "auth is none of"),
        (ABFSS, {"conn_type": "wasb", "host": "https://hidden.example", "password": KEY}, "host is neither"),
        (ABFSS, {"conn_type": "wasb", "host": BLOB.replace("https", "http"), "password": KEY}, "its host"),
        (ABFSS, {"conn_type": "wasb", "extra": {"hidden": "x"}}, "an option other than"),
        (S3, {"conn_type": "aws", "login": "hidden"}, "go together"),
        (S3, {"conn_type": "aws", "extra": {"endpoint_url": "https://hidden.example"}}, "endpoint_url"),
        (S3, {"conn_type": "aws", "extra": {"role_arn": "hidden"}}, "an option other than"),
    ],
)  # fmt: skip
def test_a_connection_that_cannot_be_right_is_refused_and_not_repeated(
    address: str, content: dict[str, Any], what: str
) -> None:
    """S-02: another type, account or host, two credentials or none."""
    with pytest.raises(TerminalError, match=what) as caught:
        login(address, **content)
    assert caught.value.code == "CONNECTION_INVALID" and "AIRFLOW_CONN_STORE" in caught.value.where
    assert "hidden" not in str(caught.value)


def test_a_host_can_be_trusted_by_who_installs_the_product(monkeypatch: pytest.MonkeyPatch) -> None:
    """S-02: such as a private endpoint's."""
    monkeypatch.setenv("OPEN_MIRRORING_TRUSTED_HOSTS", "s3.example")
    found = login(S3, conn_type="aws", extra={"endpoint_url": "https://s3.example:9000/"})
    assert found.endpoint == "https://s3.example:9000"


@pytest.mark.parametrize(
    ("listed", "is_trusted"), [("http://storage", True), ("storage", False), ("http://other", False)]
)
def test_a_host_without_tls_has_to_be_trusted_as_such(
    listed: str, is_trusted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S-02: a storage in a network of one's own; a name alone stands for https."""
    monkeypatch.setenv("OPEN_MIRRORING_TRUSTED_HOSTS", f"emulator,{listed}")
    content = {"conn_type": "wasb", "host": "http://storage:10000/shop", "login": "shop", "password": KEY}
    if is_trusted:
        assert login("az://log/shop", **content).endpoint == "http://storage:10000/shop"
        return
    with pytest.raises(TerminalError, match="CONNECTION_INVALID"):
        login("az://log/shop", **content)


def test_a_place_shows_no_secret_and_can_be_sent_to_a_worker() -> None:
    """S-04: nor what is below it."""
    place = storage_place(ABFSS, parsed("store", json.dumps({"conn_type": "wasb", "password": KEY}))) / "x.avro"
    assert str(place) == f"{ABFSS}/x.avro"
    assert KEY not in f"{place!r} {place} {place.root!r} {place.root.login!r} {place.root}"
    assert pickle.loads(pickle.dumps(place)) == place


MIRROR = """\
mirror: shop
source: {{format: sqlserver-ces, transport: capture, path: "{address}", connection: store}}
landing_zone: {{store: local, path: zone}}
ledger: sqlite:///ledger.db
change_log: log
tables:
  - source: dbo.orders
    target: dbo/orders
    key: [order_id]
    initial_load: {{format: parquet, path: "{address}/export", connection: exports, stream_from: beginning}}
"""


def test_check_looks_into_the_storage(tmp_path: Path, storage_servers, monkeypatch: pytest.MonkeyPatch) -> None:
    """S-05, S-07: each place with its setting, before the first run."""
    storage = storage_servers.new("azure")
    (tmp_path / "mirrors").mkdir()
    file = tmp_path / "mirrors" / "shop.yaml"

    def problems(address: str = storage.address) -> list[tuple[str, str]]:
        file.write_text(MIRROR.format(address=address), encoding="utf-8")
        return [(p.code, p.path) for p in check_mirror(load_mirror(file))]

    source, load = "source.path", "tables[0].initial_load.path"
    monkeypatch.setenv("AIRFLOW_CONN_STORE", storage.connection)
    assert problems() == [("PLACE_MISSING", source), ("CONNECTION_INVALID", load)]
    monkeypatch.setenv("AIRFLOW_CONN_EXPORTS", storage.connection)
    storage.deliver("export/a.parquet", b"x")
    assert problems() == []
    assert problems("az://nowhere/a") == [("PLACE_MISSING", source), ("PLACE_MISSING", load)]
    assert problems("s3://bucket/a") == [("CONNECTION_INVALID", source), ("CONNECTION_INVALID", load)]


def test_a_task_of_a_load_holds_no_login() -> None:
    """S-04: Spark keeps tasks in a file for a moment; the places come with the function."""
    fields = {name for task in (ExportTask, BaseTarget, ReadTask) for name in task.__annotations__}
    assert not fields & {"export", "exports", "root", "path", "transport"}


def test_tasks_travel_sealed() -> None:
    """S-04, S-11: what Spark keeps of a job holds neither a login nor anything else that could be read."""
    key = b64encode(b"a storage key").decode()
    connections = [json.dumps({"conn_type": "wasb", "password": k}) for k in (KEY, key)]
    places = [storage_place(ABFSS, parsed("store", connection)) for connection in connections]
    tasks = [(place / "log", StageTarget) for place in (*places, *places)]
    parcel_key, other = ParcelKey(), ParcelKey()
    parcels = [parcel_key.packed(task) for task in tasks]
    assert [pickle.loads(pickle.dumps(parcel_key)).unpacked(one) for one in parcels] == tasks
    function = parcel_key.packed(partial(str, places[0]))
    assert parcel_key.unpacked(function)() == str(places[0])
    kept = [b64decode(one, b"-_") for one in (*parcels, function)]
    assert not any(secret.encode() in one for one in kept for secret in (KEY, key, "StageTarget"))
    assert parcel_key.packed(tasks[0]) != parcel_key.packed(tasks[0])
    with pytest.raises(InvalidToken):
        other.unpacked(function)
