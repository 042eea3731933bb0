"""Determines the partition of a message, in whichever file of Event Hubs Capture it is.

Capture writes one partition as many files, and numbers the messages of the partition without a gap. So places are
compared within a partition, not within a file.
"""

from __future__ import annotations

import re
from functools import lru_cache

_WINDOW = "/[0-9][0-9][0-9][0-9]" + 5 * "/[0-9][0-9]" + "[.]avro"
_CAPTURED = re.compile(f"(.+){_WINDOW}")

PARTITION = f"regexp_replace(origin, '{_WINDOW}$', '')"
"""As :func:`partition_of`, for the column ``origin`` in SQL."""


def partition_of(origin: str) -> str:
    """The partition of a captured file by its name; any other origin, such as a topic partition, is unchanged."""
    match = _CAPTURED.fullmatch(origin)
    return match[1] if match else origin


@lru_cache(maxsize=1024)  # called for every message, and a run reads few partitions
def topic_of(origin: str) -> str:
    """The topic of ``topic/partition``, or the event hub of a captured file; empty if a file's name contains none."""
    partition = partition_of(origin)
    topic, _, number = partition.rpartition("/")
    if not number.isdecimal():
        return ""
    return topic if partition == origin else topic.rpartition("/")[2]
