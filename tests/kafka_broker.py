"""A Kafka broker of the tests' own: one process, from published jars, on free ports of this machine.

It listens twice: in plain, and like the Kafka endpoint of Event Hubs (``SASL_SSL`` with a self-signed certificate;
``PLAIN`` with the user ``$ConnectionString``, or ``OAUTHBEARER``).
"""

from __future__ import annotations

import base64
import datetime
import ipaddress
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

JARS = Path(__file__).resolve().parent.parent / "jars" / "broker"
_JAVA = [
    str(Path(os.environ["JAVA_HOME"], "bin", "java")) if os.environ.get("JAVA_HOME") else "java",
    *("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m", "-cp", str(JARS / "*")),
]
# The broker ends with the test run, however that ends: a pipe closes even when its writer is killed.
_UNTIL_INPUT_ENDS = '"$@" & echo $! >pid; read -r _; kill -TERM $!; wait'


class KafkaBroker:
    """A broker that can be killed and started again on the same ports with the same data."""

    def __init__(self, folder: Path) -> None:
        self.port, self.tls_port, self._controller = _free_ports(3)
        key = base64.b64encode(secrets.token_bytes(32)).decode()
        self.connection_string = (
            f"Endpoint=sb://localhost/;SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey={key}"
        )
        self.ca_file = folder / "certificate.pem"
        self._folder, self._guard = folder, None  # type: tuple[Path, subprocess.Popen[str] | None]
        write_certificate(self.ca_file, folder / "key_and_certificate.pem")
        (folder / "server.properties").write_text(self._properties())
        identity = base64.urlsafe_b64encode(secrets.token_bytes(16)).decode().rstrip("=").replace("-", "a")
        made = subprocess.run(
            [*_JAVA, "kafka.tools.StorageTool", "format", "-t", identity, "-c", "server.properties"],
            **{"cwd": folder, "capture_output": True, "text": True, "timeout": 120},
        )
        assert made.returncode == 0, made.stdout + made.stderr
        self.start()

    @property
    def bootstrap(self) -> str:
        """Address of the plain listener."""
        return f"127.0.0.1:{self.port}"

    def connection(self, **extra: Any) -> str:
        """The plain listener as a connection in Airflow's JSON form."""
        return json.dumps({"conn_type": "kafka", "host": "127.0.0.1", "port": self.port, "extra": extra})

    def event_hubs_connection(self, **changes: Any) -> str:
        """The other listener as a connection to Event Hubs."""
        extra = {"ssl.ca.location": str(self.ca_file)}
        whole = {"host": "localhost", "port": self.tls_port, "password": self.connection_string, "extra": extra}
        return json.dumps({"conn_type": "event_hubs", **whole, **changes})

    def start(self) -> None:
        """Start, and wait until the broker answers."""
        log = self._folder / "log"
        with log.open("a") as out:
            self._guard = subprocess.Popen(
                ["sh", "-c", _UNTIL_INPUT_ENDS, "sh", *_JAVA, "kafka.Kafka", "server.properties"],
                **{"cwd": self._folder, "stdin": subprocess.PIPE, "stdout": out, "stderr": out, "text": True},
            )
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and self._guard.poll() is None:
            try:
                self.admin().list_topics(timeout=1)
                return
            except KafkaException:
                time.sleep(0.1)
        raise AssertionError(f"the broker did not start:\n{log.read_text(errors='replace')[-4000:]}")

    def kill(self) -> None:
        """End it as a power cut would."""
        os.kill(int((self._folder / "pid").read_text()), signal.SIGKILL)
        self.stop()

    def stop(self) -> None:
        """End it, if it runs, and wait for its end."""
        if self._guard is not None:
            self._guard.communicate(timeout=60)
            self._guard = None

    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def producer(self, **options: Any) -> Producer:
        """A producer that keeps the order of each partition."""
        settings = {"bootstrap.servers": self.bootstrap, "enable.idempotence": True, "linger.ms": 5}
        return Producer({**settings, "message.max.bytes": 16_000_000, "log_level": 0, **options})

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(config or {}))
        self._do("create_topics", [topic])
        self._await_partitions(name, partitions)

    def delete_topic(self, name: str) -> None:
        admin = self.admin()
        self._do("delete_topics", [name])
        deadline = time.monotonic() + 30
        while name in admin.list_topics(timeout=10).topics:
            assert time.monotonic() < deadline, f"{name} is still there"
            time.sleep(0.05)

    def add_partitions(self, name: str, total: int) -> None:
        self._do("create_partitions", [NewPartitions(name, total)])
        self._await_partitions(name, total)

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Lose the messages below an offset, as retention does."""
        self._do("delete_records", [TopicPartition(topic, partition, before)])

    def publish(self, topic: str, messages: Iterable[tuple[int, bytes | None, bytes | None]]) -> None:
        """Messages as (partition, key, value), in this order, acknowledged when this returns."""
        producer, failed = self.producer(), []  # type: tuple[Producer, list[str]]
        for partition, key, value in messages:
            _produce(producer, failed, topic, partition, key, value)
        producer.flush(120)
        assert not failed, failed[0]

    def publish_lines(self, lines: Iterable[bytes | str]) -> int:
        """Wrapped JSON lines into the partitions that they name, in their order; missing topics are created.

        Every message must arrive at the very offset that its line states, and does unless lines are left out.

        Returns:
            The number of messages.
        """
        messages = [json.loads(line) for line in lines if line.strip()]
        have = {t: len(found.partitions) for t, found in self.admin().list_topics(timeout=30).topics.items()}
        for topic in dict.fromkeys(m["topic"] for m in messages):
            wanted = 1 + max(m["partition"] for m in messages if m["topic"] == topic)
            if topic not in have:
                self.create_topic(topic, wanted)
            elif have[topic] < wanted:
                self.add_partitions(topic, wanted)
        producer, failed = self.producer(), []  # type: tuple[Producer, list[str]]
        for m in messages:
            key = None if m.get("key") is None else base64.b64decode(m["key"])
            _produce(producer, failed, m["topic"], m["partition"], key, _value(m), at=m["offset"])
        producer.flush(120)
        assert not failed, failed[0]
        return len(messages)

    def _do(self, what: str, *arguments: Any) -> None:
        # The client must outlive its futures: it takes them along when it is collected.
        admin = self.admin()
        for future in getattr(admin, what)(*arguments).values():
            future.result(timeout=60)

    def _await_partitions(self, name: str, count: int) -> None:
        admin, deadline = self.admin(), time.monotonic() + 30
        while True:
            try:
                described = admin.describe_topics(TopicCollection([name]))[name].result()
                if len(described.partitions) == count and all(p.leader is not None for p in described.partitions):
                    return
            except KafkaException as error:
                assert error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART, error
            assert time.monotonic() < deadline, f"{name} has no {count} partitions"
            time.sleep(0.05)

    def _properties(self) -> str:
        modules = "org.apache.kafka.common.security"
        # In a properties file a backslash would begin an escape; there is none in a connection string.
        plain = f'{modules}.plain.PlainLoginModule required user_$ConnectionString="{self.connection_string}";'
        bearer = f'{modules}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";'
        lines = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@127.0.0.1:{self._controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},SASL_SSL://127.0.0.1:{self.tls_port},"
            f"CONTROLLER://127.0.0.1:{self._controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port},SASL_SSL://localhost:{self.tls_port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": plain,
            "listener.name.sasl_ssl.oauthbearer.sasl.jaas.config": bearer,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self._folder / "key_and_certificate.pem",
            "log.dirs": self._folder / "data",
            "num.partitions": 1,
            "auto.create.topics.enable": "false",
            "message.max.bytes": 16_000_000,
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "transaction.state.log.num.partitions": 1,
            "group.initial.rebalance.delay.ms": 0,
            # A killed broker may not come back before its old session ended.
            "broker.session.timeout.ms": 3_000,
            "broker.heartbeat.interval.ms": 500,
            "log.cleaner.enable": "false",
        }
        return "".join(f"{name}={value}\n" for name, value in lines.items())


@contextmanager
def running_broker() -> Iterator[KafkaBroker]:
    """Start a broker and stop it in the end."""
    assert any(JARS.glob("kafka_*.jar")), "the broker's jars are missing: run `make jars-broker`"
    folder = Path(tempfile.mkdtemp(prefix="open_mirroring-kafka-"))
    broker = None
    try:
        broker = KafkaBroker(folder)
        yield broker
    finally:
        if broker is not None:
            broker.stop()
        shutil.rmtree(folder, ignore_errors=True)


def write_certificate(certificate: Path, both: Path | None = None) -> None:
    """A self-signed certificate for localhost; *both* gets the private key in front of it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    hosts = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=2))
        .add_extension(hosts, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = made.public_bytes(serialization.Encoding.PEM)
    certificate.write_bytes(pem)
    if both is not None:
        how = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        both.write_bytes(key.private_bytes(*how) + pem)


def _produce(
    producer: Producer,
    failed: list[str],
    topic: str,
    partition: int,
    key: bytes | None,
    value: bytes | None,
    at: int | None = None,
) -> None:
    def delivered(error: KafkaError | None, message: Any) -> None:
        if error is not None:
            failed.append(str(error))
        elif at is not None and message.offset() != at:
            failed.append(f"{topic}/{partition}: offset {message.offset()} instead of {at}")

    while True:
        try:
            producer.produce(topic, value, key, partition, on_delivery=delivered)
            producer.poll(0)
            return
        except BufferError:
            producer.poll(0.5)


def _value(message: Mapping[str, Any]) -> bytes | None:
    value = message["value"]
    if value is None:
        return None
    return base64.b64decode(value) if message.get("encoding") == "base64" else value.encode()


def _free_ports(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]
    finally:
        for probe in probes:
            probe.close()
