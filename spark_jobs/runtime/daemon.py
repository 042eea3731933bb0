"""Starts the daemon of Spark's Python workers faster, by moving pyspark's folder before its zip on the path.

Spark puts pyspark's zip before the folder, and Python compiles modules from a zip in each process, which costs a second
of each worker's first task. Every worker is a fork of the daemon, so every worker gets the changed path.
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
