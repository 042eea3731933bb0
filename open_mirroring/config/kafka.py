"""Converts connections to Kafka brokers, or to the Kafka endpoint of Event Hubs, to options of the client library.

Options pass through an allow-list, so that no connection can disable a check. Public source: librdkafka, *Configuration
properties*; Microsoft Learn, *Azure Event Hubs for Apache Kafka* (C-91).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from open_mirroring.config.connections import Connection, check_tenant, invalid, option_texts

CONNECTION_TYPES = ("kafka", "event_hubs")
OPTIONS = frozenset(
    {
        "bootstrap.servers",
        "client.id",
        "client.rack",
        "fetch.max.bytes",
        "isolation.level",
        "max.partition.fetch.bytes",
        "metadata.max.age.ms",
        "queued.max.messages.kbytes",
        "receive.message.max.bytes",
        "sasl.mechanism",
        "sasl.oauthbearer.extensions",
        "sasl.oauthbearer.scope",
        "sasl.oauthbearer.token.endpoint.url",
        "security.protocol",
        "socket.keepalive.enable",
        "socket.timeout.ms",
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.certificate.location",
        "ssl.certificate.pem",
        "ssl.key.location",
        "ssl.key.password",
        "ssl.key.pem",
    }
)
"""The options allowed in a connection's ``extra``. None of them changes where or how strictly messages are read."""

_SECRETS = ("sasl.password", "sasl.oauthbearer.client.secret", "ssl.key.password", "ssl.key.pem")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_ENDPOINT = re.compile(r"\s*Endpoint=sb://([A-Za-z0-9.-]+)/?;", re.IGNORECASE)


@dataclass(frozen=True)
class ClientSettings:
    """Options of the Kafka client library by option name; ``repr`` hides all options, because some are secret."""

    options: Mapping[str, str] = field(repr=False)

    def redact(self, text: str) -> str:
        """Replace the secrets in *text*, because a broker's error message may quote them."""
        found = {self.options[name] for name in _SECRETS if self.options.get(name)}
        # A key is secret on its own, too, outside its connection string.
        found |= {match for one in found for match in re.findall(r"SharedAccess(?:Key|Signature)=([^;]+)", one)}
        for secret in sorted(found, key=len, reverse=True):
            text = text.replace(secret, "…")
        return text


def client_settings(connection: Connection) -> ClientSettings:
    """Convert a connection of type ``kafka`` or ``event_hubs`` to options of the Kafka client.

    In a ``kafka`` connection *host* is one broker or several (``host:port,host:port``). *login* and *password* are for
    SASL, by default ``PLAIN`` over ``SASL_SSL``; for ``OAUTHBEARER`` they are the client's id and secret. In an
    ``event_hubs`` connection *password* is the connection string. If ``extra`` contains ``tenant_id``, *login* and
    *password* are the client id and secret of an Entra application instead. ``extra`` may contain the further client
    options in :data:`OPTIONS`. Raises ``CONNECTION_INVALID`` for an unusable connection; the error shows no value of
    the connection.
    """
    if connection.conn_type not in CONNECTION_TYPES:
        raise invalid(connection.name, f"for Kafka its conn_type is one of {', '.join(CONNECTION_TYPES)}")
    options = option_texts(connection, OPTIONS | {"tenant_id"}, numbers=OPTIONS)
    tenant = options.pop("tenant_id", None)
    if connection.conn_type == "event_hubs":
        _event_hubs(connection, tenant, options)
    elif tenant is not None:
        raise invalid(connection.name, "tenant_id belongs to the conn_type event_hubs")
    else:
        _kafka(connection, options)
    if options["security.protocol"] not in PROTOCOLS:
        raise invalid(connection.name, f"its security.protocol is none of {', '.join(PROTOCOLS)}")
    if options.get("isolation.level", "read_committed") not in ("read_committed", "read_uncommitted"):
        raise invalid(connection.name, "its isolation.level is neither read_committed nor read_uncommitted")
    return ClientSettings(options)


def _kafka(connection: Connection, options: dict[str, str]) -> None:
    if connection.host:
        options["bootstrap.servers"] = _servers(connection, 9092)
    if "bootstrap.servers" not in options:
        raise invalid(connection.name, "it has no host")
    sasl = connection.login is not None
    protocol = options.setdefault("security.protocol", "SASL_SSL" if sasl else "PLAINTEXT")
    if protocol.startswith("SASL") != sasl or (sasl and connection.password is None):
        raise invalid(connection.name, "login and password go with a security.protocol of SASL, and with no other")
    if not sasl:
        return
    mechanism = options.setdefault("sasl.mechanism", "PLAIN")
    if mechanism not in MECHANISMS:
        raise invalid(connection.name, f"its sasl.mechanism is none of {', '.join(MECHANISMS)}")
    if mechanism == "OAUTHBEARER":
        if "sasl.oauthbearer.token.endpoint.url" not in options:
            raise invalid(connection.name, "OAUTHBEARER needs sasl.oauthbearer.token.endpoint.url in its extra")
        _oidc(connection, options)
    else:
        options |= {"sasl.username": connection.login or "", "sasl.password": connection.password or ""}


def _event_hubs(connection: Connection, tenant: str | None, options: dict[str, str]) -> None:
    if options.keys() & {"bootstrap.servers", "security.protocol", "sasl.mechanism"}:
        raise invalid(connection.name, "servers, protocol and mechanism are given with the conn_type event_hubs")
    options["security.protocol"] = "SASL_SSL"
    # The endpoint closes idle connections after some minutes; its documentation recommends this for Kafka clients.
    options.setdefault("socket.keepalive.enable", "true")
    options.setdefault("metadata.max.age.ms", "180000")
    if tenant is not None:
        check_tenant(connection, tenant)
        if not (connection.host and connection.login and connection.password):
            raise invalid(connection.name, "with tenant_id it needs host, login (client id) and password (secret)")
        options["bootstrap.servers"] = _servers(connection, 9093)
        host = connection.host.split(":")[0]
        options.setdefault("sasl.oauthbearer.scope", f"https://{host}/.default")
        address = f"https://login.microsoftonline.com/{tenant}/oauth2/v2.0/token"
        options.setdefault("sasl.oauthbearer.token.endpoint.url", address)
        _oidc(connection, options)
        return
    string = connection.password or ""
    endpoint = _ENDPOINT.match(string)
    if endpoint is None:
        raise invalid(connection.name, "its password is not a connection string (Endpoint=sb://…;SharedAccessKey…)")
    options["bootstrap.servers"] = _servers(connection, 9093) if connection.host else f"{endpoint.group(1)}:9093"
    options |= {"sasl.mechanism": "PLAIN", "sasl.username": "$ConnectionString", "sasl.password": string}


def _oidc(connection: Connection, options: dict[str, str]) -> None:
    options |= {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": connection.login or "",
        "sasl.oauthbearer.client.secret": connection.password or "",
    }


def _servers(connection: Connection, port: int) -> str:
    hosts = [host.strip() for host in (connection.host or "").split(",")]
    return ",".join(host if ":" in host else f"{host}:{connection.port or port}" for host in hosts)
