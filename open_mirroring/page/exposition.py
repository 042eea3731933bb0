"""Writes the metrics of all mirrors in Prometheus' text format, from the ledgers alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import Engine

from open_mirroring.config import Mirror
from open_mirroring.operate.metrics import mirror_metrics
from open_mirroring.operate.overview import MirrorOverview, overview
from open_mirroring.operate.words import SEVERITY

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metric(NamedTuple):
    """A metric by its name: what it says, and its labels beside *mirror*."""

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
METRICS: Sequence[Metric] = tuple(value for value in dict(vars()).values() if isinstance(value, Metric))

_Samples = dict[Metric, list[tuple[Mapping[str, str], float]]]


def exposition(mirrors: Iterable[tuple[Mirror, Engine | None]], now: datetime) -> str:
    """The metrics as text; a mirror whose ledger does not answer has ``up`` 0 and nothing else."""
    samples: _Samples = {metric: [] for metric in METRICS}
    for mirror, ledger in mirrors:
        samples[UP].append(({"mirror": mirror.name}, float(ledger is not None)))
        if ledger is not None:
            _add(samples, mirror, ledger, now)
    lines = []
    for metric, found in samples.items():
        lines += [f"# HELP {metric.name} {metric.says}", f"# TYPE {metric.name} gauge"]
        lines += [f"{metric.name}{{{_labels(labels)}}} {value:g}" for labels, value in found]
    return "\n".join(lines) + "\n"


def _add(samples: _Samples, mirror: Mirror, ledger: Engine, now: datetime) -> None:
    found = overview(mirror, ledger, now)
    metrics = mirror_metrics(ledger, mirror.name, now, with_tables=False)

    def put(metric: Metric, value: float | None, **labels: str) -> None:
        if value is not None:
            samples[metric].append(({"mirror": mirror.name, **labels}, value))

    for verdict in SEVERITY:
        put(VERDICT, found.counts.get(verdict, 0), verdict="UNKNOWN" if verdict is None else verdict.value)
    put(READING_STOPPED, float(found.stop is not None))
    put(LAST_COMMIT, metrics.last_commit_age)
    put(OPEN_BATCH, metrics.open_batch_age)
    put(LOOK, None if found.looked_at is None else (now - found.looked_at).total_seconds())
    put(FRAGMENTS, metrics.open_fragments)
    put(MESSAGES, found.hours[-1])
    put(HORIZON, metrics.horizon_age)
    put(LETTERS, metrics.homeless_letters, table="", code="")
    put(LOSSES, len(found.losses), table="")
    for source, codes in metrics.open_letters.items():
        for code, count in codes.items():
            put(LETTERS, count, table=source, code=code)
    for name, lag in metrics.partitions.items():
        put(BEHIND, lag.behind, partition=name)
        put(RETENTION, lag.until_loss, partition=name)
    _add_tables(samples, found)


def _add_tables(samples: _Samples, found: MirrorOverview) -> None:
    for table in found.tables:
        labels = {"mirror": found.mirror, "table": table.source}
        samples[LAG].append((labels, table.lag(found.taken_at).total_seconds()))
        samples[WAITING].append((labels, table.waiting_rows))
        samples[BACKLOG].append((labels, table.backlog.files))
        samples[BACKLOG_BYTES].append((labels, table.backlog.bytes))
        samples[LOSSES].append((labels, len(table.losses)))
        if table.verdict is not None and table.verdict.value == "STOP":
            samples[STOPPED].append(({**labels, "code": table.code}, 1))
        if table.proof is not None:
            age = (found.taken_at - table.proof.at).total_seconds()
            samples[PROOF].append(({**labels, "verdict": table.proof.verdict}, age))


def _labels(labels: Mapping[str, str]) -> str:
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
