"""The hooks of the product's connection types: they register each type in Airflow, and test a connection.

Jobs do not use these hooks: jobs get the connections' fields in environment variables.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import BaseHook
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from open_mirroring.config.connections import KAFKA_FORM, Connection
from open_mirroring.config.kafka import ClientSettings, client_settings
from open_mirroring.config.onelake import CONNECTION_TYPE, OneLakeConnection, onelake_connection
from open_mirroring.errors import MirroringError
from open_mirroring.fabric.livy import LivyApi
from open_mirroring.fabric.livy_connection import CONNECTION_TYPE as FABRIC_SPARK
from open_mirroring.fabric.livy_connection import LivyConnection, livy_connection
from open_mirroring.remote.entra import FABRIC_AUDIENCE, STORAGE_AUDIENCE, TokenSource
from open_mirroring_airflow.connections import resolved

_ANSWER_SECONDS = 20
_REASONS_SHOWN = 2


class _Hook(BaseHook):
    """A connection that is looked up by its name *conn_id* and tested."""

    default_conn_name: str

    def __init__(self, conn_id: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._name = conn_id or self.default_conn_name

    def _content(self) -> Connection:
        return resolved(self._name, self.get_connection(self._name))


class OneLakeHook(_Hook):
    """The hook of the connection type for OneLake and the Fabric API."""

    conn_name_attr = "onelake_conn_id"
    default_conn_name = "onelake_default"
    conn_type = CONNECTION_TYPE
    hook_name = "Open Mirroring: OneLake"

    def get_conn(self) -> OneLakeConnection:
        """The fields of the connection, checked. Raises ``CONNECTION_INVALID`` if one is missing or wrong."""
        return onelake_connection(self._content())

    def test_connection(self) -> tuple[bool, str]:
        """Tests whether Entra ID issues tokens for OneLake's storage and for the Fabric API.

        Neither the storage nor the API is called. Returns whether the test succeeded, and a message for the user.
        """
        try:
            login = self.get_conn().login
            for audience in (STORAGE_AUDIENCE, FABRIC_AUDIENCE):
                TokenSource(login, audience).token()
        except MirroringError as error:
            return False, str(error)
        return True, "Entra ID gives tokens for OneLake and for the Fabric API; `open-mirroring check` tries the zone"


class FabricSparkHook(_Hook):
    """The hook of the connection type for Fabric's own Spark."""

    conn_name_attr = "fabric_spark_conn_id"
    default_conn_name = "fabric_spark_default"
    conn_type = FABRIC_SPARK
    hook_name = "Open Mirroring: Fabric Spark"

    def get_conn(self) -> LivyConnection:
        """The fields of the connection, checked. Raises ``CONNECTION_INVALID`` if one is missing or wrong."""
        return livy_connection(self._content())

    def test_connection(self) -> tuple[bool, str]:
        """Tests whether the Livy API lets this login list the sessions of the lakehouse.

        No session is started. Returns whether the test succeeded, and a message for the user.
        """
        try:
            LivyApi(self.get_conn()).find("/sessions", "")
        except MirroringError as error:
            return False, str(error)
        return True, "Fabric's Livy API lists the sessions of this lakehouse"


class KafkaHook(_Hook):
    """The hook of the connection type for a Kafka broker."""

    conn_name_attr = "kafka_conn_id"
    default_conn_name = "open_mirroring_kafka_default"
    conn_type = KAFKA_FORM
    hook_name = "Open Mirroring: Kafka"

    def get_conn(self) -> ClientSettings:
        """The Kafka client's options from the connection. Raises ``CONNECTION_INVALID`` if one is wrong."""
        return client_settings(self._content())

    def test_connection(self) -> tuple[bool, str]:
        """Tests whether the broker lets this login list its topics.

        Returns whether the test succeeded, and a message for the user.
        """
        try:
            settings = self.get_conn()
        except MirroringError as error:
            return False, str(error)
        # Only the callback gets a refused login; the call itself reports a timeout.
        refusals: list[str] = []
        options: dict[str, Any] = {**settings.options, "error_cb": lambda error: refusals.append(error.str())}
        try:
            client = AdminClient({**options, "log_level": 0})
            try:
                topics = client.list_topics(timeout=_ANSWER_SECONDS).topics
            finally:
                client.poll(0)
        except KafkaException as error:
            reasons = list(dict.fromkeys(refusals))[:_REASONS_SHOWN]
            return False, settings.redact("; ".join([*reasons, error.args[0].str()]))
        return True, f"the broker answers and names {len(topics)} topics; `open-mirroring check --sample` reads them"


class EventHubsHook(KafkaHook):
    """The hook of the connection type for the Kafka endpoint of an Event Hubs namespace."""

    conn_name_attr = "event_hubs_conn_id"
    default_conn_name = "event_hubs_default"
    conn_type = "event_hubs"
    hook_name = "Open Mirroring: Event Hubs"
