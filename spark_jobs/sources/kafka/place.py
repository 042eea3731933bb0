"""Holds what driver and workers need to reach the topics of a Kafka broker or of Event Hubs.

The named connection is resolved once, in the driver; its secrets travel with the tasks and show in no text.
"""

from __future__ import annotations

from typing import NamedTuple

from open_mirroring.config.connections import Connection
from open_mirroring.config.kafka import ClientSettings, client_settings
from open_mirroring.config.source import MAX_MESSAGES_PER_RUN


class KafkaPlace(NamedTuple):
    """What driver and workers must know of the topics of a mirror; plain values that can be pickled.

    Args:
        connection: the connection's name, for messages to the operator.
        topics: the topics to read.
        settings: how the broker is reached, secrets included.
        ids: the id that each topic had when it was bound, see :func:`expecting`.
        messages_per_range: a partition's backlog is cut into ranges of at most this many offsets.
        max_messages_per_run: about this many offsets are bound at once, so that a catch-up is many bounded batches.
        timeout_seconds: after so long without an answer or progress the broker counts as unreachable.
    """

    connection: str
    topics: tuple[str, ...]
    settings: ClientSettings
    ids: tuple[tuple[str, str], ...] = ()
    messages_per_range: int = 200_000
    max_messages_per_run: int = MAX_MESSAGES_PER_RUN
    timeout_seconds: float = 60.0


def place_of(connection: Connection, topics: tuple[str, ...]) -> KafkaPlace:
    """The topics behind a resolved connection, see :func:`~open_mirroring.config.kafka.client_settings`.

    Raises:
        TerminalError: ``CONNECTION_INVALID``; no value of the connection is repeated.
    """
    return KafkaPlace(connection.name, topics, client_settings(connection))
