"""The example package of Debezium's change events as it is once installed, and events for it.

Its module is on the path by the configuration of pytest. What an installation adds are its metadata with the entry
point: they are made here, and nothing is installed.
"""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "debezium"
TYPES = {name: "string" for name in ("name", "city", "price", "cost")}
TYPES |= {"id": "int32", "at": "io.debezium.time.MicroTimestamp", "d": "org.apache.kafka.Decimal"}


def _installed() -> TemporaryDirectory[str]:
    """A folder on the path with the metadata of the package."""
    site = TemporaryDirectory(prefix="debezium-")
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text("utf-8"))["project"]
    metadata = Path(site.name) / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    metadata.mkdir()
    named = f"Metadata-Version: 2.4\nName: {project['name']}\nVersion: {project['version']}\n"
    (metadata / "METADATA").write_text(named, encoding="utf-8")
    lines = []
    for group, points in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {place}" for name, place in points.items())]
    (metadata / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")
    sys.path.append(site.name)
    return site


SITE = _installed()


def event(op: str, before: Any, after: Any, commit: int, names: str = "id name at", **source: Any) -> bytes:
    fields = [{"field": name, "type": "int64", "name": TYPES[name], "optional": name != "id"} for name in names.split()]
    schema = {"fields": [{"field": image, "type": "struct", "fields": fields} for image in ("before", "after")]}
    lsn = f"0000002c:{commit:08x}:0001"
    at: dict[str, Any] = {"commit_lsn": lsn, "change_lsn": lsn, "event_serial_no": 1}
    at |= {"connector": "sqlserver", "name": "shop", "db": "s", "schema": "dbo", "table": "orders"} | source
    images = [None if row is None else dict(zip(names.split(), row, strict=True)) for row in (before, after)]
    payload = {"op": op, "before": images[0], "after": images[1], "source": at}
    return json.dumps({"schema": schema, "payload": payload}).encode() + b"\n"
