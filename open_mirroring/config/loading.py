"""Reads mirror files, and reports all mistakes of a file together, each with file and line."""

from __future__ import annotations

import os
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pydantic import ValidationError

from open_mirroring.config.models import BegunMirror, LedgerConnection, Mirror, Origin
from open_mirroring.config.problems import ConfigError, Mistake, Problem, SettingPath, explain, path_text
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


def parse_mirror(text: str, file: Path) -> Mirror:
    """Parse the text of a mirror file; *file* is the name to show in messages, and need not exist.

    Raises one ``ConfigError`` with all mistakes in the text.
    """
    return _sound(*_parsed(text, file, Mirror))


def parse_begun(text: str, file: Path) -> BegunMirror:
    """Parse the text of a mirror file that may list no tables yet; *file* is the name to show in messages.

    Raises one ``ConfigError`` with all mistakes in the text.
    """
    return _sound(*_parsed(text, file, BegunMirror))


def _sound(mirror: M | None, problems: list[Problem]) -> M:
    if mirror is not None and not problems:
        problems = _clashes([mirror], lambda _: 0)
    if mirror is None or problems:
        raise ConfigError(problems)
    return mirror


def load_mirrors(folder: Path, standing: Standing = lambda _: 0) -> list[Mirror]:
    """Read all mirror files of a folder, sorted by name. Raises one ``ConfigError`` with the mistakes of all files.

    *standing* returns how certain the ledger is that a mirror was read from its file; 0 means that the ledger does not
    know the file. If two files have the same mirror name or write to the same place, the file with the lower
    *standing* is refused. If both files have the standing 0, both files are refused (G-175).
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
    text = _text(file)
    return (None, [text]) if isinstance(text, Problem) else _parsed(text, file, Mirror)


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
    line = found.line or tree.line_of(found.path)
    return Problem(found.code, file, line, path_text(found.path), found.what, found.next_step)


def _text(file: Path) -> str | Problem:
    try:
        content = file.read_bytes()
        return content.decode("utf-16" if content.startswith((BOM_UTF16_LE, BOM_UTF16_BE)) else "utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        what = f"the file is not UTF-8 (byte 0x{error.object[error.start]:02X})"
        return Problem("CONFIG_INVALID", file, line, "", what, "save it as UTF-8 text")
    except OSError as error:
        what = f"the file cannot be read: {error.strerror}"
        return Problem("CONFIG_INVALID", file, 1, "", what, "name an existing, readable mirror file")


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
    """A place that a mirror uses. Two may be the same only if both are only read from (*shared*)."""

    mirror: Mirror
    setting: SettingPath
    identity: tuple[str, ...]
    shared: bool = False


def _clashes(mirrors: Sequence[Mirror], standing: Standing) -> list[Problem]:
    problems = []
    for one, two in combinations(mirrors, 2):
        for wrong, other in _wrong(one, two, standing) if one.name == two.name else ():
            what = f"the name {wrong.name!r} is taken by {other.file.name}"
            problems.append(wrong.problem(("mirror",), "MIRROR_CLASH", what, "give each mirror a name of its own"))
    for a, b in combinations([place for mirror in mirrors for place in _places(mirror)], 2):
        depth = min(len(a.identity), len(b.identity))
        if a.identity[:depth] != b.identity[:depth] or (a.shared and b.shared):
            continue
        if a.mirror is b.mirror:
            problems.append(_clash(b, a, "this mirror"))
            continue
        for wrong, other in _wrong(a.mirror, b.mirror, standing):
            mine, taken = (b, a) if wrong is b.mirror else (a, b)
            problems.append(_clash(mine, taken, f"mirror {other.name!r} ({other.file.name})"))
    return problems


def _clash(mine: _Place, taken: _Place, owner: str) -> Problem:
    what = f"this place is, holds or is inside {path_text(taken.setting)} of {owner}"
    return mine.mirror.problem(mine.setting, "MIRROR_CLASH", what, "give it a place of its own")


def _wrong(one: Mirror, two: Mirror, standing: Standing) -> list[tuple[Mirror, Mirror]]:
    """The wrong ones of two clashing files, each with the other file; both if no ledger knows either."""
    first, second = standing(one), standing(two)
    if second > first:
        return [(one, two)]
    return [(two, one)] if first else [(two, one), (one, two)]


def _places(mirror: Mirror) -> Iterator[_Place]:
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
