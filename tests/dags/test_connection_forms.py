"""The connection types that we bring into Airflow: each has a form and a Test button that tries the real thing."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

from open_mirroring.config.connections import resolve
from open_mirroring.config.kafka import OPTIONS, client_settings
from open_mirroring.errors import TerminalError
from open_mirroring_airflow.hooks import EventHubsHook, FabricSparkHook, KafkaHook
from open_mirroring_airflow.provider_info import get_provider_info
from tests.kafka_broker import KafkaBroker
from tests.livy import SECRET, running_livy

TYPES = {one["connection-type"]: one for one in get_provider_info()["connection-types"]}


def test_every_type_has_a_form_and_a_hook_that_tests_it() -> None:
    assert TYPES.keys() == {"open_mirroring_onelake", "open_mirroring_livy", "open_mirroring_kafka", "event_hubs"}
    for name, described in TYPES.items():
        module, _, hook = described["hook-class-name"].rpartition(".")
        found = getattr(importlib.import_module(module), hook)
        assert found.conn_type == name and found.hook_name == described["hook-name"]
        assert callable(found.test_connection)
    assert {"auth", "tenant_id"} <= TYPES["open_mirroring_onelake"]["conn-fields"].keys()


def test_the_button_of_fabrics_spark_asks_the_livy_api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running_livy(tmp_path, "") as livy:
        monkeypatch.setenv("AIRFLOW_CONN_FABRIC", livy.connection())
        assert FabricSparkHook("fabric").test_connection() == (
            True,
            "Fabric's Livy API lists the sessions of this lakehouse",
        )
        fields = json.loads(livy.connection())["extra"].keys()
        assert fields == TYPES["open_mirroring_livy"]["conn-fields"].keys() - {"auth"}
        livy.faults = {"GET /sessions": [403]}
        passed, said = FabricSparkHook("fabric").test_connection()
        assert not passed and "ACCESS_DENIED" in said and SECRET not in said


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"mode": "fast"}, "mode is none of batch, session"),
        ({"lakehouse": "shop"}, "have to be ids"),
        ({"environment": "shop"}, "have to be ids"),
        ({"file": "livy_job.py"}, "a batch needs file"),
        ({"fabric_endpoint": "https://elsewhere.example"}, "fabric_endpoint"),
        ({"other": "x"}, "an option other than"),
    ],
)
def test_a_connection_to_fabrics_spark_that_cannot_work_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: dict[str, str], said: str
) -> None:
    with running_livy(tmp_path, "") as livy:
        monkeypatch.setenv("AIRFLOW_CONN_FABRIC", livy.connection(**changed))
    with pytest.raises(TerminalError, match=f"CONNECTION_INVALID.*{said}"):
        FabricSparkHook("fabric").get_conn()


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
