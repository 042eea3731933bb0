"""The Kafka transport against a real broker: exact offsets, every way to lose messages told, no secret shown."""

from __future__ import annotations

import base64
import json
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import count
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from open_mirroring.changes.manifest import BoundRange
from open_mirroring.config.connections import resolve
from open_mirroring.errors import MirroringError, TerminalError, TransientError
from open_mirroring.source_places.kafka_client import KafkaPlace, place_of
from spark_jobs.changelog.schema import RawMessage
from spark_jobs.sources.transports.topics import KafkaTopics, expecting, read_range
from tests.kafka_broker import KafkaBroker, write_certificate

TOPICS = (f"topic-{n}" for n in count(1))
Place = Callable[..., KafkaPlace]


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Place:
    """A place from a connection as an operator gives it."""

    def make(connection: str, *topics: str, **settings: Any) -> KafkaPlace:
        monkeypatch.setenv("AIRFLOW_CONN_BROKER", connection)
        return place_of(resolve("broker"), topics)._replace(**settings)

    return make


class Ledger:
    """Binds what is found and reads it, as an extraction does."""

    def __init__(self) -> None:
        self.bound: dict[str, int] = {}

    def find(self, place: KafkaPlace) -> list[BoundRange]:
        ranges = KafkaTopics(place).find(None, self.bound).ranges
        for bound in ranges:
            self.bound[bound.name] = bound.end
        return ranges

    def tick(self, place: KafkaPlace) -> list[RawMessage]:
        ranges = self.find(place)
        return [m for bound in ranges for m in read_range(expecting(place, self.bound), bound)]


def numbered(topic: str, partition: int, start: int, end: int) -> list[RawMessage]:
    return [RawMessage(f"{topic}/{partition}", n, str(n).encode(), f"k{n}".encode()) for n in range(start, end)]


def publish_numbered(kafka: KafkaBroker, topic: str, partition: int, start: int, end: int) -> None:
    kafka.publish(topic, [(partition, m.key, m.body) for m in numbered(topic, partition, start, end)])


def refused(code: str, act: Callable[[], Any], kind: type[MirroringError] = TerminalError) -> MirroringError:
    """The error of this code that *act* ends with; it has a place and a way out."""
    with pytest.raises(kind) as caught:
        act()
    assert caught.value.code == code
    assert caught.value.where and caught.value.next_step
    return caught.value


# --- what is read ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("endpoint", ["plain", "event hubs"])
def test_two_partitions_are_read_offset_by_offset(kafka: KafkaBroker, place: Place, endpoint: str) -> None:
    """C-91, I28: over plain and SASL_SSL with $ConnectionString alike; later ticks read what is new, and only that."""
    topic, ledger = next(TOPICS), Ledger()
    kafka.create_topic(topic, 2)
    at = place(kafka.connection() if endpoint == "plain" else kafka.event_hubs_connection(), topic)
    publish_numbered(kafka, topic, 0, 0, 300)
    publish_numbered(kafka, topic, 1, 0, 10)
    assert ledger.tick(at) == numbered(topic, 0, 0, 300) + numbered(topic, 1, 0, 10)
    assert ledger.find(at) == []
    publish_numbered(kafka, topic, 1, 10, 25)
    assert ledger.tick(at) == numbered(topic, 1, 10, 25)
    assert {n for n in ledger.bound if "#" not in n} == {f"{topic}/0", f"{topic}/1"}, "as wrapped lines name them"


def test_tombstones_null_keys_and_large_messages_arrive_as_they_are(kafka: KafkaBroker, place: Place) -> None:
    """C-90: an event has up to 1 MB; a message beyond the size of a fetch is read all the same."""
    topic = next(TOPICS)
    kafka.create_topic(topic)
    sent = [(b"k", None), (None, b"v"), (b"", b""), (b"k", b"x" * 1_048_576), (None, b"y" * 12_000_000), (None, b"z")]
    kafka.publish(topic, [(0, key, value) for key, value in sent])
    found = Ledger().tick(place(kafka.connection(), topic))
    assert [(m.place, m.key, m.body) for m in found] == [(n, *message) for n, message in enumerate(sent)]


def test_a_catch_up_is_many_bounded_batches_and_many_ranges(kafka: KafkaBroker, place: Place) -> None:
    topic, ledger, found = next(TOPICS), Ledger(), []
    kafka.create_topic(topic, 2)
    publish_numbered(kafka, topic, 0, 0, 90)
    publish_numbered(kafka, topic, 1, 0, 30)
    at = place(kafka.connection(), topic, max_messages_per_run=40, messages_per_range=16)
    assert [b for b in ledger.find(at) if b.start < b.end] == [
        (f"{topic}/0", 0, 15),
        (f"{topic}/0", 15, 30),
        (f"{topic}/1", 0, 10),
    ]
    ledger.bound.clear()
    while got := ledger.tick(at):
        assert len(got) <= 42
        found += got
    assert sorted(found) == numbered(topic, 0, 0, 90) + numbered(topic, 1, 0, 30)


def test_of_transactions_only_what_was_committed_is_read_and_gaps_are_no_loss(kafka: KafkaBroker, place: Place) -> None:
    """I28: an open transaction ends what can be bound; its markers and aborted messages are offsets without message."""
    topic, ledger = next(TOPICS), Ledger()
    kafka.create_topic(topic)
    at = place(kafka.connection(), topic, timeout_seconds=10.0)
    writer = kafka.producer(**{"transactional.id": topic})
    writer.init_transactions(30)

    def send(*values: bytes) -> None:
        writer.begin_transaction()
        for value in values:
            writer.produce(topic, value, partition=0)
        writer.flush(30)

    def read_up_to(end: int) -> list[tuple[int, bytes]]:
        """What is read until so much is bound: a broker writes its marker only behind the answer to the producer."""
        found, until = [], time.monotonic() + 300
        while ledger.bound[f"{topic}/0"] < end and time.monotonic() < until:
            found += [(m.place, m.body) for m in ledger.tick(at)]
        assert ledger.bound[f"{topic}/0"] == end, "the range ends behind offsets that hold no message"
        return found

    send(b"a", b"b")  # offsets 0 and 1
    assert ledger.tick(at) == [] and ledger.bound[f"{topic}/0"] == 0
    writer.commit_transaction(30)  # marker at 2
    send(b"no", b"no")  # 3 and 4
    writer.abort_transaction(30)  # marker at 5
    assert read_up_to(6) == [(0, b"a"), (1, b"b")]
    send(b"c")
    writer.commit_transaction(30)  # marker at 7
    assert read_up_to(8) == [(6, b"c")]
    assert list(read_range(at, BoundRange(f"{topic}/0", 2, 5))) == []
    dirty = place(kafka.connection(**{"isolation.level": "read_uncommitted"}), topic)
    assert [m.place for m in Ledger().tick(dirty)] == [0, 1, 3, 4, 6]


# --- what is lost ------------------------------------------------------------------------------------------------


def test_a_first_look_begins_where_the_topic_begins(kafka: KafkaBroker, place: Place) -> None:
    """A partition whose messages have all expired is bound there: nothing of it can be lost unseen later."""
    topic, ledger = next(TOPICS), Ledger()
    kafka.create_topic(topic, 2)
    publish_numbered(kafka, topic, 0, 0, 10)
    publish_numbered(kafka, topic, 1, 0, 10)
    kafka.delete_records(topic, 0, 4)
    kafka.delete_records(topic, 1, 10)
    at = place(kafka.connection(), topic)
    assert ledger.tick(at) == numbered(topic, 0, 4, 10)
    assert ledger.bound[f"{topic}/1"] == 10
    assert ledger.find(at) == []
    publish_numbered(kafka, topic, 1, 10, 12)
    assert ledger.tick(at) == numbered(topic, 1, 10, 12)


@pytest.mark.parametrize("ids", [True, False], ids=["with topic ids", "without"])
def test_a_topic_made_again_is_reported(kafka: KafkaBroker, place: Place, ids: bool) -> None:
    """I28: by its id even when it is longer than the old one was; without ids once it is shorter."""
    topic, ledger = next(TOPICS), Ledger()
    kafka.create_topic(topic)
    publish_numbered(kafka, topic, 0, 0, 20)
    at = place(kafka.connection(), topic)
    ranges = ledger.find(at)
    if not ids:
        ledger.bound = {name: end for name, end in ledger.bound.items() if "#" not in name}
    kafka.delete_topic(topic)
    kafka.create_topic(topic)
    publish_numbered(kafka, topic, 0, 0, 30 if ids else 10)
    error = refused("MESSAGES_LOST", lambda: KafkaTopics(at).find(None, ledger.bound))
    assert topic in error.where
    pinned = expecting(at, ledger.bound)._replace(timeout_seconds=2.0)
    refused("MESSAGES_LOST", lambda: list(read_range(pinned, ranges[-1])))


def test_a_partition_that_is_gone_means_a_topic_made_again(kafka: KafkaBroker, place: Place) -> None:
    topic = next(TOPICS)
    kafka.create_topic(topic)
    error = refused(
        "MESSAGES_LOST",
        lambda: KafkaTopics(place(kafka.connection(), topic)).find(None, {f"{topic}/0": 0, f"{topic}/1": 5}),
    )
    assert "[1]" in error.what


def test_an_added_partition_is_read_from_its_beginning(
    kafka: KafkaBroker, place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """C-90: partitions can grow; one that lost messages before it was first seen is a loss."""
    topic, ledger = next(TOPICS), Ledger()
    kafka.create_topic(topic)
    publish_numbered(kafka, topic, 0, 0, 5)
    at = place(kafka.connection(), topic)
    ledger.tick(at)
    kafka.add_partitions(topic, 2)
    publish_numbered(kafka, topic, 1, 0, 8)
    before = dict(ledger.bound)
    with caplog.at_level(logging.WARNING):
        assert ledger.tick(at) == numbered(topic, 1, 0, 8)
    assert "partition 1 was added" in caplog.text
    kafka.delete_records(topic, 1, 3)
    assert "3 offsets" in refused("MESSAGES_LOST", lambda: KafkaTopics(at).find(None, before)).what


def test_names_of_other_sources_and_topics_are_left_alone(kafka: KafkaBroker, place: Place) -> None:
    topic = next(TOPICS)
    kafka.create_topic(topic)
    publish_numbered(kafka, topic, 0, 0, 3)
    others = {"day/messages.jsonl": 700, "other/0": 9, "other#id": 0, f"{topic}/deep/0": 4}
    found = KafkaTopics(place(kafka.connection(), topic)).find(None, others).ranges
    assert [b for b in found if "#" not in b.name] == [(f"{topic}/0", 0, 3)]


# --- what fails --------------------------------------------------------------------------------------------------


def test_a_topic_that_is_missing_is_named(kafka: KafkaBroker, place: Place) -> None:
    at = place(kafka.connection(), "nowhere")
    assert "nowhere" in refused("PLACE_MISSING", lambda: KafkaTopics(at).find(None, {})).where
    assert "nowhere" not in kafka.admin().list_topics(timeout=300).topics, "asking must not create it"


@pytest.mark.parametrize(
    "code, changes",
    [
        ("ACCESS_DENIED", {"password": "Endpoint=sb://localhost/;SharedAccessKeyName=a;SharedAccessKey=d3Jvbmc0"}),
        ("CONNECTION_INVALID", {"extra": {"ssl.ca.location": "OTHER"}}),
        ("CONNECTION_INVALID", {"extra": {}}),
        ("CONNECTION_INVALID", {"extra": {"ssl.ca.location": "MISSING"}}),
        ("CONNECTION_INVALID", {"extra": {"socket.timeout.ms": "soon"}}),
    ],
)
def test_a_refused_login_and_a_wrong_authority_are_reported_at_once_and_without_secrets(
    kafka: KafkaBroker, place: Place, code: str, changes: dict[str, Any], tmp_path: Path, capfd: Any
) -> None:
    """C-91, I30: in the driver and in a worker."""
    topic = next(TOPICS)
    kafka.create_topic(topic)
    write_certificate(tmp_path / "other.pem")
    files = {"OTHER": str(tmp_path / "other.pem"), "MISSING": str(tmp_path / "missing.pem")}
    text = kafka.event_hubs_connection(**changes)
    for name, file in files.items():
        text = text.replace(name, file)
    at = place(text, topic, timeout_seconds=120.0)
    began = time.monotonic()
    errors = [
        refused(code, lambda: KafkaTopics(at).find(None, {})),
        refused(code, lambda: list(read_range(at, BoundRange(f"{topic}/0", 0, 5)))),
    ]
    assert time.monotonic() - began < 90, "no need to wait for the time-out"
    seen = "".join(map(str, errors)) + "".join(capfd.readouterr()) + repr(at)
    for secret in (at.settings.options["sasl.password"], at.settings.options["sasl.password"][-20:]):
        assert secret not in seen


def test_nobody_at_the_address_is_transient(kafka: KafkaBroker, place: Place) -> None:
    connection = json.dumps({"conn_type": "kafka", "host": "127.0.0.1", "port": 1})
    at = place(connection, "any", timeout_seconds=1.0)
    refused("UNREACHABLE", lambda: KafkaTopics(at).find(None, {}), TransientError)
    refused("UNREACHABLE", lambda: list(read_range(at, BoundRange("any/0", 0, 5))), TransientError)


@contextmanager
def token_service(status: int) -> Iterator[str]:
    """An identity service that gives everybody who asks an unsigned token, or refuses."""

    class Answer(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            now = int(time.time())
            claims = {"sub": "reader", "iat": now, "exp": now + 600}
            parts = (base64.urlsafe_b64encode(json.dumps(p).encode()).decode().rstrip("=") for p in (HEAD, claims))
            granted = {"access_token": ".".join(parts) + ".", "token_type": "Bearer", "expires_in": 600}
            body = json.dumps(granted if status == 200 else {"error": "invalid_client"})
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Answer)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/token"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(300)


HEAD = {"alg": "none"}


@pytest.mark.parametrize("outcome", ["token", "refused", "silent"])
def test_an_application_logs_in_with_a_token(kafka: KafkaBroker, place: Place, outcome: str, capfd: Any) -> None:
    """C-91, I30: OAUTHBEARER by client id and secret; a refusal is final, a silent identity service is not."""
    topic = next(TOPICS)
    kafka.create_topic(topic)
    publish_numbered(kafka, topic, 0, 0, 5)
    with token_service(200 if outcome == "token" else 401) as address:
        if outcome == "silent":
            address = "http://127.0.0.1:1/token"
        extra = {
            "tenant_id": "contoso.example",
            "ssl.ca.location": str(kafka.ca_file),
            "sasl.oauthbearer.token.endpoint.url": address,
        }
        connection = kafka.event_hubs_connection(login="application", password="hush-hush-hush", extra=extra)
        at = place(connection, topic, timeout_seconds=30.0 if outcome == "token" else 4.0)
        if outcome == "token":
            assert Ledger().tick(at) == numbered(topic, 0, 0, 5)
            return
        code, kind = ("ACCESS_DENIED", TerminalError) if outcome == "refused" else ("UNREACHABLE", TransientError)
        error = refused(code, lambda: KafkaTopics(at).find(None, {}), kind)
        assert "hush-hush-hush" not in str(error) + "".join(capfd.readouterr())
