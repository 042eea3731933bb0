"""Starts a Kafka broker on this machine: one process, from published jars, on free ports, without TLS.

``make jars-broker`` fetches the jars. The tests start their brokers in the same way.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from demo.failures import DemoFailed
from demo.place import ROOT
from demo.processes import free_ports

JARS = ROOT / "jars" / "broker"
_JAVA = [
    str(Path(os.environ["JAVA_HOME"], "bin", "java")) if os.environ.get("JAVA_HOME") else "java",
    *("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m", "-cp", str(JARS / "*")),
]
# The broker ends with the program that started it, however that ends: a pipe closes even when its writer is killed.
_UNTIL_INPUT_ENDS = '"$@" & echo $! >pid; read -r _; kill -TERM $!; wait'
_START_LIMIT, _END_LIMIT, _ANSWER_LIMIT = 120.0, 60.0, 30.0


class Broker:
    """A broker that can be stopped and started again on the same ports with the same data.

    Args:
        folder: an empty folder for its data, settings and log.
        more_ports: how many further free ports are wanted for more listeners; they are in :attr:`more_ports`.

    Raises:
        DemoFailed: when its jars are missing, or it cannot be started.
    """

    name = "the Kafka broker"

    def __init__(self, folder: Path, more_ports: int = 0) -> None:
        if not any(JARS.glob("kafka_*.jar")):
            raise DemoFailed("the broker's jars are missing: run `make jars-broker`")
        self.port, self._controller, *self.more_ports = free_ports(2 + more_ports)
        self.log = folder / "log"
        self._folder, self._pid_file = folder, folder / "pid"
        self._guard: subprocess.Popen[str] | None = None
        text = "".join(f"{name}={value}\n" for name, value in self.properties().items())
        (folder / "server.properties").write_text(text, encoding="utf-8")
        identity = base64.urlsafe_b64encode(secrets.token_bytes(16)).decode().rstrip("=").replace("-", "a")
        made = subprocess.run(
            [*_JAVA, "kafka.tools.StorageTool", "format", "-t", identity, "-c", "server.properties"],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=_START_LIMIT,
        )
        if made.returncode:
            raise DemoFailed(f"the broker's folder cannot be made ready: {made.stdout}{made.stderr}")
        self.start()

    @property
    def pid(self) -> int:
        """The running broker's process."""
        return int(self._pid_file.read_text())

    @property
    def session(self) -> int:
        """The session that it belongs to, or belonged to."""
        return self._session

    @property
    def bootstrap(self) -> str:
        """Address of the plain listener."""
        return f"127.0.0.1:{self.port}"

    def connection(self, **extra: Any) -> str:
        """The plain listener as a connection in Airflow's JSON form."""
        return json.dumps({"conn_type": "kafka", "host": "127.0.0.1", "port": self.port, "extra": extra})

    def properties(self) -> dict[str, Any]:
        """The broker's settings."""
        return {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@127.0.0.1:{self._controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self._controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
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

    def start(self) -> None:
        """Start, and wait until the broker answers.

        Raises:
            DemoFailed: when it does not.
        """
        # A broker before it left its number there.
        self._pid_file.unlink(missing_ok=True)
        with self.log.open("a") as out:
            self._guard = subprocess.Popen(
                ["sh", "-c", _UNTIL_INPUT_ENDS, "sh", *_JAVA, "kafka.Kafka", "server.properties"],
                cwd=self._folder,
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=subprocess.STDOUT,
                text=True,
                # Ctrl-C at the terminal is not for the broker: what reads from it must end first.
                start_new_session=True,
            )
        self._session = self._guard.pid
        try:
            self._await_answer()
        except BaseException:
            # Nobody else knows of it yet.
            self.stop()
            raise

    def check(self) -> None:
        """Nothing while it runs.

        Raises:
            DemoFailed: when it has ended by itself.
        """
        if self._guard is not None and (self._guard.poll() is not None or self._has_ended()):
            raise DemoFailed("the broker ended by itself", self.log)

    def stop(self) -> list[str]:
        """End it, if it runs, and wait for its end; safe to call again.

        Returns:
            Command lines of processes that had to be killed, which none should.

        Raises:
            DemoFailed: when it is still there.
        """
        guard, self._guard = self._guard, None
        if guard is None:
            return []
        try:
            guard.communicate(timeout=_END_LIMIT)
        except subprocess.TimeoutExpired:
            os.killpg(guard.pid, signal.SIGKILL)
            try:
                guard.communicate(timeout=_END_LIMIT)
            except subprocess.TimeoutExpired as error:
                raise DemoFailed("the broker is left behind", self.log) from error
            return ["kafka.Kafka"]
        return []

    def admin(self) -> AdminClient:
        """A client for topics."""
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def newest(self, topic: str, partitions: int) -> float:
        """When the newest message of a topic was sent, in seconds since 1970."""
        admin = self.admin()
        asked = {TopicPartition(topic, number): OffsetSpec.max_timestamp() for number in range(partitions)}
        answers = [future.result(_END_LIMIT) for future in admin.list_offsets(asked).values()]
        return float(max(answer.timestamp for answer in answers)) / 1000

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Make a topic, and wait until it can be written to.

        Raises:
            DemoFailed: when that takes too long.
        """
        self.administer(
            "create_topics",
            [NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(config or {}))],
        )
        self.await_partitions(name, partitions)

    def administer(self, what: str, items: Sequence[Any]) -> None:
        """Have something done by the admin client's method *what*, to its end."""
        # The client must outlive its futures: it takes them along when it is collected.
        admin = self.admin()
        for future in getattr(admin, what)(items).values():
            future.result(timeout=_END_LIMIT)

    def await_partitions(self, name: str, count: int) -> None:
        """Wait until a topic has so many partitions, each with a leader.

        Raises:
            DemoFailed: when that takes too long.
        """
        admin, deadline = self.admin(), time.monotonic() + _ANSWER_LIMIT
        while True:
            try:
                described = admin.describe_topics(TopicCollection([name]))[name].result()
                if len(described.partitions) == count and all(p.leader is not None for p in described.partitions):
                    return
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise
            if time.monotonic() > deadline:
                raise DemoFailed(f"the topic {name} has no {count} partitions after {_ANSWER_LIMIT:.0f} s", self.log)
            time.sleep(0.05)

    def _await_answer(self) -> None:
        deadline = time.monotonic() + _START_LIMIT
        while time.monotonic() < deadline:
            self.check()
            try:
                self.admin().list_topics(timeout=1)
                return
            except KafkaException:
                time.sleep(0.1)
        raise DemoFailed(f"the broker does not answer after {_START_LIMIT:.0f} s", self.log)

    def _has_ended(self) -> bool:
        """Whether the broker is gone while its guard still waits."""
        if not self._pid_file.is_file() or not self._pid_file.read_text().strip():
            return False  # its guard has not started it yet
        try:
            return psutil.Process(self.pid).status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True
