"""Finds the partition that a message in a file of Event Hubs Capture belongs to.

Event Hubs Capture writes one partition as many files, and numbers the partition's messages without a gap. So the
numbers of messages are compared within a partition, not within a file.
"""

from __future__ import annotations

import re
from functools import lru_cache

_WINDOW = "/[0-9][0-9][0-9][0-9]" + 5 * "/[0-9][0-9]" + "[.]avro"
_CAPTURED = re.compile(f"(.+){_WINDOW}")

PARTITION = f"regexp_replace(origin, '{_WINDOW}$', '')"
"""SQL for the partition of the column ``origin``, as :func:`partition_of` computes it."""


def partition_of(origin: str) -> str:
    """The partition of a file of Event Hubs Capture; any other *origin*, such as a Kafka partition, unchanged."""
    match = _CAPTURED.fullmatch(origin)
    return match[1] if match else origin


@lru_cache(maxsize=1024)  # called for every message, and a run reads few partitions
def topic_of(origin: str) -> str:
    """The topic if *origin* is ``topic/partition``, the event hub of a captured file; empty for other files."""
    partition = partition_of(origin)
    topic, _, number = partition.rpartition("/")
    if not number.isdecimal():
        return ""
    return topic if partition == origin else topic.rpartition("/")[2]
