"""Writes the metrics of all mirrors in Prometheus' text format. The metrics are read from the ledgers alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import Engine

from open_mirroring.config import Mirror
from open_mirroring.operate.history import logged_per_hour
from open_mirroring.operate.viewing import view_mirror
from open_mirroring.operate.words import SEVERITY, verdict_name
from open_mirroring.protocols.verdicts import Verdict

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metric(NamedTuple):
    """A metric: its name, its help text, and its labels in addition to the label *mirror*."""

    name: str
    says: str
    labels: Sequence[str] = ()


_P = "open_mirroring_"
UP = Metric(f"{_P}up", "1 where the ledger of the mirror answers, else 0.")
VERDICT = Metric(f"{_P}tables", "Tables by verdict: PASS, LOSSES, HOLD, STOP, UNKNOWN.", ("verdict",))
STOPPED = Metric(f"{_P}table_stopped", "1 for each stopped table, with the code of its stop.", ("table", "code"))
READING_STOPPED = Metric(f"{_P}reading_stopped", "1 where the reading of the mirror is stopped, else 0.")
LAST_COMMIT = Metric(f"{_P}last_batch_age_seconds", "Age of the newest batch of the change log.")
OPEN_BATCH = Metric(f"{_P}open_batch_age_seconds", "Age of the batch under way.")
LOOK = Metric(f"{_P}last_look_age_seconds", "Age of the last inspection of the landing zone.")
LAG = Metric(f"{_P}table_lag_seconds", "Age of the oldest logged change of a table that is not applied.", ("table",))
WAITING = Metric(f"{_P}table_waiting_changes", "Logged changes of a table that are not published.", ("table",))
BACKLOG = Metric(f"{_P}table_backlog_files", "Published files of a table that the target has not applied.", ("table",))
BACKLOG_BYTES = Metric(f"{_P}table_backlog_bytes", "The bytes of these files.", ("table",))
LETTERS = Metric(f"{_P}dead_letters", "Open dead letters; of no table where the label is empty.", ("table", "code"))
LOSSES = Metric(f"{_P}table_losses", "Losses of a table; of any table where the label is empty.", ("table",))
FRAGMENTS = Metric(f"{_P}open_fragments", "Split messages that wait for their pieces.")
MESSAGES = Metric(f"{_P}messages_last_hour", "Messages that were logged in the last hour.")
BEHIND = Metric(f"{_P}partition_behind", "Messages of a partition that are not read yet.", ("partition",))
RETENTION = Metric(
    f"{_P}partition_until_loss", "Messages that retention still keeps below what is read.", ("partition",)
)
HORIZON = Metric(f"{_P}horizon_age_seconds", "How far back sources may be read again, and the log be compared.")
PROOF = Metric(f"{_P}table_proof_age_seconds", "Age of the last proof of a table.", ("table", "verdict"))
VERIFIED = Metric(
    f"{_P}table_verified_ratio",
    "Rows of a table that were compared within prove.cover_in_days, from 0 to 1.",
    ("table",),
)
UNVERIFIED = Metric(f"{_P}table_unverified_seconds", "For how long some rows of a table were not compared.", ("table",))
METRICS: Sequence[Metric] = tuple(value for value in dict(vars()).values() if isinstance(value, Metric))

_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})
_Samples = dict[Metric, list[tuple[Mapping[str, str], float]]]


def exposition(mirrors: Iterable[tuple[Mirror, Engine | None]], now: datetime) -> str:
    """Return all metrics as text. A mirror without a readable ledger has only the metric ``up``, with the value 0."""
    samples: _Samples = {metric: [] for metric in METRICS}
    for mirror, ledger in mirrors:
        samples[UP].append(({"mirror": mirror.name}, float(ledger is not None)))
        if ledger is not None:
            _add(samples, mirror, ledger, now)
    lines = []
    for metric, found in samples.items():
        lines += [f"# HELP {metric.name} {metric.says}", f"# TYPE {metric.name} gauge"]
        for labels, value in found:
            named = ",".join(f'{name}="{text.translate(_ESCAPES)}"' for name, text in labels.items())
            lines.append(f"{metric.name}{{{named}}} {value:g}")
    return "\n".join(lines) + "\n"


def _add(samples: _Samples, mirror: Mirror, ledger: Engine, now: datetime) -> None:
    found = view_mirror(mirror, ledger, now)
    letters = found.report.letters

    def put(metric: Metric, value: float | None, **labels: str) -> None:
        if value is not None:
            samples[metric].append(({"mirror": mirror.name, **labels}, value))

    def age(moment: datetime | None) -> float | None:
        return None if moment is None else (now - moment).total_seconds()

    for verdict in SEVERITY:
        put(VERDICT, found.counts.get(verdict, 0), verdict=verdict_name(verdict))
    put(READING_STOPPED, float(found.stop is not None))
    put(LAST_COMMIT, age(found.last_commit))
    put(OPEN_BATCH, age(found.state.open_since))
    put(LOOK, age(found.looked_at))
    put(FRAGMENTS, len(found.fragments))
    put(MESSAGES, *logged_per_hour(ledger, mirror.name, now, what="messages", hours=1))
    put(HORIZON, None if found.horizon is None else age(found.horizon.at))
    put(LETTERS, letters.without_table.count, table="", code="")
    put(LOSSES, len(found.losses), table="")
    for source, open_letters in letters.tables.items():
        for code, count in open_letters.by_code.items():
            put(LETTERS, count, table=source, code=code)
    for name, lag in found.partitions.items():
        put(BEHIND, lag.behind, partition=name)
        put(RETENTION, lag.until_loss, partition=name)
    for table in found.tables:
        put(LAG, table.lag.total_seconds(), table=table.source)
        put(WAITING, table.waiting.changes, table=table.source)
        put(BACKLOG, table.backlog.files, table=table.source)
        put(BACKLOG_BYTES, table.backlog.bytes, table=table.source)
        put(LOSSES, len(table.losses), table=table.source)
        if table.verdict is Verdict.STOP:
            put(STOPPED, 1, table=table.source, code=table.code)
        if table.proof is not None:
            put(PROOF, age(table.proof.proved_at), table=table.source, verdict=str(table.proof.verdict))
        if table.verified is not None:
            put(VERIFIED, table.verified.share, table=table.source)
            put(UNVERIFIED, age(table.verified.oldest), table=table.source)
