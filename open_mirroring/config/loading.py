"""Reads mirror files, and reports all mistakes of a file together, each with file and line."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pydantic import ValidationError

from open_mirroring.config.models import BegunMirror, LedgerConnection, Mirror, Origin
from open_mirroring.config.problems import ConfigError, Mistake, Problem, SettingPath, explain, line_of, path_text
from open_mirroring.config.source import InFolder
from open_mirroring.config.tables import Table, table_collisions
from open_mirroring.config.yaml_tree import YamlTree
from open_mirroring.landing_zone.layout import name_identity
from open_mirroring.storage.address import is_address, parse_address

M = TypeVar("M", bound=Mirror)
Standing = Callable[[Mirror], int]
"""How certain the ledger is that its mirror was read from this file: the higher, the more certain; 0: unknown."""
HOME = "OPEN_MIRRORING_HOME"
"""The environment variable for the folder to which relative paths in mirror files refer."""


def load_mirror(path: Path) -> Mirror:
    """Read one mirror file.

    Raises one ``ConfigError`` with all mistakes in the file. The error never shows a value that may be secret.
    """
    return _sound(*_read(Path(path)))


def parse_mirror(text: str, file: Path, model: type[M]) -> M:
    """Parse the text of a mirror file; *file* is the name to show in messages, and need not exist.

    *model* is Mirror, or BegunMirror for a file that may list no tables yet. Raises one ``ConfigError`` with all
    mistakes in the text.
    """
    return _sound(*_parsed(text, file, model))


def _sound(mirror: M | None, problems: list[Problem]) -> M:
    if mirror is not None and not problems:
        problems = _clashes([mirror], lambda _: 0)
    if mirror is None or problems:
        raise ConfigError(problems)
    return mirror


def load_mirrors(folder: Path, standing: Standing = lambda _: 0) -> list[Mirror]:
    """Read all mirror files of a folder, sorted by name.

    Raises one ``ConfigError`` with the mistakes of all files. Two mirrors clash if they have the same name, or if one
    writes to a place that the other uses (G-175). *standing* tells which of the two files is refused. It returns how
    certain the ledger is that a mirror was read from this file; 0 means that the ledger does not know the file. The
    file with the lower standing is refused. If both have the same standing, the second file is refused; with standing 0
    both files are refused.
    """
    read = [_read(file) for file in mirror_files(folder)]
    mirrors = [mirror for mirror, _ in read if mirror is not None]
    problems = [problem for _, found in read for problem in found] + _clashes(mirrors, standing)
    if problems:
        raise ConfigError(problems)
    return mirrors


def mirror_files(folder: Path) -> list[Path]:
    """Return the mirror files of a folder: ``*.yaml`` and ``*.yml``, sorted by name, without hidden files."""
    return sorted(p for p in Path(folder).glob("*.y*ml") if p.suffix in (".yaml", ".yml") and p.name[0] != ".")


def _read(file: Path) -> tuple[Mirror | None, list[Problem]]:
    line = 1
    try:
        return _parsed(file.read_bytes().decode("utf-8-sig"), file, Mirror)
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        what, next_step = f"the file is not UTF-8 (byte 0x{error.object[error.start]:02X})", "save it as UTF-8 text"
    except OSError as error:
        what, next_step = f"the file cannot be read: {error.strerror}", "name an existing, readable mirror file"
    return None, [Problem("CONFIG_INVALID", file, line, "", what, next_step)]


def _parsed(text: str, file: Path, model: type[M]) -> tuple[M | None, list[Problem]]:
    tree = YamlTree(text)
    problems = [_problem(file, tree, found) for found in tree.findings]
    if tree.data is None:
        if not problems:
            what = "the file holds no setting"
            problems = [Problem("CONFIG_INVALID", file, 1, "", what, "begin with `mirror: NAME`")]
        return None, problems
    if model is BegunMirror and isinstance(tree.data, dict) and tree.data.get("tables", ...) is None:
        del tree.data["tables"]  # only the word, with nothing below it yet
    mirror, refused = _validated(tree.data, model)
    problems += [_problem(file, tree, found) for found in refused if not tree.is_withheld(found.path)]
    if mirror is not None:
        home = Path(os.environ.get(HOME) or file.absolute().parent.parent)
        mirror._origin = Origin(file.absolute(), home.expanduser().absolute(), tree.lines)
    return (None if problems else mirror), problems


def _problem(file: Path, tree: YamlTree, found: Mistake) -> Problem:
    line = found.line or line_of(found.path, tree.lines)
    return Problem(found.code, file, line, path_text(found.path), found.what, found.next_step)


def _validated(data: Any, model: type[M]) -> tuple[M | None, list[Mistake]]:
    try:
        return model.model_validate(data), []
    except ValidationError as error:
        # pydantic also calls a list empty when every item of it was refused.
        details = [d for d in error.errors(include_url=False) if d["type"] != "too_short" or not d["input"]]
        refused = [explain(detail, Mirror) for detail in details]
    if any(r.path[:1] == ("tables",) for r in refused):
        # The tables were not compared with each other, because one of them is wrong. Compare the others.
        known = set(refused)
        refused += [r for r in _collisions_of_valid_tables(data) if r not in known]
    return None, refused


def _collisions_of_valid_tables(data: Any) -> Iterator[Mistake]:
    tables: list[tuple[int, Table]] = []
    found = data.get("tables") if isinstance(data, dict) else None
    for index, content in enumerate(found if isinstance(found, list) else ()):
        try:
            tables.append((index, Table.model_validate(content)))
        except ValidationError:
            continue  # reported with the complete mirror
    for twin in table_collisions(tables):
        yield twin._replace(path=("tables", *twin.path))


class _Place(NamedTuple):
    """A place or name that a mirror uses. Two may be the same only if both are only read from (*shared*)."""

    mirror: Mirror
    setting: SettingPath
    identity: tuple[str, ...]
    shared: bool = False


def _clashes(mirrors: Sequence[Mirror], standing: Standing) -> list[Problem]:
    problems = []
    for a, b in combinations([place for mirror in mirrors for place in _places(mirror)], 2):
        depth = min(len(a.identity), len(b.identity))
        if a.identity[:depth] != b.identity[:depth] or (a.shared and b.shared):
            continue
        first, second = standing(a.mirror), standing(b.mirror)
        if second > first:
            problems.append(_clash(a, b))
        else:
            problems.append(_clash(b, a))
            if first == 0 and a.mirror is not b.mirror:
                problems.append(_clash(a, b))
    return problems


def _clash(wrong: _Place, right: _Place) -> Problem:
    owner = f"mirror {right.mirror.name!r} ({right.mirror.file.name})"
    if wrong.setting == ("mirror",):
        what = f"the name {wrong.mirror.name!r} is taken by {right.mirror.file.name}"
    else:
        owner = "this mirror" if wrong.mirror is right.mirror else owner
        what = f"this place is, holds or is inside {path_text(right.setting)} of {owner}"
    return wrong.mirror.problem(wrong.setting, "MIRROR_CLASH", what, "give each mirror a name and places of its own")


def _places(mirror: Mirror) -> Iterator[_Place]:
    yield _Place(mirror, ("mirror",), ("name", mirror.name))
    if isinstance(mirror.source, InFolder):
        yield _Place(mirror, ("source", "path"), _text_identity(mirror, mirror.source.path), shared=True)
    zone = mirror.landing_zone
    if zone.store == "local":
        yield _Place(mirror, ("landing_zone", "path"), _identity(mirror.resolve(zone.path)))
    else:
        # Two connections may lead to one place: compare places, not connections.
        parts = ("onelake", zone.workspace or "", zone.item or "", *zone.path.split("/"))
        yield _Place(mirror, ("landing_zone",), tuple(map(name_identity, parts)))
    yield _Place(mirror, ("change_log",), _text_identity(mirror, str(mirror.change_log)))
    if isinstance(mirror.ledger, LedgerConnection):
        yield _Place(mirror, ("ledger",), ("connection", mirror.ledger.connection.upper()))
        return
    url = mirror.ledger_url()
    if url.startswith("sqlite:///"):
        yield _Place(mirror, ("ledger",), _identity(Path(url.removeprefix("sqlite:///").partition("?")[0])))
    else:
        yield _Place(mirror, ("ledger",), ("url", url.partition("?")[0]))


def _text_identity(mirror: Mirror, path: str) -> tuple[str, ...]:
    if not is_address(path):
        return _identity(mirror.resolve(path))
    address = parse_address(path)
    account = () if address.service == "onelake" else (address.host,)
    parts = address.path.split("/") if address.path else ()
    return (address.service, *account, *map(name_identity, (address.container, *parts)))


def _identity(path: Path) -> tuple[str, ...]:
    # Compare like a case-insensitive, normalizing file system; links and `..` are followed.
    return tuple(name_identity(part) for part in Path(os.path.realpath(path)).parts)
