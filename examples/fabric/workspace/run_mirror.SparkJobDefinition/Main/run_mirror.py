"""One run of a mirror in Fabric's own Spark: the main file of a Spark job definition.

Its arguments are the mirror file, the address of a key vault, and ``CONNECTION=SECRET`` for each connection that the
mirror file names. The secret holds the connection in Airflow's JSON form. The job fails if the run does not end well.
"""

from __future__ import annotations

import os
import sys


def run(mirror_file: str, vault: str, *connections: str) -> int:
    """Set the connections and do one ``tick`` in the session of the job; returns its exit code."""
    import notebookutils  # type: ignore[import-not-found,unused-ignore] # only Fabric has it
    from pyspark.sql import SparkSession

    from spark_jobs.cli.command_line import main

    for connection in connections:
        name, _, secret = connection.partition("=")
        os.environ[f"AIRFLOW_CONN_{name.upper()}"] = notebookutils.credentials.getSecret(vault, secret)
    SparkSession.builder.getOrCreate()  # the jobs use the running session
    return main(["tick", mirror_file])


if __name__ == "__main__":
    sys.exit(run(*sys.argv[1:]))
