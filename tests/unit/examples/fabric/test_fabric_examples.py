"""The files of examples/fabric: what can be known of them without Fabric."""

from __future__ import annotations

import ast
import json
import os
import re
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from spark_jobs.cli import command_line

EXAMPLE = Path(__file__).resolve().parents[4] / "examples" / "fabric"
WORKSPACE = EXAMPLE / "workspace"
JOB = WORKSPACE / "run_mirror.SparkJobDefinition"


def test_each_item_is_named_as_its_folder() -> None:
    items = [path.parent for path in WORKSPACE.rglob(".platform")]
    described = [json.loads((item / ".platform").read_text("utf-8")) for item in items]
    assert {f"{one['metadata']['displayName']}.{one['metadata']['type']}" for one in described} == {
        item.name for item in items
    }
    assert len({one["config"]["logicalId"] for one in described}) == len(items) == 2


def test_each_replaced_value_is_in_the_job() -> None:
    definition = (JOB / "SparkJobDefinitionV1.json").read_text("utf-8")
    assert (JOB / "Main" / json.loads(definition)["executableFile"]).is_file()
    replaced = yaml.safe_load((WORKSPACE / "parameter.yml").read_text("utf-8"))["find_replace"]
    assert replaced and all(one["find_value"] in definition for one in replaced)


def test_the_notebook_is_python() -> None:
    cells = json.loads((EXAMPLE / "run_mirror.ipynb").read_text("utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert code and all(ast.parse(one) for one in code)


def test_the_definition_that_terraform_names_is_of_an_open_mirrored_database() -> None:
    (source,) = re.findall(r'"\$\{path\.module\}/(.*)"', (EXAMPLE / "terraform" / "main.tf").read_text("utf-8"))
    definition = json.loads((EXAMPLE / "terraform" / source).read_text("utf-8"))
    assert definition["properties"]["source"]["type"] == "GenericMirror"


def test_the_job_sets_connections_and_runs_one_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = json.loads((JOB / "SparkJobDefinitionV1.json").read_text("utf-8"))["commandLineArguments"].split()
    vault = SimpleNamespace(getSecret=lambda vault, name: f"{name} of {vault}")
    monkeypatch.setitem(sys.modules, "notebookutils", SimpleNamespace(credentials=vault))
    session = SimpleNamespace(SparkSession=SimpleNamespace(builder=SimpleNamespace(getOrCreate=lambda: None)))
    monkeypatch.setitem(sys.modules, "pyspark.sql", session)
    called: list[list[str]] = []

    def main(argv: list[str]) -> int:
        called.append(argv)
        return 5

    monkeypatch.setattr(command_line, "main", main)
    for name in ("SHOP_LAKE", "SHOP_LEDGER"):
        monkeypatch.setenv(f"AIRFLOW_CONN_{name}", "")
    run = runpy.run_path(str(JOB / "Main" / "run_mirror.py"))["run"]
    assert run(*arguments) == 5 and called == [["tick", "/lakehouse/default/Files/mirrors/shop.yaml"]]
    assert os.environ["AIRFLOW_CONN_SHOP_LAKE"].startswith("shop-lake of https://")
