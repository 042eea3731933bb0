"""What holds for the repository as a whole: import walls, sizes, names, what no file may contain."""

from __future__ import annotations

import ast
import re
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

PRODUCT = {"open_mirroring", "open_mirroring_airflow", "spark_jobs"}
SPARK = {"pyspark", "delta"}
# The distributions of testing/ and examples/, and what only a checkout has.
EXAMPLES = {"landing_zone_acceptance", "open_mirroring_debezium"}
TESTING = {"fabric_emulator", "workload_generator", *EXAMPLES, "demo", "benchmarks", "tests"}

# Imports point down only: room -> top-level packages that it must not import, at any depth of the code.
WALLS: dict[str, set[str]] = {
    "open_mirroring": {"airflow", *SPARK, *PRODUCT - {"open_mirroring"}, *TESTING},
    "spark_jobs": {"airflow", "open_mirroring_airflow", *TESTING},
    "plugins": {*SPARK, "deltalake", "spark_jobs", *TESTING},
    "dags": {*SPARK, "deltalake", "spark_jobs", *TESTING},
    "examples/acceptance": {"airflow", *SPARK, *PRODUCT, *TESTING - {"fabric_emulator", "landing_zone_acceptance"}},
    "examples/debezium": {"airflow", *SPARK, "open_mirroring_airflow", *TESTING},
    "testing/fabric_emulator": {"airflow", *SPARK, *PRODUCT - {"open_mirroring"}, *TESTING - {"fabric_emulator"}},
    "testing/workload_generator": {"airflow", *SPARK, *PRODUCT, *TESTING - {"workload_generator"}},
    "demo/judge.py": {"airflow", *SPARK, *PRODUCT, *TESTING},
}

# The emulator reads the layout that it stands in for, and nothing that decides how the product writes it.
EMULATOR_MAY_IMPORT = tuple(f"open_mirroring.landing_zone.{name}" for name in ("layout", "schema", "markers"))


def _tracked_files() -> list[Path]:
    """Every file that is, or would be, committed."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if listing.returncode:
        pytest.skip(f"no git work tree to list: {listing.stderr.strip()}")
    return [ROOT / name for name in listing.stdout.split("\0") if name and (ROOT / name).is_file()]


def _texts() -> Iterator[tuple[str, str]]:
    for path in _tracked_files():
        try:
            yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # binary fixtures hold no prose


def _modules(room: str) -> list[Path]:
    place = ROOT / room
    return [place] if place.is_file() else sorted(place.rglob("*.py"))


def _imports(source: str, package: str = "") -> set[str]:
    """The dotted names that a module imports anywhere, functions and TYPE_CHECKING blocks included."""
    return _names(ast.walk(ast.parse(source)), package)


def _names(nodes: Iterable[ast.AST], package: str) -> set[str]:
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*parents, *([base] if base else [])])
            names |= {f"{base}.{alias.name}" for alias in node.names}
        elif (
            isinstance(node, ast.Call)
            and getattr(node.func, "attr", getattr(node.func, "id", "")) in ("import_module", "__import__")
            and node.args
            and isinstance(node.args[0], ast.Constant)
        ):
            names.add(str(node.args[0].value))
    return names


@cache
def _imports_of(path: Path) -> frozenset[str]:
    return frozenset(_imports(path.read_text(encoding="utf-8"), _package(path)))


def _breaches(imports: Iterable[str], forbidden: set[str]) -> set[str]:
    return {name for name in imports if name.split(".")[0] in forbidden}


def _package(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).parent.parts)


def test_every_unit_test_lies_where_the_code_lies() -> None:
    """Whoever changes a room finds its tests in the folder of the same name."""
    folders = {
        file.parent.relative_to(ROOT / "tests" / "unit") for file in (ROOT / "tests" / "unit").rglob("test_*.py")
    }
    without_code = {
        folder.as_posix() for folder in folders - {Path("house"), Path("testing")} if not (ROOT / folder).is_dir()
    }
    assert Path() not in folders and not without_code


@pytest.mark.parametrize("room", WALLS)
def test_imports_point_down_only(room: str) -> None:
    breaches = {
        path.relative_to(ROOT).as_posix(): sorted(found)
        for path in _modules(room)
        if (found := _breaches(_imports_of(path), WALLS[room]))
    }
    assert breaches == {}


MODULES_OF_A_ROOM = 20
_ROW = re.compile(r"^\| `((?:open_mirroring|spark_jobs)/[\w/]*)` \|[^|]*\|([^|]*)\|$", re.MULTILINE)


def _drawn_rooms() -> dict[str, set[str]]:
    """Room -> the rooms it may use, as the two tables of docs/architecture.md draw it."""
    rooms: dict[str, set[str]] = {}
    for room, uses in _ROW.findall((ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")):
        top = room.partition("/")[0]
        names = re.findall("`([^`]+)`", uses)
        rooms[room.strip("/")] = {top if name == "jobs" else f"{top}/{name}" for name in names}
    return rooms


@cache
def _folder(name: str) -> str:
    """The folder of the product's module that a dotted name is of, or is."""
    path = ROOT / name.replace(".", "/")
    while not (path.is_dir() or path.with_suffix(".py").is_file()):
        path = path.parent
    return (path if path.is_dir() else path.parent).relative_to(ROOT).as_posix()


def _built_rooms() -> dict[str, set[str]]:
    """Room -> the rooms of its own tree that its modules import; what all may use, the core's root, left out."""
    rooms: dict[str, set[str]] = {}
    for top in ("open_mirroring", "spark_jobs"):
        for path in _modules(top):
            room = path.parent.relative_to(ROOT).as_posix()
            if "migrations" in room:
                continue
            used = {_folder(name) for name in _imports_of(path) if name.split(".")[0] == top}
            rooms.setdefault(room, set()).update(used - {room, "open_mirroring"})
    return rooms


def test_rooms_use_each_other_as_the_architecture_draws_it() -> None:
    assert _built_rooms() == _drawn_rooms()


def test_no_two_rooms_depend_on_each_other() -> None:
    TopologicalSorter(_drawn_rooms()).prepare()  # raises CycleError, naming the circle


def _loaded(module: str) -> set[str]:
    """The product's modules that loading one of them loads: what it imports outside of functions, and so on."""
    found, open_ = set[str](), [module]
    while open_:
        name = open_.pop()
        path = ROOT / name.replace(".", "/")
        path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        if name in found or not path.is_file():
            continue
        found.add(name)
        open_ += _loaded_at_once(path) - found
    return found


@cache
def _loaded_at_once(path: Path) -> frozenset[str]:
    body = ast.parse(path.read_text(encoding="utf-8")).body
    split = [name.split(".") for name in _names(body, _package(path))]
    return frozenset(".".join(p[:end]) for p in split if p[0] in PRODUCT for end in range(1, len(p) + 1))


def test_decoding_loads_neither_ledger_nor_reconciliation() -> None:
    """A worker decodes: what decides is not its business, and would take long to load."""
    modules = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in _modules("spark_jobs/sources")]
    deciding = ("open_mirroring.ledger", "open_mirroring.reconciliation", "open_mirroring.operate")
    assert {m: sorted(found) for m in modules if (found := {x for x in _loaded(m) if x.startswith(deciding)})} == {}
    assert any(name.startswith(deciding) for name in _loaded("spark_jobs.extract_changes")), "else it would see nothing"


def test_only_the_registry_names_sources() -> None:
    """Formats and transports are asked for by the contract; who would add one has no other place to look at."""
    named = re.compile(r"spark_jobs/sources/(ces|kafka|qlik|transports)\b")
    outside = {room: used for room, used in _built_rooms().items() if not room.startswith("spark_jobs/sources")}
    assert {room: found for room, used in outside.items() if (found := {*filter(named.match, used)})} == {}


def test_no_room_outgrows_itself() -> None:
    sizes = Counter(
        path.parent.relative_to(ROOT).as_posix()
        for top in ("open_mirroring", "spark_jobs", "plugins")
        for path in _modules(top)
    )
    assert {room: size for room, size in sizes.items() if size > MODULES_OF_A_ROOM + 1} == {}


def test_the_emulator_knows_of_the_product_only_the_layout() -> None:
    breaches = {
        path.name: sorted(found)
        for path in _modules("testing/fabric_emulator")
        if (
            found := {
                name
                for name in _imports_of(path)
                if name.split(".")[0] == "open_mirroring"
                and not any(name == room or name.startswith(f"{room}.") for room in EMULATOR_MAY_IMPORT)
            }
        )
    }
    assert breaches == {}


@pytest.mark.parametrize(
    "source",
    [
        "import airflow",
        "import airflow.sdk as sdk",
        "from airflow.sdk import DAG",
        "def late():\n    from airflow import models",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import airflow",
        "import importlib\nimportlib.import_module('airflow.sdk')",
        "__import__('airflow')",
    ],
)
def test_the_walls_see_every_way_to_import(source: str) -> None:
    assert _breaches(_imports(source), {"airflow"})
    assert not _breaches(_imports(source), {"pyspark"})


def test_the_walls_resolve_relative_imports() -> None:
    assert _imports("from . import layout", "open_mirroring.landing_zone") == {"open_mirroring.landing_zone.layout"}
    assert _imports("from ..errors import X", "open_mirroring.landing_zone") == {"open_mirroring.errors.X"}


def test_no_module_has_a_name_that_says_nothing() -> None:
    vague = {"utils", "util", "helpers", "helper", "manager", "managers", "misc", "common"}
    names = [path.relative_to(ROOT) for path in _tracked_files() if path.suffix == ".py"]
    assert [n.as_posix() for n in names if vague & {*n.with_suffix("").parts}] == []


# Assembled, so that this file does not contain what it looks for.
_REGISTRY_HOSTS = [
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("repo1", "maven", "org"),
        ("repo", "maven", "apache", "org"),
        ("docker", "io"),
        ("ghcr", "io"),
        ("quay", "io"),
        ("mcr", "microsoft", "com"),
        ("gcr", "io"),
        ("npmjs", "org"),
    )
]
_MACHINE_PATH = re.compile(r"(?<![\w.:/}~-])/(?:" + "|".join(["work", "root", "home", "Users", "tmp"]) + r")/\w")


def test_no_file_names_a_registry_host() -> None:
    found = {name: host for name, text in _texts() for host in _REGISTRY_HOSTS if host in text}
    assert found == {}


def test_no_file_names_a_place_on_somebodys_machine() -> None:
    found = {name: match.group() for name, text in _texts() if (match := _MACHINE_PATH.search(text))}
    assert found == {}


def test_only_marked_tests_reach_beside_the_repository() -> None:
    beside = ".." + "/shared"
    citing = {name: text for name, text in _texts() if beside in text}
    assert [name for name in citing if not name.startswith("tests/")] == []
    unmarked = [n for n, text in citing.items() if "shared_data" not in text]
    assert unmarked == []
