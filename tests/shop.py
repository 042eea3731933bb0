"""The generator's shop behind a mirror that begins with an export of it, and its independent witness."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from demo.judge import judge as verdicts
from tests.pipeline import Pipeline
from workload_generator.command_line import main as workload

SHOP = {
    "dbo.customers": ["customer_id"],
    "dbo.products": ["sku"],
    "dbo.orders": ["order_id"],
    "dbo.order_lines": ["order_id", "line_no"],
}


def generator(*arguments: object) -> Any:
    said = io.StringIO()
    with redirect_stdout(said):
        assert workload([*map(str, arguments)]) == 0
    return json.loads(said.getvalue())


def judge(pipeline: Pipeline, state: Path) -> None:
    """Cell by cell, by a witness that shares no code with the product."""
    differing = [one for one in verdicts(state, pipeline.target) if not one.equal]
    assert not differing, differing


class Shop:
    """The generator's shop with an export of it, and a mirror that loads the export."""

    def __init__(
        self, folder: Path, spark: Any, file_format: str, rows: int, *, seed: int = 7, **settings: Any
    ) -> None:
        self.state, self.export = folder / "source.db", folder / "export"
        generator("init", "--state", self.state, "--seed", seed, "--rows", rows)
        # Changes before the export are in it; the stream repeats those at its border.
        capture = folder / "source"
        generator("run", "--state", self.state, "--capture", capture, "--transactions", 15, "--hold-back")
        manifest = generator("export", "--state", self.state, "--out", self.export, "--format", file_format)
        tables = [
            {
                "source": name,
                "target": name.replace(".", "/"),
                "key": table["key"],
                "initial_load": {
                    "format": file_format,
                    "path": str(self.export / name),
                    "stream_from": {"file": str(self.export / "export.json")},
                    **({"types": {c["name"]: c["sql_type"] for c in table["columns"]}} if file_format == "csv" else {}),
                },
            }
            for name, table in manifest["tables"].items()
        ]
        source = {"transport": "capture", "path": "source", "layout": None}
        moved = capture.rename(folder / "moved")
        self.pipeline = Pipeline(folder, spark, tables, source=source, **settings)
        self.pipeline.source.rmdir()
        moved.rename(self.pipeline.source)

    def go_on(self, transactions: int = 20, *, hold_back: bool = False) -> None:
        run = ("run", "--state", self.state, "--capture", self.pipeline.source, "--transactions", transactions)
        generator(*run, *(["--hold-back"] if hold_back else []))
