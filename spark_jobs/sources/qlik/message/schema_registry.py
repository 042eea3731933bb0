"""Reads Avro schemas by number from a schema registry, for messages that contain only the number (K-04, K-06).

Only Spark's driver asks the registry, once for each number. Public source: Confluent, *Schema Registry API*.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

import httpx2  # the HTTP library of the client library, whose errors it passes on
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from open_mirroring.config.connections import Connection, invalid
from open_mirroring.errors import TerminalError, TransientError
from spark_jobs.sources.contract.decoded import Refusal, SourceSchema
from spark_jobs.sources.qlik.message.avro import data_schema
from spark_jobs.sources.qlik.message.envelope import registry_number
from spark_jobs.sources.qlik.message.structures import registry_schema, unfit_schema

log = logging.getLogger(__name__)

_UNKNOWN = 404
_DENIED = (401, 403)
_NO_ANSWER = (ValueError, TypeError, AttributeError, KeyError)
"""Errors of the client for a truncated or foreign answer, which must not be stored as a schema."""


class SchemaRegistry:
    """The schema registry of an Airflow connection of type ``http``: its *host* is the registry's URL."""

    def __init__(self, connection: Connection) -> None:
        if connection.conn_type != "http" or not (connection.host or "").startswith(("http://", "https://")):
            raise invalid(connection.name, "for a schema registry its conn_type is http, and its host a URL")
        url = f"{connection.host}:{connection.port}" if connection.port else connection.host
        settings = {"url": url, "timeout": 30, "max.retries": 2}
        if connection.login is not None:
            settings["basic.auth.user.info"] = f"{connection.login}:{connection.password or ''}"
        if "ssl.ca.location" in connection.extra:
            settings["ssl.ca.location"] = str(connection.extra["ssl.ca.location"])
        self._client, self._name = SchemaRegistryClient(settings), connection.name

    def schemas(self, identities: Iterable[str]) -> list[SourceSchema]:
        """The schemas with the numbers for which fragments wait; numbers unknown to the registry are left out.

        *identities* are the ``fragment_of`` of the fragments.
        """
        numbers = {number for identity in identities if (number := registry_number(identity)) is not None}
        found = (self._schema(number) for number in sorted(numbers))
        return [schema for schema in found if schema is not None]

    def _schema(self, number: int) -> SourceSchema | None:
        where = f"connection {self._name}, schema {number}"
        try:
            found = self._client.get_schema(number)
        except SchemaRegistryError as error:
            if error.http_status_code == _UNKNOWN:
                log.warning("the schema registry does not know the schema %d: its messages wait", number)
                return None
            if error.http_status_code in _DENIED:
                what = f"the schema registry: it answers {error.http_status_code}"
                next_step = "correct the connection's login, or have it granted the right to read schemas"
                raise TerminalError("ACCESS_DENIED", what, where=where, next_step=next_step) from None
            raise self._unreachable(f"it answers {error.http_status_code}", where) from error
        except (httpx2.HTTPError, OSError) as error:
            raise self._unreachable(type(error).__name__, where) from None
        except _NO_ANSWER as error:
            raise self._unreachable(f"its answer is none: {type(error).__name__}", where) from None
        # Whatever types the client declares, these are what the server wrote.
        kind, text = str(found.schema_type or "AVRO"), found.schema_str
        if not isinstance(text, str) or not text:
            raise self._unreachable("its answer has no schema", where)
        try:
            if kind == "AVRO":
                return registry_schema(number, data_schema(text).table, number, text)
            log.warning("the schema %d of the registry is of the type %s: its messages are dead letters", number, kind)
        except Refusal as refusal:
            log.warning("the schema %d of the registry: %s: its messages are dead letters", number, refusal.reason)
        return unfit_schema(number, kind, text)

    @staticmethod
    def _unreachable(what: str, where: str) -> TransientError:
        next_step = "the next run asks again; if it stays so, look at the registry and at the network between"
        return TransientError("UNREACHABLE", f"the schema registry: {what}", where=where, next_step=next_step)
