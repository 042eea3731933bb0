"""The site of documents: each page has its place, and what a page shows is taken by the code."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from open_mirroring.config import load_mirror
from tests.books.codes import runbook
from tests.books.commands import command_book
from tests.books.metrics import metric_book
from tests.books.settings import settings_book

ROOT = Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted((DOCS / "how-to").glob("*.md"))]


class _Loader(yaml.SafeLoader):
    """Takes the two Python objects that the site's settings name as what they are written as."""


_Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda _loader, suffix, _node: suffix)


def leaves(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    for one in nav.values() if isinstance(nav, dict) else nav if isinstance(nav, list) else ():
        yield from leaves(one)


def test_every_page_is_in_the_navigation_once() -> None:
    settings = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), _Loader)
    assert sorted(leaves(settings["nav"])) == sorted(page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md"))


def test_the_committed_page_of_commands_is_the_parsers_own() -> None:
    assert (DOCS / "reference" / "commands.md").read_text(encoding="utf-8") == command_book(), "run `make commands`"


def test_the_committed_page_of_settings_is_the_schemas_own() -> None:
    assert (DOCS / "reference" / "settings.md").read_text(encoding="utf-8") == settings_book(), "run `make commands`"


def test_the_committed_page_of_metrics_is_what_the_page_serves() -> None:
    assert (DOCS / "reference" / "metrics.md").read_text(encoding="utf-8") == metric_book(), "run `make commands`"


def test_the_last_chapter_of_the_runbook_is_the_table_of_codes() -> None:
    assert (DOCS / "runbook.md").read_text(encoding="utf-8") == runbook(), "run `make commands`"


def shown_settings() -> Iterator[tuple[Path, str]]:
    """Each top-level setting of each YAML block, by itself: a block may show several ways of one setting."""
    for page in PAGES:
        for block in re.findall(r"```yaml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
            for entry in re.split(r"^(?=[a-z_]+:)", block, flags=re.MULTILINE):
                if re.match(r"[a-z_]+:", entry):
                    yield page, entry


@pytest.mark.parametrize(("page", "entry"), list(shown_settings()), ids=lambda one: getattr(one, "stem", None))
def test_every_setting_that_a_page_shows_is_taken(page: Path, entry: str, tmp_path: Path) -> None:
    shown = yaml.safe_load(entry)
    table = {"source": "dbo.orders", "target": "dbo/orders", "key": ["order_id"]}
    if "initial_load" in shown:
        # A list of types has to name the table's key.
        table |= shown | {"key": [next(iter(shown["initial_load"].get("types", {})), "order_id")]}
        shown = {}
    document = {
        "mirror": "shown",
        "source": {"format": "sqlserver-ces", "transport": "files", "layout": "bare", "path": "events"},
        "landing_zone": {"store": "local", "path": "zone", "tables": "tables"},
        "ledger": "sqlite:///ledger.db",
        "change_log": "log",
        "tables": [table],
    } | shown
    file = tmp_path / "mirrors" / f"{document['mirror']}.yaml"
    file.parent.mkdir()
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    load_mirror(file)


def test_every_option_of_spark_in_a_recipe_is_one_that_spark_has() -> None:
    """A misspelt one would be ignored without a word. Some options end in a name of the user's own."""
    import pyspark

    jars = Path(pyspark.__file__).with_name("jars")
    kinds = ("core", "common-utils", "network-common", "kubernetes", "yarn", "connect")
    known: set[str] = set()
    for kind in kinds:
        (jar,) = jars.glob(f"spark-{kind}_*.jar")
        with zipfile.ZipFile(jar) as classes:
            for name in classes.namelist():
                if name.endswith(".class"):
                    known |= {text.decode() for text in re.findall(rb"spark\.[\w.-]+", classes.read(name))}
    named_by_the_user = ("spark.kubernetes.driver.secrets", "spark.kubernetes.authenticate.driver")
    of_the_mirror_file = {"spark.connection", "spark.cores", "spark.memory"}
    for page in (DOCS / "deploy").glob("*.md"):
        options = set(re.findall(r"(?<![\w./-])spark\.[a-z][\w.-]*\w", page.read_text(encoding="utf-8")))
        for option in options - of_the_mirror_file:
            begun = next((begin for begin in named_by_the_user if option.startswith(f"{begin}.")), option)
            assert {begun, f"{begun}."} & known, f"{page.name}: {option}"
