"""The connection types that we bring into Airflow: each has a form and a Test button that tries the real thing."""

from __future__ import annotations

import importlib
import json

import pytest

from open_mirroring.config.connections import resolve
from open_mirroring.config.kafka import OPTIONS, client_settings
from open_mirroring_airflow.hooks import EventHubsHook, KafkaHook
from open_mirroring_airflow.provider_info import get_provider_info
from tests.kafka_broker import KafkaBroker

TYPES = {one["connection-type"]: one for one in get_provider_info()["connection-types"]}


def test_every_type_has_a_form_and_a_hook_that_tests_it() -> None:
    assert TYPES.keys() == {"open_mirroring_onelake", "open_mirroring_kafka", "event_hubs"}
    for name, described in TYPES.items():
        module, _, hook = described["hook-class-name"].rpartition(".")
        found = getattr(importlib.import_module(module), hook)
        assert found.conn_type == name and found.hook_name == described["hook-name"]
        assert callable(found.test_connection)
    assert {"auth", "tenant_id"} <= TYPES["open_mirroring_onelake"]["conn-fields"].keys()


@pytest.mark.parametrize("name", ["open_mirroring_kafka", "event_hubs"])
def test_the_fields_of_a_form_are_what_a_connection_takes(name: str) -> None:
    assert TYPES[name]["conn-fields"].keys() <= OPTIONS | {"tenant_id"}


def test_a_form_that_was_left_empty_is_a_plain_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    empty = dict.fromkeys(TYPES["open_mirroring_kafka"]["conn-fields"])
    story = {"conn_type": "open_mirroring_kafka", "host": "one", "login": "", "extra": empty}
    monkeypatch.setenv("AIRFLOW_CONN_BROKER", json.dumps(story))
    assert dict(client_settings(resolve("broker")).options) == {
        "bootstrap.servers": "one:9092",
        "security.protocol": "PLAINTEXT",
    }


@pytest.mark.kafka
def test_the_button_asks_the_broker(kafka: KafkaBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    story = {"conn_type": "open_mirroring_kafka", "host": kafka.bootstrap}
    monkeypatch.setenv("AIRFLOW_CONN_BROKER", json.dumps(story))
    passed, what = KafkaHook("broker").test_connection()
    assert passed and "topics" in what
    monkeypatch.setenv("AIRFLOW_CONN_BROKER", json.dumps(story | {"host": "localhost:1"}))
    monkeypatch.setattr("open_mirroring_airflow.hooks._ANSWER_SECONDS", 2)
    passed, what = KafkaHook("broker").test_connection()
    assert not passed and "localhost:1" in what


@pytest.mark.kafka
def test_the_button_of_event_hubs_tries_the_login_and_shows_no_secret(
    kafka: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_HUB", kafka.event_hubs_connection())
    assert EventHubsHook("hub").test_connection()[0] is True
    wrong = "Endpoint=sb://localhost/;SharedAccessKeyName=x;SharedAccessKey=canary"
    monkeypatch.setenv("AIRFLOW_CONN_HUB", kafka.event_hubs_connection(password=wrong))
    monkeypatch.setattr("open_mirroring_airflow.hooks._ANSWER_SECONDS", 5)
    passed, what = EventHubsHook("hub").test_connection()
    assert (passed, "Authentication" in what, "canary" in what) == (False, True, False), what
    monkeypatch.setenv("AIRFLOW_CONN_HUB", json.dumps({"conn_type": "event_hubs", "password": "none"}))
    passed, what = EventHubsHook("hub").test_connection()
    assert (passed, "not a connection string" in what) == (False, True)
