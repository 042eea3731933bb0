"""The wheel alone, away from its checkout: the command line mirrors, and two lines in a DAG folder make the DAGs."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import packages_distributions
from itertools import chain
from pathlib import Path

import pytest

from open_mirroring.operate.spark_jars import jars_folder
from tests.e2e.test_histories import TABLES, assert_mirrored, history
from tests.pipeline import ROOT, Pipeline
from workload_generator.ces import CesOptions, render
from workload_generator.delivery import Delivery
from workload_generator.transports import json_lines

OURS = ["open_mirroring", "spark_jobs", "open_mirroring_airflow"]
TESTING = ["fabric_emulator", "workload_generator"]
PARTS = ["open_mirroring", "spark_jobs", "plugins", "jars", "docs"]


def _install(folder: Path, root: Path, parts: list[str]) -> Path:
    """A folder that holds what the wheel of these parts of a folder holds, and nothing of the checkout."""
    tree = folder / "tree"
    for part in parts:
        shutil.copytree(root / part, tree / part, symlinks=True, ignore=shutil.ignore_patterns("*.jar", "__pycache__"))
    for file in root.glob("*"):
        if file.name in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(file, tree)
    build = "import sys; from setuptools.build_meta import build_wheel; build_wheel(sys.argv[1])"
    subprocess.run([sys.executable, "-c", build, folder], cwd=tree, check=True, capture_output=True, timeout=300)
    shutil.rmtree(tree)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(folder / "site")
    return folder / "site"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of the product."""
    return _install(tmp_path_factory.mktemp("wheel"), ROOT, PARTS)


def _run(site: Path | str, folder: Path, *command: str | Path, **settings: str) -> str:
    environment = {
        name: text for name, text in os.environ.items() if not name.startswith(("OPEN_MIRRORING", "AIRFLOW"))
    }
    environment |= {
        "PYTHONPATH": str(site),
        "OPEN_MIRRORING_JARS": str(jars_folder()),
        "AIRFLOW_HOME": str(folder / "airflow"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        **settings,
    }
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_an_installed_wheel_mirrors_a_history(installed: Path, tmp_path: Path) -> None:
    """Nothing that a job needs lies in the checkout: programs, migrations, logging settings, jars."""
    made = history(seed=23, transactions=20)
    where = _run(installed, tmp_path, "-c", f"import {', '.join(OURS)}; print(spark_jobs.__file__)")
    assert where.strip() == str(installed / "spark_jobs" / "__init__.py")
    pipeline = Pipeline(tmp_path / "shop", None, TABLES)
    pipeline.deliver("0.jsonl", json_lines(render(made.changes, CesOptions(), Delivery()), layout="wrapped"))
    _run(installed, tmp_path, "-m", "spark_jobs.cli.command_line", "tick", pipeline.file)
    pipeline.service.poll()
    assert_mirrored(pipeline, made)


def test_two_lines_in_a_dag_folder_make_the_dags(installed: Path, tmp_path: Path) -> None:
    """AF-02: no DAG file of the checkout is needed."""
    mirrors = str(Pipeline(tmp_path / "shop", None, TABLES).file.parent)
    (tmp_path / "dags").mkdir()
    lines = ["from open_mirroring_airflow import mirror_dags", f"globals().update(mirror_dags({mirrors!r}))"]
    (tmp_path / "dags" / "ours.py").write_text("\n".join(lines))
    look = (
        "from airflow.dag_processing.dagbag import DagBag; b = DagBag('dags'); print(b.import_errors, *sorted(b.dags))"
    )
    assert "{} test__correct_table test__decide test__initial_load" in _run(installed, tmp_path, "-c", look)


@pytest.mark.long
def test_a_mirror_runs_through_airflow_with_the_wheel_and_a_dag_folder_alone(installed: Path, tmp_path: Path) -> None:
    """A database of Airflow's own, two lines in a file, a connection to Spark: the history is mirrored, equal."""
    made = history(seed=29, transactions=30)
    pipeline = Pipeline(tmp_path / "shop", None, TABLES)
    messages = render(made.changes, CesOptions(), Delivery(disorder=20, duplicates=0.05, seed=29))
    (tmp_path / "dags").mkdir()
    lines = [
        "from open_mirroring_airflow import mirror_dags",
        f"globals().update(mirror_dags({str(pipeline.file.parent)!r}))",
    ]
    (tmp_path / "dags" / "ours.py").write_text("\n".join(lines))
    settings = {
        "AIRFLOW__CORE__DAGS_FOLDER": str(tmp_path / "dags"),
        "AIRFLOW_CONN_SPARK_DEFAULT": '{"conn_type": "spark", "host": "local[2]"}',
    }
    _run(installed, tmp_path, "-m", "airflow", "db", "migrate", **settings)
    half = len(messages) // 2
    for number, some in enumerate((messages[:half], messages[half:])):
        pipeline.deliver(f"{number}.jsonl", json_lines(some, layout="wrapped"))
        run = ("dags", "test", "test__replicate", f"2026-01-0{number + 1}")
        said = _run(installed, tmp_path, "-m", "airflow", *run, **settings)
        assert "state=success" in said, said[-3000:]
        pipeline.service.poll()
    assert_mirrored(pipeline, made)


def test_the_wheel_holds_nothing_to_test_with(installed: Path, tmp_path: Path) -> None:
    """The emulator and the generator are a wheel of their own, which the product's wheel runs."""
    assert {folder.name for folder in installed.iterdir() if folder.suffix != ".dist-info"} == {*OURS}
    site = _install(tmp_path / "testing", ROOT / "testing", TESTING)
    assert {folder.name for folder in site.iterdir() if folder.suffix != ".dist-info"} == {*TESTING}
    both = f"{installed}{os.pathsep}{site}"
    (tmp_path / "zone").mkdir()
    folders = ("--landing-zone", tmp_path / "zone", "--tables", tmp_path / "tables")
    _run(both, tmp_path, "-m", "fabric_emulator.command_line", "apply", *folders)
    where = _run(both, tmp_path, "-c", "import fabric_emulator; print(fabric_emulator.__file__)")
    assert where.strip() == str(site / "fabric_emulator" / "__init__.py")


def test_the_pins_of_the_jars_are_in_the_wheel(installed: Path) -> None:
    """`open-mirroring jars` fetches by them; no jar itself is packed."""
    pins = {file.name for file in (installed / "spark_jobs" / "runtime" / "jars").iterdir()}
    assert pins == {"fetch", "ivy.xml", "ivysettings.xml", "SHA256SUMS"}
    assert not list(installed.rglob("*.jar"))


_OF_FABRIC = "notebookutils"
"""Is part of Fabric's Spark, and of no package."""


@pytest.mark.parametrize(
    ("root", "parts", "own"),
    [(ROOT, ["open_mirroring", "spark_jobs", "plugins"], OURS), (ROOT / "testing", TESTING, [*TESTING])],
    ids=["product", "testing"],
)
def test_every_package_that_is_imported_is_declared(root: Path, parts: list[str], own: list[str]) -> None:
    """A package that only comes with another one is gone when that one no longer needs it."""
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    texts = [*project["dependencies"], *chain.from_iterable(project.get("optional-dependencies", {}).values())]
    declared = {re.split(r"[\[<>=! ]", text)[0].lower() for text in texts}
    of = packages_distributions()
    missing = {}
    for part in parts:
        for file in (root / part).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text("utf-8"))):
                names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
                if isinstance(node, ast.ImportFrom) and not node.level:
                    names = [node.module or ""]
                for name in {name.partition(".")[0] for name in names} - {*sys.stdlib_module_names, *own, _OF_FABRIC}:
                    if not declared & {one.lower().replace("_", "-") for one in of.get(name, [name.replace("_", "-")])}:
                        missing[name] = file.name
    assert not missing
