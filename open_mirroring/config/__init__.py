"""Reads mirror files, defines their settings, and reports all mistakes in a file together.

A name of this package is imported when it is first used. So a Spark worker can use the module for connections without
importing the code for mirror files.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from open_mirroring.config.checking import check_mirror
    from open_mirroring.config.loading import load_mirror, load_mirrors, mirror_files
    from open_mirroring.config.models import Mirror, json_schema
    from open_mirroring.config.problems import ConfigError, Problem
    from open_mirroring.config.tables import Table

__all__ = [
    "ConfigError",
    "Mirror",
    "Problem",
    "Table",
    "check_mirror",
    "json_schema",
    "load_mirror",
    "load_mirrors",
    "mirror_files",
]
_MODULES = {
    "checking": ("check_mirror",),
    "loading": ("load_mirror", "load_mirrors", "mirror_files"),
    "models": ("Mirror", "json_schema"),
    "problems": ("ConfigError", "Problem"),
    "tables": ("Table",),
}


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
