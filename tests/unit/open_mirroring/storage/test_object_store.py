"""What the product asks of object storage, asked of every store: all answer alike, and say alike what is wrong."""

from __future__ import annotations

import base64
import gzip
import json
import pickle
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from azure.storage.blob import ContainerSasPermissions, generate_container_sas
from obstore.store import LocalStore, MemoryStore

from open_mirroring.changes.manifest import BoundFile, BoundRange
from open_mirroring.errors import MirroringError, TerminalError, TransientError
from open_mirroring.remote.entra import EntraLogin
from open_mirroring.storage.address import parse_address
from open_mirroring.storage.object_path import ObjectPath
from open_mirroring.storage.object_store import AzureLogin, ObjectReplaced, ObjectStore, StorageRoot
from spark_jobs.sources.transports.message_files import LineFiles
from tests.object_storage import KINDS, Storage

NAMES = ["a/1.avro", "a/2 ä%20#+.avro", "a/b", "a/b/3.avro", "ab/4.avro"]


@pytest.fixture(params=["local", "memory", *KINDS])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[ObjectStore, str]:
    """A store, and the folder in it that is this test's."""
    if request.param == "local":
        return ObjectStore(LocalStore(tmp_path), "local"), "mine"
    if request.param == "memory":
        return ObjectStore(MemoryStore(), "memory"), "mine"
    place = request.getfixturevalue("storage_servers").new(request.param).place()
    return place.store, place.key


def test_every_store_keeps_the_contract(store: tuple[ObjectStore, str]) -> None:
    """S-03: create once, list behind a name, stat, read by range and ETag, delete."""
    objects, folder = store
    # A file system has no file beside a folder of its name.
    names = [f"{folder}/{name}" for name in NAMES if name != "a/b" or "Local" not in repr(objects._service)]
    for name in names:
        objects.create(name, name.encode())
    with pytest.raises(FileExistsError):
        objects.create(names[0], b"other")
    assert sorted(one.name for one in objects.objects(folder)) == names
    assert sorted(one.name for one in objects.objects(f"{folder}/a")) == names[:-1], "not what only begins alike"
    assert list(objects.objects(f"{folder}/none")) == []
    folders, files = objects.folders(folder)
    assert (folders, files) == ([f"{folder}/a", f"{folder}/ab"], [])
    assert [one.name for one in objects.folders(f"{folder}/a")[1]] == [n for n in names if n.count("/") == 2][:-1]

    listed = {one.name: one for one in objects.objects(folder)}
    found = objects.stat(names[1])
    assert found.version == listed[names[1]].version == f"{len(names[1].encode())}:{found.etag}" and found.etag
    assert objects.read(names[1], etag=found.etag) == names[1].encode()
    assert objects.read_range(names[0], 1, 4, etag=listed[names[0]].etag)[0] == names[0].encode()[1:4]
    assert objects.read_range(names[0], 1, 10_000)[0] == names[0].encode()[1:]
    with pytest.raises(ObjectReplaced, match="SOURCE_REWRITTEN"):
        objects.read_range(names[0], 1, 4, etag="other")

    objects.delete(names[0])
    objects.delete(names[0])
    for missing in (lambda: objects.stat(names[0]), lambda: objects.read(names[0])):
        with pytest.raises(FileNotFoundError):
            missing()


@pytest.mark.parametrize("kind", KINDS)
def test_an_object_is_read_like_a_file(kind: str, storage_servers) -> None:
    """S-03, S-06: whatever is read is of one object; one that is written anew meanwhile is not mixed in."""
    storage: Storage = storage_servers.new(kind)
    content = bytes(range(256)) * 3_000
    storage.deliver("f/file.bin", content)
    place = pickle.loads(pickle.dumps(storage.place("f"))) / "file.bin"
    assert (place.name, place.parent.name, place.is_file(), storage.place("f").is_file()) == (
        "file.bin",
        "f",
        True,
        False,
    )
    with place.open() as file:
        assert (file.read(3), file.seek(200_000), file.read(5)) == (content[:3], 200_000, content[200_000:200_005])
        assert (file.seek(-4, 2), file.read(), file.read()) == (len(content) - 4, content[-4:], b"")
        file.seek(0)
        storage.deliver("f/file.bin", content[::-1])
        with pytest.raises(ObjectReplaced, match=r"SOURCE_REWRITTEN: .*file\.bin"):
            file.read()
    held = place.look(1, 3)
    assert place.holding(held).open().read() == content[::-1]
    storage.deliver("f/empty", b"")
    assert (storage.place("f") / "empty").open().read() == b""


@pytest.mark.parametrize("kind", KINDS)
def test_a_refusal_says_what_and_where_and_how_to_fix_it(kind: str, storage_servers) -> None:
    """S-05: no container, a wrong key, nobody there; no secret in any text."""
    storage: Storage = storage_servers.new(kind)
    other = storage._replace(address=storage.address.replace("changes", "nowhere"))
    for ask in (lambda p: list(p.store.objects("")), lambda p: p.read_bytes(), lambda p: p.store.create("a", b"")):
        error = refusal(ask, other.place("x"), TerminalError)
        assert error.code == "PLACE_MISSING" and "nowhere" in error.where and error.next_step
    if kind == "azure":  # the stand-in for S3 lets everybody in
        wrong = base64.b64encode(b"wrong").decode()
        for ask in (lambda p: list(p.store.objects("")), lambda p: p.stat()):
            error = refusal(ask, storage.place("x", password=wrong), TerminalError)
            assert error.code == "ACCESS_DENIED" and "'store'" in error.what and wrong not in str(error)


def test_who_does_not_answer_is_asked_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """S-05: a transient error, after repetitions."""
    monkeypatch.setattr("open_mirroring.storage.object_store._RETRIES", {"max_retries": 1})
    connection = {"conn_type": "aws", "login": "id", "password": "secret-key"}
    nobody = Storage("s3", "s3://nobody-there", "{}").place(
        **connection, extra={"endpoint_url": "http://127.0.0.1:9", "region_name": "x"}
    )
    error = refusal(lambda p: p.read_bytes(), nobody / "x", TransientError)
    assert error.code == "UNREACHABLE" and "secret-key" not in str(error)


def test_a_login_that_is_refused_is_reported_as_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """S-04: what Entra ID says comes through the store as our own error."""

    def refuse(self: Any) -> str:
        raise TerminalError("ACCESS_DENIED", "no token", where="connection store")

    monkeypatch.setattr("open_mirroring.remote.entra.TokenSource.token", refuse)
    login = EntraLogin("store", "service_principal", "t", "id", "hidden-secret")
    azure = AzureLogin("store", "http://127.0.0.1:9", "account", "entra", entra=login)
    place = ObjectPath(StorageRoot(parse_address("az://changes/x"), azure), "x")
    error = refusal(lambda p: p.read_bytes(), place, TerminalError)
    assert (error.code, error.where) == ("ACCESS_DENIED", "connection store")
    assert "hidden-secret" not in repr(place) + str(place) + repr(place.root)


def refusal(ask: Callable[[ObjectPath], Any], place: ObjectPath, kind: type[MirroringError]) -> MirroringError:
    with pytest.raises(kind) as caught:
        ask(place)
    return caught.value


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_below_a_path_is_no_empty_source(kind: str, storage_servers) -> None:
    """S-07: unless something of it was read before."""
    storage: Storage = storage_servers.new(kind)
    source = LineFiles(storage.place("mispelled"), "bare")
    with pytest.raises(TerminalError, match=r"PLACE_MISSING: nothing is below .*mispelled"):
        source.find(None, {})
    assert source.find(None, {"read.jsonl": 3}, lambda _: {}).ranges == []
    storage.deliver("mispelled/_hidden.jsonl", b"{}\n")
    assert source.find(None, {}).ranges == []


@pytest.mark.parametrize("kind", KINDS)
def test_an_object_is_read_as_it_was_bound_or_not_at_all(kind: str, storage_servers) -> None:
    """S-06, G-32: lines may follow those that were bound; what was bound has to stand there still."""
    storage: Storage = storage_servers.new(kind)
    source = LineFiles(storage.place(), "bare")
    storage.deliver("a.jsonl", b'{"a":1}\n{"a":2}\n')
    storage.deliver("b.json.gz", gzip.compress(b'{"b":1}\n'))
    found = source.find(None, {}, lambda _: {})
    bound, seen = {one.name: one.end for one in found.ranges}, dict(found.versions)
    files = {name: BoundFile(bound[name], version) for name, version in seen.items()}
    pinned = pickle.loads(pickle.dumps(source.pinned(lambda: bound, lambda: files)))

    def read(name: str) -> list[bytes | None]:
        (one,) = (one for one in found.ranges if one.name == name)
        return [message.body for message in pinned.read(one)]

    assert (read("a.jsonl"), read("b.json.gz")) == ([b'{"a":1}', b'{"a":2}'], [b'{"b":1}'])
    storage.deliver("a.jsonl", b'{"a":1}\n{"a":2}\n{"a":3}\n')
    assert read("a.jsonl") == [b'{"a":1}', b'{"a":2}'], "only what was bound"
    again = source.find(None, bound, lambda _: seen)
    assert again.ranges == [BoundRange("a.jsonl", bound["a.jsonl"], 24)]
    packed = storage.place("b.json.gz").read_bytes()
    storage.deliver("a.jsonl", b'{"a":1}\n{"a":9}\n{"a":3}\n')
    storage.deliver("b.json.gz", gzip.compress(b'{"b":2}\n'))
    for name in ("a.jsonl", "b.json.gz"):
        with pytest.raises(TerminalError, match=rf"SOURCE_REWRITTEN: '{name}'"):
            read(name)
    with pytest.raises(TerminalError, match=r"SOURCE_REWRITTEN: 'a\.jsonl'"):
        source.find(None, bound, lambda _: seen)
    storage.deliver("b.json.gz", packed)
    assert read("b.json.gz") == [b'{"b":1}'], "put back, it is another object, with what was bound"
    storage.deliver("b.json.gz", gzip.compress(b'{"b":2}\n'))
    (place := storage.place("a.jsonl")).store.delete(place.key)
    with pytest.raises(TerminalError, match="SOURCE_REWRITTEN"):
        read("a.jsonl")
    (again_whole,) = source.find(None, bound, lambda _: seen).ranges
    assert again_whole.name == "b.json.gz", "one that is read as a whole is read again"


@pytest.mark.parametrize("kind", KINDS)
def test_much_is_read_in_pieces_of_one_object(kind: str, storage_servers, monkeypatch: pytest.MonkeyPatch) -> None:
    """S-06: also when it is replaced between two of them; what begins behind its end is of another object."""
    storage: Storage = storage_servers.new(kind)
    monkeypatch.setattr("open_mirroring.storage.object_store._PIECE", 100)
    content = [bytes(range(n, 250)) * 3 for n in range(3)]
    storage.deliver("a", content[0])
    place, store = storage.place("a"), storage.place("a").store
    assert store.read_range(place.key, 7, 10_000)[0] == content[0][7:]
    get, calls = store._get, 0

    def replacing(name: str, options: Any, etag: str) -> Any:
        nonlocal calls
        if (calls := calls + 1) == 2:
            storage.deliver("a", content[1])
        return get(name, options, etag)

    monkeypatch.setattr(store, "_get", replacing)
    found, stat = store.read_range(place.key, 7, 10_000)
    assert found == content[1][7:] and stat.size == len(content[1])
    calls = 0
    storage.deliver("a", content[0])
    with pytest.raises(ObjectReplaced):
        store.read_range(place.key, 0, 10_000, etag=store.stat(place.key).etag)
    with pytest.raises(ObjectReplaced):
        store.read_range(place.key, 10_000, 10_001)


def test_a_machine_without_a_login_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """S-05: a connection that leaves the login to the machine, where there is none."""
    monkeypatch.setattr("open_mirroring.storage.object_store._RETRIES", {"max_retries": 1})
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:9")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"):
        monkeypatch.delenv(name, raising=False)
    extra = {"endpoint_url": "http://127.0.0.1:9", "region_name": "x"}
    place = Storage("s3", "s3://without-login", "{}").place("x", conn_type="aws", extra=extra)
    error = refusal(lambda p: p.read_bytes(), place, TerminalError)
    assert error.code == "ACCESS_DENIED" and "has a login" in error.what


def test_an_access_key_is_not_mixed_with_a_token_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """S-02: a connection signs in with what it contains."""
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of-another-login")
    sent = list[str | None]()

    class Service(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            sent.append(self.headers["x-amz-security-token"])
            self.send_error(404)

    with HTTPServer(("127.0.0.1", 0), Service) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        extra = {"endpoint_url": f"http://127.0.0.1:{server.server_port}", "region_name": "x"}
        place = Storage("s3", "s3://with-key", "{}").place(conn_type="aws", login="id", password="key", extra=extra)
        assert not (place / "x").exists()
        server.shutdown()
    assert sent == [None]


@pytest.mark.parametrize("kind", KINDS)
def test_a_path_may_name_one_object(kind: str, storage_servers) -> None:
    """S-03: whatever its ending."""
    storage: Storage = storage_servers.new(kind)
    storage.deliver("events.txt", b'{"a":1}\n')
    storage.deliver("other.jsonl", b"{}\n")
    source = LineFiles(storage.place("events.txt"), "bare")
    (found,) = source.find(None, {}, lambda _: {}).ranges
    assert [message.body for message in source.read(found)] == [b'{"a":1}']


def test_a_signature_and_a_connection_string_open_the_storage(storage_servers) -> None:
    """S-02: a shared access signature reads and lists, and may not write."""
    storage: Storage = storage_servers.new("azure")
    storage.deliver("a", b"content")
    given = json.loads(storage.connection)
    until = datetime.now(UTC) + timedelta(hours=1)
    rights = ContainerSasPermissions(read=True, list=True)
    sas = generate_container_sas(
        given["login"], "changes", account_key=given["password"], permission=rights, expiry=until
    )
    text = f"BlobEndpoint={given['host']};AccountName={given['login']};"
    for extra in (
        {"sas_token": sas},
        {"connection_string": f"{text}SharedAccessSignature={sas}"},
        {"connection_string": f"{text}AccountKey={given['password']}"},
    ):
        place = storage.place("a", password=None, extra=extra)
        assert place.read_bytes() == b"content" and [one.name for one in place.store.objects("")] != []
        if "AccountKey" not in str(extra):
            error = refusal(lambda p: p.store.create(f"{p.key}2", b""), place, TerminalError)
            assert error.code == "ACCESS_DENIED" and "sig=" not in str(error)


def test_a_signature_that_ended_is_reported_by_its_end(storage_servers) -> None:
    """S-05: a service says the same of it as of a wrong one."""
    storage: Storage = storage_servers.new("azure")
    given = json.loads(storage.connection)
    until = datetime.now(UTC) - timedelta(hours=1)
    rights = ContainerSasPermissions(read=True, list=True)
    sas = generate_container_sas(
        given["login"], "changes", account_key=given["password"], permission=rights, expiry=until
    )
    place = storage.place("a", password=None, extra={"sas_token": sas})
    error = refusal(lambda p: p.read_bytes(), place, TerminalError)
    assert error.code == "ACCESS_DENIED" and f"expired at {until:%Y-%m-%d %H:%M} UTC" in str(error)
    assert "sig=" not in str(error) and sas not in str(error)


def test_a_token_is_asked_for_again_while_a_job_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """S-04: each request carries the token that holds then."""
    tokens, sent = iter(["first", "second", "third"]), list[str]()
    monkeypatch.setattr("open_mirroring.remote.entra.TokenSource.token", lambda self: next(tokens))

    class Service(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            sent.append(self.headers["Authorization"])
            self.send_response(200)
            for name, value in (("Content-Length", "1"), ("ETag", '"1"'), ("Last-Modified", formatdate(usegmt=True))):
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(b"x")

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Service) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        login = EntraLogin("store", "managed_identity")
        azure = AzureLogin("store", f"http://127.0.0.1:{server.server_port}", "account", "entra", entra=login)
        place = ObjectPath(StorageRoot(parse_address("az://changes/x"), azure), "x")
        assert place.read_bytes() == b"x"
        time.sleep(0.2)  # asked for less often it is not
        assert place.read_bytes() == b"x"
        server.shutdown()
    assert sent == ["Bearer first", "Bearer second"]


@pytest.mark.parametrize(("code", "story"), [("AccessDenied", "ACCESS_DENIED"), ("InternalError", "UNREACHABLE")])
def test_a_key_that_must_not_be_deleted_is_reported_as_denied(code: str, story: str) -> None:
    """S-05: S3 answers a request to delete with 200, and says of each key what became of it."""
    answer = f"<DeleteResult><Error><Key>x</Key><Code>{code}</Code><Message>No</Message></Error></DeleteResult>"

    class Service(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer.encode())

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Service) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        extra = {"endpoint_url": f"http://127.0.0.1:{server.server_port}", "region_name": "x"}
        place = Storage("s3", "s3://denied", "{}").place(conn_type="aws", login="id", password="key", extra=extra)
        with pytest.raises(MirroringError) as caught:
            place.store.delete("x")
        server.shutdown()
    assert caught.value.code == story and code in caught.value.what
