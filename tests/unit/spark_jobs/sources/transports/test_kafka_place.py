"""Connections to Kafka and Event Hubs: what they become for the client, and that no text shows their secrets."""

from __future__ import annotations

import pickle
import re
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from open_mirroring.config.connections import Connection
from open_mirroring.config.kafka import OPTIONS
from open_mirroring.errors import TerminalError
from open_mirroring.source_places.kafka_client import KafkaPlace, place_of
from spark_jobs.sources.transports.topics import _cut, _shares

SECRET = "c2VjcmV0LWtleQ=="
STRING = f"Endpoint=sb://shop.servicebus.windows.net/;SharedAccessKeyName=reader;SharedAccessKey={SECRET}"


def place(**fields: Any) -> KafkaPlace:
    return place_of(Connection("broker", **fields), ("sales",))


def options(**fields: Any) -> dict[str, str]:
    return dict(place(**fields).settings.options)


def test_a_plain_broker_needs_a_host_only() -> None:
    assert options(conn_type="kafka", host="one, two:9093") == {
        "bootstrap.servers": "one:9092,two:9093",
        "security.protocol": "PLAINTEXT",
    }


def test_a_login_goes_over_tls_unless_said_otherwise() -> None:
    found = options(conn_type="kafka", host="one", port=9094, login="me", password="x")
    assert found == {
        "bootstrap.servers": "one:9094",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "me",
        "sasl.password": "x",
    }


def test_event_hubs_by_connection_string() -> None:
    """C-91: the endpoint's port, SASL_SSL, PLAIN, the user $ConnectionString and the whole string as password."""
    found = options(conn_type="event_hubs", password=STRING)
    assert found["bootstrap.servers"] == "shop.servicebus.windows.net:9093"
    assert (found["security.protocol"], found["sasl.mechanism"]) == ("SASL_SSL", "PLAIN")
    assert (found["sasl.username"], found["sasl.password"]) == ("$ConnectionString", STRING)


def test_event_hubs_by_entra_application() -> None:
    """C-91: OAUTHBEARER with the client's id and secret; the scope is the namespace."""
    found = options(
        conn_type="event_hubs",
        host="shop.servicebus.windows.net",
        login="app",
        password="x",
        extra={"tenant_id": "contoso.example"},
    )
    assert found["bootstrap.servers"] == "shop.servicebus.windows.net:9093"
    assert found["sasl.mechanism"] == "OAUTHBEARER"
    assert found["sasl.oauthbearer.scope"] == "https://shop.servicebus.windows.net/.default"
    assert found["sasl.oauthbearer.token.endpoint.url"].split("/")[3:] == ["contoso.example", "oauth2", "v2.0", "token"]
    assert (found["sasl.oauthbearer.client.id"], found["sasl.oauthbearer.client.secret"]) == ("app", "x")


@pytest.mark.parametrize(
    "fields",
    [
        {"conn_type": "http", "host": "one"},
        {"conn_type": "kafka"},
        {"conn_type": "kafka", "host": "one", "login": "me"},
        {"conn_type": "kafka", "host": "one", "extra": {"security.protocol": "SASL_SSL"}},
        {"conn_type": "kafka", "host": "one", "extra": {"security.protocol": "TLS"}},
        {"conn_type": "kafka", "host": "one", "login": "me", "password": SECRET, "extra": {"sasl.mechanism": "GSSAPI"}},
        {"conn_type": "kafka", "host": "one", "login": "me", "password": SECRET, "extra": {"security.protocol": "SSL"}},
        {
            "conn_type": "kafka",
            "host": "one",
            "login": "me",
            "password": SECRET,
            "extra": {"sasl.mechanism": "OAUTHBEARER"},
        },
        {"conn_type": "kafka", "host": "one", "extra": {"isolation.level": "any"}},
        {"conn_type": "kafka", "host": "one", "extra": {"client.id": [SECRET]}},
        {"conn_type": "kafka", "host": "one", "extra": {"tenant_id": "contoso"}},
        {"conn_type": "event_hubs", "password": SECRET},
        {"conn_type": "event_hubs", "password": STRING, "extra": {"security.protocol": "PLAINTEXT"}},
        {"conn_type": "event_hubs", "host": "one", "password": SECRET, "extra": {"tenant_id": "contoso"}},
        {"conn_type": "event_hubs", "host": "one", "login": "a", "password": SECRET, "extra": {"tenant_id": "a/b"}},
    ],
)
def test_a_connection_that_cannot_be_meant_is_refused_without_repeating_it(fields: dict[str, Any]) -> None:
    with pytest.raises(TerminalError) as refused:
        place(**fields)
    assert refused.value.code == "CONNECTION_INVALID"
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    ("option", "what"),
    [
        ("client.id", "client.id in its extra is neither a text nor a number nor true or false"),
        ("tenant_id", "tenant_id in its extra is no text"),
    ],
)
def test_a_connection_names_the_option_whose_value_is_of_no_use(option: str, what: str) -> None:
    with pytest.raises(TerminalError, match=re.escape(what)):
        place(conn_type="kafka", host="one", extra={option: [SECRET]})


@pytest.mark.parametrize(
    "option",
    ["auto.offset.reset", "enable.ssl.certificate.verification", "ssl.endpoint.identification.algorithm", "debug"],
)
def test_no_connection_can_switch_a_check_off(option: str) -> None:
    assert option not in OPTIONS
    with pytest.raises(TerminalError, match="CONNECTION_INVALID"):
        place(conn_type="kafka", host="one", extra={option: "none"})


def test_no_text_of_a_place_shows_a_secret_and_a_worker_gets_it_complete() -> None:
    made = place(conn_type="event_hubs", password=STRING)
    shown = repr(made) + str(made) + repr(made.settings) + f"{made}" + repr(made._asdict())
    assert SECRET not in shown
    assert pickle.loads(pickle.dumps(made)) == made
    assert made.settings.redact(f"key {SECRET} of {STRING}") == "key … of …"


@settings(derandomize=True, deadline=None, max_examples=60)
@given(
    st.dictionaries(st.sampled_from("abcd"), st.tuples(st.integers(0, 50), st.integers(0, 400)), min_size=1),
    st.integers(1, 300),
)
def test_a_catch_up_in_bounded_runs_ends_and_takes_all(backlogs: dict[str, tuple[int, int]], limit: int) -> None:
    left = {name: (start, start + length) for name, (start, length) in backlogs.items()}
    while any(start < end for start, end in left.values()):
        ends = _shares(left, limit)
        taken = sum(ends[name] - start for name, (start, _) in left.items())
        assert 0 < taken <= limit + len(left)
        assert all(start <= ends[name] <= end for name, (start, end) in left.items())
        left = {name: (ends[name], end) for name, (_, end) in left.items()}


@settings(derandomize=True, deadline=None, max_examples=60)
@given(st.integers(0, 10**12), st.integers(0, 5_000), st.integers(1, 700))
def test_a_cut_partition_has_no_gap_and_no_overlap(start: int, length: int, most: int) -> None:
    parts = _cut("t/0", start, start + length, most)
    assert (parts[0].start, parts[-1].end) == (start, start + length)
    assert all(one.end == other.start for one, other in pairwise(parts))
    assert all(part.end - part.start <= most for part in parts)
