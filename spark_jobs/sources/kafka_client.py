"""The Kafka client library, wrapped: how clients are made, what their errors mean, and what a broker says of a topic.

The client may say that something failed in a call's result, in a message, or in a callback only (authentication and
certificates); all three end as one error with a code.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, NamedTuple, NoReturn, TypeVar

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from open_mirroring.config.connections import invalid
from open_mirroring.errors import MirroringError, TerminalError, TransientError
from spark_jobs.sources.kafka_place import KafkaPlace

Client = TypeVar("Client")
Key = TypeVar("Key")

_DENIED = {
    KafkaError._AUTHENTICATION,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.UNSUPPORTED_SASL_MECHANISM,
    KafkaError.ILLEGAL_SASL_STATE,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
}
_MISSING = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}
_REPLACED = {KafkaError.UNKNOWN_TOPIC_ID, KafkaError.INCONSISTENT_TOPIC_ID}
_PASSING = {
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
    KafkaError._WAIT_COORD,
    KafkaError._PARTIAL,
    KafkaError._SSL,
    KafkaError._DESTROY,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.NETWORK_EXCEPTION,
    KafkaError.KAFKA_STORAGE_ERROR,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.THROTTLING_QUOTA_EXCEEDED,
}
# What the identity service answers to a client that it will never give a token.
_TOKEN_REFUSED = ("(400)", "(401)", "(403)")
_RECREATED_WAY_OUT = (
    "offsets of the old topic mean nothing in the new one, and changes between the two may be lost: let the source "
    "write to a topic of another name, name that in the mirror file, and load its tables anew"
)


class Broker:
    """How one place is spoken to, and what the client said about it so far.

    Args:
        place: where the broker is, and how long it may take to answer.
    """

    def __init__(self, place: KafkaPlace) -> None:
        self._place = place
        self._final: MirroringError | None = None
        self._last = "it does not answer"

    def consumer(self, options: Mapping[str, Any]) -> Consumer:
        """A consumer of no group: nothing is committed, and no offset is ever chosen for us.

        Raises:
            TerminalError: ``CONNECTION_INVALID`` when the client library refuses the connection's options.
        """
        return self._made(Consumer, {"group.id": "open-mirroring", "enable.auto.commit": False, **options})

    def admin(self) -> AdminClient:
        """A client for questions about topics.

        Raises:
            TerminalError: ``CONNECTION_INVALID``, as for a consumer.
        """
        return self._made(AdminClient, {})

    def results(self, admin: AdminClient, futures: Mapping[Key, Future[Any]], where: str) -> dict[Key, Any]:
        """The results of an admin client's call; a refusal is told at once, not after the time-out.

        Raises:
            MirroringError: what :meth:`fail` makes of the first failure.
        """
        deadline = time.monotonic() + self._place.timeout_seconds
        found: dict[Key, Any] = {}
        for key, future in futures.items():
            while not future.done():
                admin.poll(0.05)
                self.check()
                if time.monotonic() > deadline:
                    self.unreachable(where)
            try:
                found[key] = future.result()
            except KafkaException as error:
                admin.poll(0)
                self.fail(error.args[0], f"{where}, {key}" if isinstance(key, str) else where)
        return found

    def check(self) -> None:
        """Raise what the client reported in a callback and no retry will mend."""
        if self._final is not None:
            raise self._final

    def passes(self, error: KafkaError) -> bool:
        """Whether an error may pass by itself, because the client goes on trying."""
        return error.code() in _PASSING or error.retriable()

    def unreachable(self, where: str) -> NoReturn:
        """The broker is silent: a refusal known by now explains it, else it counts as unreachable.

        Raises:
            TransientError: ``KAFKA_UNREACHABLE``.
            TerminalError: ``KAFKA_DENIED``, ``KAFKA_UNTRUSTED``.
        """
        self.check()
        raise TransientError(
            "KAFKA_UNREACHABLE",
            f"the broker does not answer or gives no messages: {self._last}",
            where=self._where(where),
            way_out="nothing is lost: the same ranges are read again by the next run; if it stays so, look at the "
            "broker and at the network between",
        )

    def fail(self, error: KafkaError, where: str) -> NoReturn:
        """Raise what an error of the client means.

        Raises:
            TransientError: ``KAFKA_UNREACHABLE``.
            TerminalError: ``KAFKA_DENIED``, ``KAFKA_UNTRUSTED``, ``TOPIC_MISSING``, ``TOPIC_RECREATED``,
                ``KAFKA_REFUSED`` for anything that has no name of its own.
        """
        self.check()
        self._note(error)
        self.check()
        if error.code() in _MISSING:
            raise TerminalError(
                "TOPIC_MISSING",
                "the broker has no such topic or partition, or does not show it to this login",
                where=self._where(where),
                way_out="mend `source.topics`, create the topic, or grant the login Describe and Read on it",
            )
        if error.code() in _REPLACED:
            raise recreated("the topic's id is no longer the one that was bound", self._where(where))
        if self.passes(error):
            self.unreachable(where)
        raise TerminalError(
            "KAFKA_REFUSED",
            f"the broker or its client refuses: {self._text(error)}",
            where=self._where(where),
            way_out="see the error's name in Kafka's documentation; nothing was read past this place",
        )

    def _made(self, kind: Callable[..., Client], options: Mapping[str, Any]) -> Client:
        # The library's own log would go to standard error unasked; what matters comes through the callback.
        settings = {**self._place.settings.options, **options, "error_cb": self._note, "log_level": 0}
        try:
            return kind(settings)
        except KafkaException as error:
            said = self._text(error.args[0])
        except (ValueError, TypeError) as error:
            said = self._place.settings.redact(str(error))
        raise invalid(self._place.connection, f"the Kafka client refuses its options: {said}")

    def _note(self, error: KafkaError) -> None:
        """Keep what a callback says; only a refusal is final, for the client itself mends the rest."""
        text = self._text(error)
        self._last = text
        if self._final is not None:
            return
        if error.code() in _DENIED and ("OIDC" not in text or any(code in text for code in _TOKEN_REFUSED)):
            self._final = TerminalError(
                "KAFKA_DENIED",
                f"the broker refuses this login: {text}",
                where=self._where(),
                way_out="correct login, password or mechanism of the connection, or grant the login Describe and "
                "Read on the topics",
            )
        elif error.code() == KafkaError._SSL and "certificate" in text:
            self._final = TerminalError(
                "KAFKA_UNTRUSTED",
                f"the broker's certificate, or ours, is not accepted: {text}",
                where=self._where(),
                way_out="name the authority that signed the broker's certificate in ssl.ca.location of the "
                "connection's extra, and the host by the name that stands in the certificate",
            )

    def _text(self, error: KafkaError) -> str:
        return self._place.settings.redact(f"{error.name()}: {error.str()}")[:300]

    def _where(self, where: str = "") -> str:
        return f"connection {self._place.connection}" + (f", {where}" if where else "")


class Topic(NamedTuple):
    """What a broker says of a topic; *id* is None where the broker has no ids. Offsets by partition."""

    name: str
    id: str | None
    first: Mapping[int, int]
    end: Mapping[int, int]


def topic_ids(broker: Broker, admin: AdminClient, topics: Iterable[str]) -> dict[str, tuple[str | None, list[int]]]:
    """The id and the partitions of each topic."""
    asked = admin.describe_topics(TopicCollection(sorted(topics)))
    found = {}
    for name, description in broker.results(admin, asked, "topics").items():
        uuid = description.topic_id
        # Brokers without ids say zero.
        known = uuid.get_most_significant_bits() or uuid.get_least_significant_bits()
        found[name] = (str(uuid) if known else None, sorted(p.id for p in description.partitions))
    return found


def topic_states(broker: Broker, admin: AdminClient, place: KafkaPlace) -> list[Topic]:
    """All topics of a place with the first and the end offset of every partition, as readers may see them.

    With ``read_committed`` the end lies before the first message of a transaction that is still open.

    Raises:
        MirroringError: see :meth:`Broker.fail`.
    """
    committed = place.settings.options.get("isolation.level", "read_committed") == "read_committed"
    level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    ids = topic_ids(broker, admin, place.topics)
    wanted = [TopicPartition(name, number) for name in ids for number in ids[name][1]]
    # First the end: a message that retention takes in between must not make a range look longer than it was.
    offsets = []
    for spec in (OffsetSpec.latest(), OffsetSpec.earliest()):
        asked = admin.list_offsets(dict.fromkeys(wanted, spec), isolation_level=level)
        answers = broker.results(admin, asked, "offsets")
        offsets.append({(p.topic, p.partition): answer.offset for p, answer in answers.items()})
    end, first = offsets
    return [
        Topic(name, topic_id, {n: first[name, n] for n in numbers}, {n: end[name, n] for n in numbers})
        for name, (topic_id, numbers) in ids.items()
    ]


def recreated(what: str, where: str) -> TerminalError:
    """The error for a topic that is not the one whose offsets were bound."""
    return TerminalError("TOPIC_RECREATED", what, where=where, way_out=_RECREATED_WAY_OUT)


def retention_loss(lost: int, first: int, where: str) -> TerminalError:
    """The error for messages that the broker deleted before they were read."""
    return TerminalError(
        "RETENTION_LOSS",
        f"{lost} offsets are gone before they were read: the first that is left is {first}",
        where=where,
        way_out="lengthen the topic's retention beyond the longest outage; the lost changes cannot be read any more: "
        "let the source write to a topic of another name, name that in the mirror file, and load its tables anew",
    )
