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
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, Producer, TopicPartition
from confluent_kafka.admin import NewPartitions
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from demo.broker import Broker


class KafkaBroker(Broker):
    """The broker of the demo, which listens twice here and can be killed."""

    def __init__(self, folder: Path) -> None:
        key = base64.b64encode(secrets.token_bytes(32)).decode()
        self.connection_string = (
            f"Endpoint=sb://localhost/;SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey={key}"
        )
        self.ca_file = folder / "certificate.pem"
        self._key_file = folder / "key_and_certificate.pem"
        write_certificate(self.ca_file, self._key_file)
        super().__init__(folder, more_ports=1)

    @property
    def tls_port(self) -> int:
        """Port of the other listener."""
        return self.more_ports[0]

    def event_hubs_connection(self, **changes: Any) -> str:
        """The other listener as a connection to Event Hubs."""
        extra = {"ssl.ca.location": str(self.ca_file)}
        whole = {"host": "localhost", "port": self.tls_port, "password": self.connection_string, "extra": extra}
        return json.dumps({"conn_type": "event_hubs", **whole, **changes})

    def kill(self) -> None:
        """End it as a power cut would."""
        os.kill(self.pid, signal.SIGKILL)
        self.stop()

    def producer(self, **options: Any) -> Producer:
        """A producer that keeps the order of each partition."""
        settings = {"bootstrap.servers": self.bootstrap, "enable.idempotence": True, "linger.ms": 5}
        return Producer({**settings, "message.max.bytes": 16_000_000, "log_level": 0, **options})

    def delete_topic(self, name: str) -> None:
        admin = self.admin()
        self.administer("delete_topics", [name])
        deadline = time.monotonic() + 300
        while name in admin.list_topics(timeout=300).topics:
            assert time.monotonic() < deadline, f"{name} is still there"
            time.sleep(0.05)

    def add_partitions(self, name: str, total: int) -> None:
        self.administer("create_partitions", [NewPartitions(name, total)])
        self.await_partitions(name, total)

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Lose the messages below an offset, as retention does."""
        self.administer("delete_records", [TopicPartition(topic, partition, before)])

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
        have = {t: len(found.partitions) for t, found in self.admin().list_topics(timeout=300).topics.items()}
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

    def properties(self) -> dict[str, Any]:
        plain = super().properties()
        modules = "org.apache.kafka.common.security"
        # In a properties file a backslash would begin an escape; there is none in a connection string.
        login = f'{modules}.plain.PlainLoginModule required user_$ConnectionString="{self.connection_string}";'
        bearer = f'{modules}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";'
        return plain | {
            "listeners": f"{plain['listeners']},SASL_SSL://127.0.0.1:{self.tls_port}",
            "advertised.listeners": f"{plain['advertised.listeners']},SASL_SSL://localhost:{self.tls_port}",
            "listener.security.protocol.map": f"{plain['listener.security.protocol.map']},SASL_SSL:SASL_SSL",
            "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": login,
            "listener.name.sasl_ssl.oauthbearer.sasl.jaas.config": bearer,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self._key_file,
        }


@contextmanager
def running_broker() -> Iterator[KafkaBroker]:
    """Start a broker and stop it in the end."""
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
