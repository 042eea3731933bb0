"""The hooks of our connection types: they register each type in Airflow and test a connection.

Jobs do not go through them: they get the connections' contents in their environment.
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
    """A connection to OneLake and the Fabric API."""

    conn_name_attr = "onelake_conn_id"
    default_conn_name = "onelake_default"
    conn_type = CONNECTION_TYPE
    hook_name = "Open Mirroring: OneLake"

    def get_conn(self) -> OneLakeConnection:
        """The connection's content, checked. Raises ``CONNECTION_INVALID``."""
        return onelake_connection(self._content())

    def test_connection(self) -> tuple[bool, str]:
        """Tests whether Entra ID issues tokens for storage and API; neither of them is called.

        Returns result and text.
        """
        try:
            login = self.get_conn().login
            for audience in (STORAGE_AUDIENCE, FABRIC_AUDIENCE):
                TokenSource(login, audience).token()
        except MirroringError as error:
            return False, str(error)
        return True, "Entra ID gives tokens for OneLake and for the Fabric API; `open-mirroring check` tries the zone"


class KafkaHook(_Hook):
    """A connection to a Kafka broker."""

    conn_name_attr = "kafka_conn_id"
    default_conn_name = "open_mirroring_kafka_default"
    conn_type = KAFKA_FORM
    hook_name = "Open Mirroring: Kafka"

    def get_conn(self) -> ClientSettings:
        """The Kafka client's options from the connection, checked. Raises ``CONNECTION_INVALID``."""
        return client_settings(self._content())

    def test_connection(self) -> tuple[bool, str]:
        """Whether the broker lets this login list its topics."""
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
    """A connection to the Kafka endpoint of an Event Hubs namespace."""

    conn_name_attr = "event_hubs_conn_id"
    default_conn_name = "event_hubs_default"
    conn_type = "event_hubs"
    hook_name = "Open Mirroring: Event Hubs"
