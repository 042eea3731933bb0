"""Starts the daemon of Spark's Python workers, for which pyspark's folder goes before its zip.

Spark puts the zip first on the path of its workers, and Python compiles anew what it imports from one: a second of each
worker's first task. The daemon starts nothing else, and every worker is a fork of it.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run pyspark's own daemon."""
    sys.path.sort(key=lambda place: place.endswith(".zip"))  # stable: all others keep their order
    from pyspark.daemon import manager

    manager()


if __name__ == "__main__":
    main()
