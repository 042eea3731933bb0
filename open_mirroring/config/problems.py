"""Describes a mistake in a mirror file: code, file and line, what is wrong, and the fix; never the value."""

from __future__ import annotations

import datetime
import difflib
import re
import typing
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from open_mirroring.errors import TerminalError

SettingPath = tuple[str | int, ...]
"""The path of a setting in a mirror file, outermost first: ``("tables", 0, "target")``."""

_MAPPING = "write {name: value}, or one `name: value` per line below it"
_KINDS = {
    "string_type": ("text", "write text"),
    "int_type": ("a whole number", "write a whole number without quotes"),
    "bool_type": ("true or false", "write true or false without quotes"),
    "tuple_type": ("a list", "write [a, b], or one item per line after a dash"),
    "dict_type": ("a mapping of names to values", _MAPPING),
    "model_type": ("a mapping of settings", _MAPPING),
    "model_attributes_type": ("a mapping of settings", _MAPPING),
}
"""What a value must be, and the fix, by pydantic's kind of error."""


def path_text(path: SettingPath) -> str:
    """Write the path of a setting for people: ``("tables", 0, "target")`` → ``tables[0].target``."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            # Keys come from the file: a line break or a bidirectional character must not forge a log line.
            shown = part if part.isprintable() else repr(part)[1:-1]
            text += f".{shown}" if text else shown
    return text


def line_of(path: SettingPath, lines: Mapping[SettingPath, int]) -> int:
    """Return the line of the setting *path*, or, if it is not in the file, of the nearest setting around it."""
    while path and path not in lines:
        path = path[:-1]
    return lines.get(path, 1)


class Problem(NamedTuple):
    """A mistake in a mirror file.

    *line* counts from 1. *path* is the path of the setting, such as ``tables[0].target``; it is empty if the mistake
    belongs to no setting.
    """

    code: str
    file: Path
    line: int
    path: str
    what: str
    next_step: str

    def __str__(self) -> str:
        setting = f"{self.path}: " if self.path else ""
        return f"{self.file}:{self.line}: {self.code}: {setting}{self.what}. Next step: {self.next_step}"


class ConfigError(TerminalError):
    """The error for mirror files with mistakes (``CONFIG_INVALID``); *problems* has all mistakes, by file and line."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(sorted(set(problems), key=lambda p: (str(p.file), p.line, p.path, p.code, p.what)))
        count = len(self.problems)
        super().__init__(
            "CONFIG_INVALID",
            f"{count} {'mistake' if count == 1 else 'mistakes'} found:\n" + "\n".join(map(str, self.problems)) + "\n",
            where=", ".join(sorted({str(problem.file) for problem in self.problems})),
            next_step="fix every line named above, then run `open-mirroring check` on the file",
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return (ConfigError, (self.problems,))


class Mistake(NamedTuple):
    """Why a setting is refused. If *line* is 0, the mistake is in the line of the setting."""

    path: SettingPath
    code: str
    what: str
    next_step: str
    line: int = 0


def explain(error: ErrorDetails, root: type[BaseModel]) -> Mistake:
    """Convert a pydantic error of the model *root* to a mistake with our own text.

    The mistake's path contains only names and indexes of settings, no values.
    """
    location = error["loc"]
    path = tuple(part for part in location[:-1] if not _is_tag(part))
    if location and (error["type"] == "extra_forbidden" or not _is_tag(location[-1])):
        path = (*path, location[-1])
    kind, context = error["type"], error.get("ctx", {})
    if "next_step" in context:
        return Mistake(path, kind, context["what"], context["next_step"])
    name = str(path[-1]) if path else ""
    if kind == "extra_forbidden":
        here = _models_at(root, location[:-1])
        known = sorted({setting for model in here for setting in _fields(model)})
        close = difflib.get_close_matches(name, known, n=1)
        next_step = f"did you mean {close[0]!r}?" if close else f"known here: {', '.join(known)}"
        return Mistake(path, "CONFIG_INVALID", f"there is no setting {name!r} here", next_step)
    if kind == "missing":
        return Mistake(path, "CONFIG_INVALID", f"the setting {name!r} is missing", _described(root, location))
    if kind == "literal_error":
        # The allowed words are part of the message; the value is only used to guess.
        words = re.findall(r"'([^']+)'", context["expected"]) or [context["expected"]]
        close = difflib.get_close_matches(str(error["input"]), words, n=1)
        next_step = f"did you mean {close[0]!r}?" if close else _described(root, location)
        return Mistake(path, "CONFIG_INVALID", f"the value is none of: {', '.join(words)}", next_step)
    if kind in _KINDS:
        needed, next_step = _KINDS[kind]
        if kind == "string_type" and isinstance(error["input"], bool | int | float | datetime.date):
            next_step = "put it in quotes: YAML reads it as a number, a date or a yes/no"
        return Mistake(path, "CONFIG_INVALID", f"the value must be {needed}", next_step)
    if kind == "too_short":
        return Mistake(path, "CONFIG_INVALID", "the list is empty", "name at least one, or leave the setting out")
    # Only limits of numbers and patterns of texts are left: these messages contain the rule, not the value.
    return Mistake(path, "CONFIG_INVALID", error["msg"][:1].lower() + error["msg"][1:], _described(root, location))


def _is_tag(part: str | int) -> bool:
    # "(JdbcLoad)" is the member of a union that was tried; "[key]" refers to the key of a mapping.
    return isinstance(part, str) and (part == "[key]" or (part.startswith("(") and part.endswith(")")))


def _models_at(root: type[BaseModel], location: tuple[str | int, ...]) -> list[type[BaseModel]]:
    """The models that are possible at a location. A tag in it selects among the members of a union."""
    current = [root]
    for part in location:
        if isinstance(part, int):
            continue
        if _is_tag(part):
            current = [model for model in current if f"({model.__name__})" == part]
            continue
        fields = [_fields(model)[part] for model in current if part in _fields(model)]
        current = [model for field in fields for model in _models_in(field.annotation)]
    return current


def _fields(model: type[BaseModel]) -> dict[str, FieldInfo]:
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _models_in(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in typing.get_args(annotation):
        yield from _models_in(part)


def _described(root: type[BaseModel], location: tuple[str | int, ...]) -> str:
    setting = next((i for i in range(len(location) - 1, -1, -1) if isinstance(location[i], str)), None)
    for model in _models_at(root, location[:setting]) if setting is not None else ():
        field = _fields(model).get(str(location[setting or 0]))
        if field is not None and field.description:
            return f"set it: {field.description}"
    return "see the published schema of mirror files"
