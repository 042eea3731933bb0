"""How large the product may be: each figure is a ceiling that only comes down.

A number is there to be seen, not to be met by joining lines or modules: where it and beauty disagree, raise it and say
why.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from open_mirroring.ledger.tables import metadata
from tests.unit.house.test_house import _loaded

ROOT = Path(__file__).resolve().parents[3]
PRODUCT = ("open_mirroring", "spark_jobs", "plugins")
LINES, MODULES, RECORDS, TABLES = 63_510, 370, 437, 15
FIELDS, ARGUMENTS = 15, 7
FILES_OF_OURS = {"LogRow": 23, "Standing": 18}
"""What one row of the change log, and one footer, hold: their fields are those of a file."""
TEST_LINES = 68_390
DECODERS = {
    "spark_jobs.sources.ces.decoder": 34,
    "spark_jobs.sources.qlik.change_table.decoder": 37,
    "spark_jobs.sources.qlik.message.decoder": 45,
}
_RECORDS = {"NamedTuple", "TypedDict", "Struct"}


def _files(*tops: str) -> list[Path]:
    return sorted(path for top in tops for path in (ROOT / top).rglob("*.py"))


def _classes() -> Iterator[ast.ClassDef]:
    for path in _files(*PRODUCT):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        yield from (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))


def _is_record(node: ast.ClassDef) -> bool:
    named = {part.id if isinstance(part, ast.Name) else getattr(part, "attr", "") for part in node.bases}
    return bool(named & _RECORDS) or any("dataclass" in ast.unparse(one) for one in node.decorator_list)


def _fields(node: ast.ClassDef) -> int:
    return sum(isinstance(line, ast.AnnAssign) and "ClassVar" not in ast.unparse(line.annotation) for line in node.body)


def _arguments(node: ast.ClassDef) -> int:
    makers = (line.args for line in node.body if isinstance(line, ast.FunctionDef) and line.name == "__init__")
    return max((len(one.args) + len(one.kwonlyargs) - 1 for one in makers), default=0)


def test_the_product_does_not_grow() -> None:
    files = _files(*PRODUCT)
    assert sum(path.read_text(encoding="utf-8").count("\n") for path in files) <= LINES
    assert len(files) <= MODULES
    assert sum(path.read_text(encoding="utf-8").count("\n") for path in _files("tests")) <= TEST_LINES


def test_records_are_few_and_small() -> None:
    classes = [*_classes()]
    records = [node for node in classes if _is_record(node)]
    assert len(records) <= RECORDS
    assert {node.name: size for node in records if (size := _fields(node)) > FIELDS} == FILES_OF_OURS
    assert {node.name: size for node in classes if (size := _arguments(node)) > ARGUMENTS} == {}


def test_the_ledger_has_few_tables() -> None:
    assert len(metadata.tables) <= TABLES


@pytest.mark.parametrize("decoder", DECODERS)
def test_a_decoder_needs_little_of_the_product(decoder: str) -> None:
    assert len({name for name in _loaded(decoder) if name.count(".")}) <= DECODERS[decoder]
