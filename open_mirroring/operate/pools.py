"""The Airflow pools that a set of mirrors needs, as a document to import. The module does not import Airflow.

Public source: Apache Airflow, *Pools* and ``airflow pools import``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from open_mirroring.config.models import Mirror

SPARK_POOL = "spark"
"""The pool of everything that starts a Spark application to read or to load."""


def zone_pool(mirror: str) -> str:
    """The one-slot pool of a mirror's landing zone: one publisher at a time, whatever asks for it."""
    return f"zone_{mirror}"


def pools_document(mirrors: Iterable[Mirror], *, spark_slots: int = 1) -> dict[str, dict[str, Any]]:
    """What ``airflow pools import FILE`` reads, as a JSON object: pool name → slots and description.

    Args:
        mirrors: the mirrors that will be scheduled.
        spark_slots: how many Spark applications may read or load at the same time.
    """
    pools = {SPARK_POOL: _pool(spark_slots, "Spark applications that read or load, over all mirrors")}
    for name in sorted(mirror.name for mirror in mirrors):
        pools[zone_pool(name)] = _pool(1, f"The landing zone of the mirror {name}: one publisher at a time")
    return pools


def _pool(slots: int, description: str) -> dict[str, Any]:
    # A deferred task waits for others: it must not keep them out.
    return {"slots": slots, "description": description, "include_deferred": False}
