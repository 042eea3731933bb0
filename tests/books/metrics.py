"""Writes ``docs/reference/metrics.md`` from the metrics that ``/metrics`` serves: so it lists all of them."""

from __future__ import annotations

from open_mirroring.page.exposition import METRICS

_HEAD = """\
# Metrics

Written by `make commands` from the code. [The page](../how-to/page.md) serves these at `/metrics` in Prometheus' text
format; all are gauges and have the label `mirror`. A Grafana dashboard and alert rules are in `deploy/`.

| Metric | Further labels | Says |
|---|---|---|
"""


def metric_book() -> str:
    """The page as Markdown."""
    rows = [f"| `{one.name}` | {', '.join(f'`{label}`' for label in one.labels)} | {one.says} |" for one in METRICS]
    return _HEAD + "\n".join(rows) + "\n"


if __name__ == "__main__":
    print(metric_book(), end="")
