"""Dashboard and alerts name what the page measures: no name that is not there, none that nobody looks at."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import yaml

from open_mirroring.page.exposition import METRICS

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
LABELS = {metric.name: {"mirror", *metric.labels} for metric in METRICS}


def expressions() -> Iterator[tuple[str, str]]:
    """Each query with the text that is made of its labels."""
    dashboard = json.loads((DEPLOY / "grafana-dashboard.json").read_text(encoding="utf-8"))
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            yield target["expr"], target["legendFormat"]
    yield dashboard["templating"]["list"][1]["query"].split("(")[1].split(",")[0], ""
    for group in yaml.safe_load((DEPLOY / "alerts.yaml").read_text(encoding="utf-8"))["groups"]:
        for rule in group["rules"]:
            yield rule["expr"], " ".join(rule["annotations"].values())


def test_every_name_and_label_is_one_that_the_page_gives() -> None:
    used = set()
    for expression, text in expressions():
        names = set(re.findall(r"open_mirroring_\w+", expression))
        assert names and names <= LABELS.keys(), expression
        used |= names
        labels = set(re.findall(r"(\w+)=~?\"", expression))
        labels |= {name for group in re.findall(r"by \(([^)]*)\)", expression) for name in group.split(", ")}
        labels |= set(re.findall(r"(?:\$labels\.|\{\{)(\w+)", text))
        labels -= {"or"}
        for name in names:
            assert labels <= LABELS[name], (expression, name)
    assert used == LABELS.keys()
