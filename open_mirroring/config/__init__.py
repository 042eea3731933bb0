"""Mirror files: their settings, how they are read, and how all mistakes in one are reported together."""

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
