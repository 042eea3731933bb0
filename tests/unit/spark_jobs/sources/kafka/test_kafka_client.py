"""What errors of the Kafka client mean: the broker's refusal of a login is final, a connection that broke is not."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from open_mirroring.config.kafka import ClientSettings
from open_mirroring.errors import TerminalError, TransientError
from spark_jobs.sources.kafka.client import Broker, KafkaPlace

SECRET = "hush-hush"
HANDSHAKE = "sasl_ssl://b:9093/1: SASL PLAIN mechanism handshake failed: {}: broker's supported mechanisms: "


def broker() -> Broker:
    return Broker(KafkaPlace("lake", ("t",), ClientSettings({"sasl.password": SECRET})))


@pytest.mark.parametrize(
    "text", [HANDSHAKE.format("Local: Broker transport failure"), HANDSHAKE.format("Local: Timed out")]
)
def test_a_login_that_ended_with_its_connection_is_tried_again(text: str) -> None:
    """The library reports it as a refused login: as librdkafka spells it when a broker goes away in the handshake."""
    asked = broker()
    error = KafkaError(KafkaError._AUTHENTICATION, text)
    assert asked.passes(error)
    with pytest.raises(TransientError, match="handshake failed") as failed:
        asked.fail(error, "t/0")
    assert failed.value.code == "UNREACHABLE"


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (KafkaError._AUTHENTICATION, f"SASL authentication error: Authentication failed: {SECRET} is wrong"),
        (KafkaError._AUTHENTICATION, HANDSHAKE.format("Broker: Unsupported SASL mechanism") + "SCRAM-SHA-512"),
        (KafkaError.SASL_AUTHENTICATION_FAILED, "SASL Authentication failed"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed"),
    ],
)
def test_a_refused_login_is_final_and_shows_no_secret(code: int, text: str) -> None:
    """C-91, I30."""
    asked = broker()
    error = KafkaError(code, text)
    assert not asked.passes(error)
    with pytest.raises(TerminalError) as failed:
        asked.fail(error, "t/0")
    assert failed.value.code == "ACCESS_DENIED"
    assert SECRET not in str(failed.value)
