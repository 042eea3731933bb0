"""Finds how a job gets Spark: options of its submission, a server to join, or jars for a Spark of its own."""

from __future__ import annotations

import os
from pathlib import Path

JARS = "OPEN_MIRRORING_JARS"
"""Environment variable naming the folder of jars."""
SUBMITTED = "OPEN_MIRRORING_SUBMITTED"
"""Environment variable of a job whose Spark is to be started by the options in ``PYSPARK_SUBMIT_ARGS``."""
REMOTE = "SPARK_REMOTE"
"""Spark's own variable for a server of Spark Connect (``sc://HOST:PORT/;token=…``)."""
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


def server_shown(address: str) -> str:
    """The address of a server of Spark Connect for people: without its parameters, for a token is one of them."""
    return (
        address.partition(";")[0] if address.startswith("sc://") else f"what {REMOTE} says, which is no sc://HOST:PORT"
    )
