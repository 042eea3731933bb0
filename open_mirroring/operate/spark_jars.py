"""Says where the jars lie that Spark needs besides its own, so that jobs find them wherever they are installed."""

from __future__ import annotations

import os
from pathlib import Path

JARS = "OPEN_MIRRORING_JARS"
"""Environment variable naming the folder of jars."""
SUBMITTED = "OPEN_MIRRORING_SUBMITTED"
"""Environment variable of a job whose Spark is to be started by the options in ``PYSPARK_SUBMIT_ARGS``."""
_CHECKOUT = Path(__file__).resolve().parents[2] / "jars"


def jars_folder() -> Path:
    """The folder that :data:`JARS` names, else ``jars`` of a checkout, else one in the user's cache."""
    if named := os.environ.get(JARS):
        return Path(named).absolute()
    if (_CHECKOUT / "ivy.xml").is_file():
        return _CHECKOUT
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache, "open_mirroring", "jars")


def jar_files() -> list[str]:
    """The jars of that folder, sorted; none where an image has them in Spark's own folder."""
    return sorted(map(str, jars_folder().glob("*.jar")))
