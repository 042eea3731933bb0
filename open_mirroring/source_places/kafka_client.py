"""Wraps the Kafka client library: creates clients, asks about topics, and translates errors.

The library may report a failure in a result, in a message, or only in a callback. All three become an error with a
code.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, wait
from functools import cached_property
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

from open_mirroring.config.connections import Connection, invalid
from open_mirroring.config.kafka import ClientSettings, client_settings
from open_mirroring.config.source import MAX_MESSAGES_PER_RUN
from open_mirroring.errors import MirroringError, TerminalError, TransientError


class KafkaPlace(NamedTuple):
    """The topics of a mirror and their broker, as plain values that can be pickled.

    *settings* may contain secrets. *ids* are pairs of a topic and the id that it had when it was first read. Unread
    messages are split into ranges of *messages_per_range*; one run reads at most *max_messages_per_run* of them.
    """

    connection: str
    topics: tuple[str, ...]
    settings: ClientSettings
    ids: tuple[tuple[str, str], ...] = ()
    messages_per_range: int = 200_000
    max_messages_per_run: int = MAX_MESSAGES_PER_RUN
    timeout_seconds: float = 60.0


def place_of(connection: Connection, topics: tuple[str, ...]) -> KafkaPlace:
    """Create the :class:`KafkaPlace` of *topics* at the broker of a connection.

    See :func:`~open_mirroring.config.kafka.client_settings` for the connection's fields.
    """
    return KafkaPlace(connection.name, topics, client_settings(connection))


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
_PASSING = {
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
    KafkaError._WAIT_COORD,
    KafkaError._PARTIAL,
    KafkaError._SSL,
    # The client returns this while it sees no broker; a broker returns UNKNOWN_TOPIC_OR_PART.
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
    # The client requests the topic's new id itself; we check whether it has changed.
    KafkaError.UNKNOWN_TOPIC_ID,
    KafkaError.INCONSISTENT_TOPIC_ID,
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
_CUT_OFF = ("Local: Broker transport failure", "Local: Timed out")
_TOKEN = "OAUTHBEARER token"
_TOKEN_LATER = ("temporarily_unavailable", "server_error")


class Topic(NamedTuple):
    """A topic at its broker: *first* and *end* offset by partition; *id* is None if the broker has no topic ids."""

    name: str
    id: str | None
    first: Mapping[int, int]
    end: Mapping[int, int]


class Broker:
    """The connection to a broker.

    It keeps errors that the library reports by callbacks, so that the cause of a timeout can be reported.
    """

    def __init__(self, place: KafkaPlace) -> None:
        self._place = place
        self._final: MirroringError | None = None
        self._last = "it does not answer"

    def consumer(self, options: Mapping[str, Any]) -> Consumer:
        """A consumer without consumer group: it commits no offsets, and never chooses an offset itself."""
        return self._made(Consumer, {"group.id": "open-mirroring", "enable.auto.commit": False, **options})

    @cached_property
    def admin(self) -> AdminClient:
        """A client for administrative requests, which ask about topics."""
        return self._made(AdminClient, {})

    def results(self, futures: Mapping[Key, Future[Any]], where: str) -> dict[Key, Any]:
        """The results of an admin client's requests.

        An error that no retry fixes is raised at once, before the timeout. *where* is the text that names the request
        in an error message.
        """
        deadline = time.monotonic() + self._place.timeout_seconds
        found: dict[Key, Any] = {}
        for key, future in futures.items():
            while not future.done():
                wait([future], 0.05)
                self.admin.poll(0)
                self.check()
                if time.monotonic() > deadline:
                    self.unreachable(where)
            try:
                found[key] = future.result()
            except KafkaException as error:
                self.admin.poll(0)
                self.fail(error.args[0], f"topic {key}" if isinstance(key, str) else where)
        return found

    def topic_ids(self, topics: Iterable[str]) -> dict[str, tuple[str | None, list[int]]]:
        """The id and the partitions of each topic; the id is None if the broker has no topic ids."""
        names = sorted(topics)
        found = {}
        asked = self.admin.describe_topics(TopicCollection(names))
        for name, description in self.results(asked, f"topics {', '.join(names)}").items():
            uuid = description.topic_id
            # Brokers without ids return zero.
            known = uuid.get_most_significant_bits() or uuid.get_least_significant_bits()
            found[name] = (str(uuid) if known else None, sorted(p.id for p in description.partitions))
        return found

    def topics(self) -> list[Topic]:
        """All topics of the place; for each partition the first and end offset that consumers may read (KIP-98)."""
        committed = self._place.settings.options.get("isolation.level", "read_committed") == "read_committed"
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        ids = self.topic_ids(self._place.topics)
        wanted = [TopicPartition(name, number) for name in ids for number in ids[name][1]]
        # First the end: retention in between must not make a range look longer than it was.
        offsets = []
        for spec in (OffsetSpec.latest(), OffsetSpec.earliest()):
            asked = self.admin.list_offsets(dict.fromkeys(wanted, spec), isolation_level=level)
            answers = self.results(asked, f"offsets of {', '.join(ids)}")
            offsets.append({(p.topic, p.partition): answer.offset for p, answer in answers.items()})
        end, first = offsets
        return [
            Topic(name, topic_id, {n: first[name, n] for n in numbers}, {n: end[name, n] for n in numbers})
            for name, (topic_id, numbers) in ids.items()
        ]

    def prove_identity(self, topic: str, found: str | None) -> None:
        """Raise ``MESSAGES_LOST`` if *found* is another id than the one under which the topic was first read.

        Then the topic was deleted and created again, so its offsets now mean other messages. Without an id (None)
        nothing is checked.
        """
        expected = [topic_id for name, topic_id in self._place.ids if name == topic]
        if expected and found is not None and found not in expected:
            what = f"the topic's id is {found}, but {', '.join(expected)} was bound: it was re-created"
            raise recreated(what, self._where(f"topic {topic}"))

    def check(self) -> None:
        """Raise an error that a callback reported, if no retry will fix that error."""
        if self._final is not None:
            raise self._final

    def passes(self, error: KafkaError) -> bool:
        """Whether an error may be temporary, so that the client tries again."""
        return error.code() in _PASSING or error.retriable() or _is_cut_off(error)

    def unreachable(self, where: str) -> NoReturn:
        """Raise an error that a callback reported, if no retry will fix that error; else ``UNREACHABLE``."""
        self.check()
        raise TransientError(
            "UNREACHABLE",
            f"the broker does not answer or gives no messages: {self._last}",
            where=self._where(where),
            next_step="nothing is lost: the same ranges are read again by the next run; if it stays so, look at the "
            "broker and at the network between",
        )

    def fail(self, error: KafkaError, where: str) -> NoReturn:
        """Raise the product's error for an error of the Kafka client library."""
        self._note(error)
        self.check()
        if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise TerminalError(
                "PLACE_MISSING",
                "the broker has no such topic or partition, or does not show it to this login",
                where=self._where(where),
                next_step="fix `source.topics`, create the topic, or grant the login Describe and Read on it",
            )
        if self.passes(error):
            self.unreachable(where)
        raise TerminalError(
            "SERVICE_REFUSED",
            f"the broker or its client refuses: {self._text(error)}",
            where=self._where(where),
            next_step="see the error's name in Kafka's documentation; nothing was read past this place",
        )

    def _made(self, kind: Callable[..., Client], options: Mapping[str, Any]) -> Client:
        # The library would log to standard error; relevant errors come through the callback.
        settings = {**self._place.settings.options, **options, "error_cb": self._note, "log_level": 0}
        try:
            return kind(settings)
        except KafkaException as error:
            said = self._text(error.args[0])
        except (ValueError, TypeError) as error:
            said = self._place.settings.redact(str(error))
        raise invalid(self._place.connection, f"the Kafka client refuses its options: {said}")

    def _note(self, error: KafkaError) -> None:
        """Keep the error of a callback. Only a refusal is final, because the client retries the rest."""
        self._last = text = self._text(error)
        if self._final is not None:
            return
        if error.code() in _DENIED and not _token_may_come(text) and not _is_cut_off(error):
            self._final = TerminalError(
                "ACCESS_DENIED",
                f"the broker refuses this login: {text}",
                where=self._where(),
                next_step="correct login, password or mechanism of the connection, or grant the login Describe and "
                "Read on the topics",
            )
        elif error.code() == KafkaError._SSL and "certificate" in text:
            self._final = TerminalError(
                "CONNECTION_INVALID",
                f"the certificate of the broker, or of this client, is not accepted: {text}",
                where=self._where(),
                next_step="name the authority that signed the broker's certificate in ssl.ca.location of the "
                "connection's extra, and the host by the name that is in the certificate",
            )

    def _text(self, error: KafkaError) -> str:
        return self._place.settings.redact(f"{error.name()}: {error.str()}")[:300]

    def _where(self, where: str = "") -> str:
        return f"connection {self._place.connection}" + (f", {where}" if where else "")


def _is_cut_off(error: KafkaError) -> bool:
    """Whether a login failed only because its connection ended; the library reports that as a refusal."""
    return error.code() == KafkaError._AUTHENTICATION and any(cause in error.str() for cause in _CUT_OFF)


def _token_may_come(text: str) -> bool:
    """Whether an identity service gave no token without a refusal, which is JSON with ``error`` (RFC 6749)."""
    return _TOKEN in text and ('"error"' not in text or any(code in text for code in _TOKEN_LATER))


def recreated(what: str, where: str) -> TerminalError:
    """The error for a topic that was deleted and created again after its offsets were assigned to a batch."""
    next_step = (
        "offsets of the old topic mean nothing in the new one, and changes between the two may be lost: let the source "
        "write to a topic of another name, name that in the mirror file, and reload its tables"
    )
    return TerminalError("MESSAGES_LOST", what, where=where, next_step=next_step)


def retention_loss(lost: int, first: int, where: str) -> TerminalError:
    """The error for messages that the broker deleted before they were read."""
    return TerminalError(
        "MESSAGES_LOST",
        f"{lost} offsets are gone before they were read: the first that is left is {first}",
        where=where,
        next_step="lengthen the topic's retention beyond the longest outage; the lost changes cannot be read any more: "
        "let the source write to a topic of another name, name that in the mirror file, and reload its tables",
    )
