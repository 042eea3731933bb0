"""What driver and workers need to reach the topics of a Kafka broker or of Event Hubs.

The connection is resolved once, in the driver. Its secrets are sent with the tasks and appear in no text.
"""

from __future__ import annotations

from typing import NamedTuple

from open_mirroring.config.connections import Connection
from open_mirroring.config.kafka import ClientSettings, client_settings
from open_mirroring.config.source import MAX_MESSAGES_PER_RUN


class KafkaPlace(NamedTuple):
    """The topics of a mirror and their broker, as plain values that can be pickled.

    Args:
        settings: the client's options, secrets included.
        ids: the id of each topic when it was bound, see :func:`expecting`.
        messages_per_range: the maximum of offsets per range; a backlog is split into such ranges.
        max_messages_per_run: the approximate maximum of offsets bound at once, so that a catch-up has many batches.
        timeout_seconds: after this time without an answer or progress, the broker counts as unreachable.
    """

    connection: str
    topics: tuple[str, ...]
    settings: ClientSettings
    ids: tuple[tuple[str, str], ...] = ()
    messages_per_range: int = 200_000
    max_messages_per_run: int = MAX_MESSAGES_PER_RUN
    timeout_seconds: float = 60.0


def place_of(connection: Connection, topics: tuple[str, ...]) -> KafkaPlace:
    """The topics of a resolved connection, see :func:`~open_mirroring.config.kafka.client_settings`.

    Raises:
        TerminalError: ``CONNECTION_INVALID``, without any value of the connection.
    """
    return KafkaPlace(connection.name, topics, client_settings(connection))
